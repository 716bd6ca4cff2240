"""Places at a local socket: of one user a part, root has its own, and the next one is for who has fewest."""

from __future__ import annotations

from contextlib import ExitStack

from gossipd.api.socket_places import ROOT, Places

A, B, C, UNKNOWN = 1000, 1001, 1002, -1


def places() -> Places:
    return Places("short requests", 16, 12)


def test_one_user_takes_a_part_and_others_the_rest() -> None:
    found = places()
    with ExitStack() as stack:
        had = [stack.enter_context(found.asked(user)).is_had for user in [A] * 13 + [B] * 3 + [UNKNOWN] + [C]]
        assert had == [True] * 12 + [False] + [True] * 4 + [False]
        assert found.taken == 16
        assert found.refusal(A).startswith("one user may have 12 short requests at the socket")
        assert found.refusal(C).startswith("the socket has 16 short requests")
    assert found.taken == 0


def test_root_finds_a_place_however_many_users_there_are() -> None:
    found = places()
    with ExitStack() as stack:
        for user in range(1000, 1016):
            assert stack.enter_context(found.asked(user)).is_had
        had = [stack.enter_context(found.asked(ROOT)).is_had for _ in range(13)]
        assert had == [True] * 12 + [False]
        assert not stack.enter_context(found.asked(C)).is_had
    assert stack.enter_context(found.asked(C)).is_had


def test_root_takes_no_place_of_others() -> None:
    found = places()
    with ExitStack() as stack:
        had = [stack.enter_context(found.asked(user)).is_had for user in [ROOT] * 12 + [A] * 12 + [B] * 4]
        assert all(had)


def test_a_place_that_is_given_back_is_for_the_first_of_the_user_with_fewest() -> None:
    found, told = places(), list[str]()
    with ExitStack() as stack:
        of_a = [ExitStack() for _ in range(12)]
        for one in of_a:
            one.enter_context(found.asked(A))
        for _ in range(4):
            stack.enter_context(found.asked(B))
        for user, name in ((A, "a1"), (A, "a2"), (C, "c")):
            stack.enter_context(found.asked(user, lambda name=name: told.append(name)))  # type: ignore[misc]
        assert told == []
        for one in of_a[:3]:
            one.close()
        assert told == ["c", "a1", "a2"]
        for one in of_a[3:]:
            one.close()


def test_who_no_longer_waits_gets_no_place() -> None:
    found, told = Places("connections", 1, 1), list[int]()
    with ExitStack() as stack:
        first = stack.enter_context(ExitStack())
        first.enter_context(found.asked(A))
        with found.asked(B, lambda: told.append(B)) as place:
            assert not place.is_had
        first.close()
        assert (told, found.taken) == ([], 0)
