"""The pool's bound holds, buffers are reused, waiters are served in order, and a released view is dead."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from gossipd.runtime.buffer_pool import CLASS_BYTES_MIN, BufferPool, Lease, PoolExhaustedError

KIB = 1024
WAIT_S = 120.0
LOST_S = 10.0  # for who would wait for ever if it were not woken


def run_blocking(act: Callable[[], Lease]) -> tuple[threading.Thread, list[Lease]]:
    got: list[Lease] = []
    thread = threading.Thread(target=lambda: got.append(act()))
    thread.start()
    return thread, got


def await_waiting(pool: BufferPool, count: int) -> None:
    while pool.statistics().waiting < count:
        threading.Event().wait(0.001)


def test_a_lease_has_exactly_the_length_that_was_asked_for() -> None:
    pool = BufferPool(1024 * KIB)
    with pool.acquire(1000) as lease:
        assert len(lease.view) == 1000
        assert not lease.view.readonly
    assert pool.statistics().leased_bytes == 0


def test_a_released_buffer_is_used_again() -> None:
    pool = BufferPool(1024 * KIB)
    with pool.acquire(200 * KIB) as lease:
        lease.view[:4] = b"mark"
    with pool.acquire(200 * KIB) as lease:
        assert bytes(lease.view[:4]) == b"mark"
    assert pool.statistics().allocated_bytes == 256 * KIB


def test_a_view_cannot_be_touched_after_its_release() -> None:
    lease = BufferPool(1024 * KIB).acquire(10)
    view = lease.view
    lease.release()
    with pytest.raises(ValueError, match="released"):
        view[0] = 1


def test_releasing_twice_gives_back_once() -> None:
    pool = BufferPool(1024 * KIB)
    first, second = pool.acquire(10), pool.acquire(10)
    first.release()
    first.release()
    assert pool.statistics().leased_bytes == CLASS_BYTES_MIN
    second.release()


def test_what_is_leased_and_kept_never_passes_the_bound() -> None:
    pool = BufferPool(1024 * KIB)
    for size in (128, 256, 512, 1024, 128, 1024, 256):
        leases = [pool.acquire(size * KIB) for _ in range(1024 // size)]
        assert pool.statistics().allocated_bytes <= 1024 * KIB
        for lease in leases:
            lease.release()
        assert pool.statistics().allocated_bytes <= 1024 * KIB


def test_reservations_count_against_the_same_bound() -> None:
    pool = BufferPool(1024 * KIB)
    pool.acquire(512 * KIB).release()
    with pool.reserve(900 * KIB) as room:
        assert len(room.view) == 0
        assert pool.statistics().allocated_bytes == 900 * KIB
        with pytest.raises(PoolExhaustedError):
            pool.acquire(200 * KIB, timeout_s=0)
    pool.acquire(512 * KIB).release()


def test_a_full_pool_makes_the_next_caller_wait_until_a_release() -> None:
    pool = BufferPool(CLASS_BYTES_MIN)
    held = pool.acquire(1)
    thread, got = run_blocking(lambda: pool.acquire(1, WAIT_S))
    await_waiting(pool, 1)
    held.release()
    thread.join(WAIT_S)
    assert len(got) == 1
    assert pool.statistics().waited_s > 0
    got[0].release()


def test_waiting_ends_with_an_error_at_the_timeout() -> None:
    pool = BufferPool(CLASS_BYTES_MIN)
    with pool.acquire(1), pytest.raises(PoolExhaustedError) as caught:
        pool.acquire(1, timeout_s=0.01)
    assert caught.value.code == "E_POOL"
    pool.acquire(1, timeout_s=0).release()


def test_a_waiter_that_gave_up_leaves_when_woken() -> None:
    pool = BufferPool(CLASS_BYTES_MIN)
    gave_up = threading.Event()
    ended: list[str] = []

    def wait() -> None:
        with pytest.raises(PoolExhaustedError):
            pool.acquire(1, gave_up=gave_up.is_set)
        ended.append("gave up")

    with pool.acquire(1):
        thread = threading.Thread(target=wait)
        thread.start()
        await_waiting(pool, 1)
        gave_up.set()
        pool.wake()
        thread.join(WAIT_S)
        assert ended == ["gave up"]


def test_a_large_request_is_not_starved_by_small_ones() -> None:
    pool = BufferPool(4 * CLASS_BYTES_MIN)
    held = [pool.acquire(1) for _ in range(4)]
    order: list[str] = []

    def take(name: str, nbytes: int) -> None:
        with pool.acquire(nbytes, WAIT_S):
            order.append(name)

    large = threading.Thread(target=take, args=("large", 4 * CLASS_BYTES_MIN))
    large.start()
    await_waiting(pool, 1)
    small = threading.Thread(target=take, args=("small", 1))
    small.start()
    await_waiting(pool, 2)
    for lease in held:
        lease.release()
    large.join(WAIT_S)
    small.join(WAIT_S)
    assert order == ["large", "small"]


def test_memory_that_comes_back_wakes_only_who_gets_it() -> None:
    pool = BufferPool(CLASS_BYTES_MIN)
    held = pool.acquire(1)
    looks: list[int] = []
    got: list[Lease] = []

    def wait(number: int) -> None:
        def gave_up() -> bool:
            looks.append(number)
            return False

        got.append(pool.acquire(1, gave_up=gave_up))

    threads = [threading.Thread(target=wait, args=(number,)) for number in range(3)]
    for number, thread in enumerate(threads):
        thread.start()
        await_waiting(pool, number + 1)
    held.release()
    for turn in range(1, 4):
        while len(got) < turn:
            threading.Event().wait(0.001)
        assert pool.statistics().waiting == 3 - turn
        got[-1].release()
    for thread in threads:
        thread.join(WAIT_S)
    assert looks == [0, 1, 2], "nobody looked for nothing"


def test_who_gives_up_lets_a_smaller_request_have_the_room() -> None:
    pool = BufferPool(2 * CLASS_BYTES_MIN)
    held = pool.acquire(1)
    gave_up = threading.Event()

    def leave() -> None:
        with pytest.raises(PoolExhaustedError):
            pool.acquire(2 * CLASS_BYTES_MIN, gave_up=gave_up.is_set)

    leaving = threading.Thread(target=leave)
    leaving.start()
    await_waiting(pool, 1)
    staying, got = run_blocking(lambda: pool.acquire(1, 2 * LOST_S))
    await_waiting(pool, 2)
    gave_up.set()
    with pool._lock:  # only the first in line
        pool._queue[0].changed.notify()
    for thread in (leaving, staying):
        thread.join(LOST_S)
    assert len(got) == 1
    held.release()


def test_more_than_the_pool_can_never_be_asked_for() -> None:
    with pytest.raises(AssertionError):
        BufferPool(CLASS_BYTES_MIN).acquire(CLASS_BYTES_MIN + 1)


def test_many_threads_never_pass_the_bound() -> None:
    pool = BufferPool(8 * CLASS_BYTES_MIN)

    seen = set[int]()

    def use(size: int) -> None:
        for _ in range(200):
            with pool.acquire(size):
                seen.add(pool.statistics().leased_bytes)

    threads = [threading.Thread(target=use, args=(size * CLASS_BYTES_MIN,)) for size in (1, 1, 2, 2, 4, 8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert pool.statistics().leased_bytes == 0
    assert max(seen) <= 8 * CLASS_BYTES_MIN


def test_the_heap_is_trimmed_before_new_buffers_come_on_top_of_what_it_keeps() -> None:
    trims: list[int] = []
    pool = BufferPool(1024 * KIB, trim_heap=lambda: trims.append(1))
    pool.reserve(1024 * KIB).release()
    small = pool.acquire(256 * KIB)
    assert not trims  # 256 and 1,024 KiB are within a quarter of the bound
    second = pool.acquire(256 * KIB)
    assert len(trims) == 1
    third = pool.acquire(512 * KIB)
    assert len(trims) == 1  # nothing was reserved since
    for lease in (small, second, third):
        lease.release()


def test_what_is_reserved_now_is_not_what_the_heap_keeps() -> None:
    trims: list[int] = []
    pool = BufferPool(1024 * KIB, trim_heap=lambda: trims.append(1))
    with pool.reserve(768 * KIB), pool.acquire(256 * KIB):
        assert not trims


def test_a_used_buffer_costs_no_trim() -> None:
    trims: list[int] = []
    pool = BufferPool(1024 * KIB, trim_heap=lambda: trims.append(1))
    pool.acquire(256 * KIB).release()
    pool.reserve(768 * KIB).release()
    pool.acquire(256 * KIB).release()
    assert not trims


def test_trimming_the_real_heap_works_or_does_nothing() -> None:
    pool = BufferPool(1024 * KIB)
    pool.reserve(1024 * KIB).release()
    pool.acquire(1024 * KIB).release()
    assert pool.statistics().leased_bytes == 0


def test_threads_share_two_arenas_of_the_heap() -> None:
    program = """
import ctypes, threading
from gossipd.runtime.buffer_pool import limit_arenas
limit_arenas()
barrier = threading.Barrier(8)
def allocate():
    block = bytes(100_000)
    barrier.wait()
threads = [threading.Thread(target=allocate) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
file = ctypes.c_void_p(libc.fopen(b"/dev/stdout", b"w"))
libc.malloc_info(0, file)
libc.fflush(file)
"""
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert 1 <= said.count("<heap nr=") <= 2


def test_holders_that_need_more_get_it_before_those_who_wait() -> None:
    pool = BufferPool(1024 * KIB)
    holders = [pool.acquire(256 * KIB, leaves_room=True) for _ in range(3)]
    thread, got = run_blocking(lambda: pool.acquire(256 * KIB, leaves_room=True))
    await_waiting(pool, 1)
    with pool.reserve(200 * KIB):
        assert not got, "a quarter stays for what holders need"
    full = pool.acquire(128 * KIB, timeout_s=0.0) if not pool.statistics().waiting else None
    assert full is None
    holders.pop().release()
    thread.join(WAIT_S)
    assert got
    for lease in (*holders, *got):
        lease.release()
    assert pool.statistics().leased_bytes == 0


def test_a_reservation_that_waits_is_the_next_one() -> None:
    pool = BufferPool(1024 * KIB)
    first, second = pool.acquire(512 * KIB), pool.acquire(512 * KIB)
    large, got_large = run_blocking(lambda: pool.acquire(1024 * KIB))
    await_waiting(pool, 1)
    room, got_room = run_blocking(lambda: pool.reserve(100 * KIB))
    await_waiting(pool, 2)
    first.release()
    room.join(LOST_S)
    is_next = bool(got_room)
    second.release()
    waiting = [(room, got_room), (large, got_large)]
    for thread, got in waiting if is_next else reversed(waiting):
        thread.join(WAIT_S)
        got[0].release()
    assert is_next


def test_what_is_reserved_already_is_of_the_quarter_that_stays() -> None:
    pool = BufferPool(1024 * KIB)
    with pool.reserve(256 * KIB), pool.acquire(512 * KIB, timeout_s=0.0, leaves_room=True):
        pool.acquire(256 * KIB, timeout_s=0.0, leaves_room=True).release()
