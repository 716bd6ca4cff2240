"""Who may say how far a host is: only that host, for all others and for ever."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gossipd.core.ids import DeploymentId
from gossipd.core.reasons import HostReason
from gossipd.deployment.progress_record import (
    FIELDS_BYTES_MAX,
    RECORD_BYTES,
    HostState,
    Progress,
    ProgressFormatError,
    progress_key,
    state_with,
)
from gossipd.deployment.progress_table import ClusterProgress
from gossipd.deployment.signed_progress import (
    SIGNATURE_BYTES,
    VERSION_MAX,
    Belief,
    ProgressJudge,
    ProgressKey,
    ProgressWriter,
    read_progress,
    sign_progress,
)
from gossipd.identity.keys import SecretKey
from membership import wire
from membership.member import NodeId, node_id

HOST, LIAR = SecretKey(b"h" * 32), SecretKey(b"l" * 32)
NODE, LIAR_NODE = node_id(HOST.public.ed25519), node_id(LIAR.public.ed25519)
ID = progress_key(DeploymentId(bytes(range(32))))
NOW_S = 1_800_000_000
VERSION = NOW_S * 1000
SIGNED, UNSIGNED = ProgressKey(NODE, ID, is_signed=True), ProgressKey(NODE, ID, is_signed=False)
TRUE = Progress(state=HostState.DOWNLOADING, reason=HostReason.SOURCE_AUTH, chunks_verified=7, started_s=NOW_S)
FALSE = Progress(state=HostState.COMPLETE, chunks_verified=256, started_s=NOW_S, elapsed_s=4)


class Cluster:
    """Two hosts on the roster. ``signs``: whether the first one's member record says that it signs."""

    def __init__(self, *, signs: bool = True, began_s: int = NOW_S - 60) -> None:
        self.signs, self.began_s = signs, began_s
        self.table = ClusterProgress()
        self.judge = ProgressJudge(self, self.table)

    def progress_writer(self, node: NodeId) -> ProgressWriter | None:
        known = {NODE: HOST, LIAR_NODE: LIAR}.get(node)
        return None if known is None else ProgressWriter(known.public.ed25519, self.signs, self.began_s)

    def hear(self, key: ProgressKey, version: int, payload: bytes) -> Belief:
        belief = self.judge.judge(key.encode(), version, payload, NOW_S)
        if belief is Belief.YES and (key.is_signed or not self.signs):
            self.table.record(
                key.node, key.deployment, version, read_progress(key, payload), now=1.0,
                is_signed=key.is_signed,
            )  # fmt: skip
        return belief

    def shown(self) -> HostState | None:
        row = self.table.host(NODE, ID)
        return None if row is None else row.progress.state


def told(
    progress: Progress = TRUE, *, version: int = VERSION, by: SecretKey = HOST, key: ProgressKey = SIGNED
) -> bytes:
    return sign_progress(by, key, version, progress)


def test_a_host_is_believed_of_itself() -> None:
    cluster = Cluster()
    assert cluster.hear(SIGNED, VERSION, told()) is Belief.YES
    assert cluster.shown() is HostState.DOWNLOADING


def test_nobody_is_believed_of_another_host() -> None:
    cluster = Cluster()
    cluster.hear(SIGNED, VERSION, told())
    assert cluster.hear(SIGNED, VERSION + 1, told(FALSE, version=VERSION + 1, by=LIAR)) is Belief.NO
    assert cluster.hear(UNSIGNED, VERSION + 1, FALSE.to_bytes()) is Belief.UNKNOWN
    assert cluster.shown() is HostState.DOWNLOADING


def test_an_unsigned_record_is_believed_of_no_host_that_signs() -> None:
    cluster = Cluster()
    assert cluster.hear(UNSIGNED, VERSION, FALSE.to_bytes()) is Belief.UNKNOWN
    assert cluster.shown() is None


def test_an_unsigned_record_is_believed_of_an_older_host() -> None:
    cluster = Cluster(signs=False)
    assert cluster.hear(UNSIGNED, VERSION, FALSE.to_bytes()) is Belief.YES
    assert cluster.shown() is HostState.COMPLETE


def test_an_unsigned_record_is_passed_on_where_a_signed_one_says_the_same() -> None:
    cluster = Cluster()
    cluster.hear(SIGNED, VERSION, told())
    assert cluster.hear(UNSIGNED, VERSION, TRUE.to_bytes()) is Belief.YES
    assert cluster.hear(UNSIGNED, VERSION + 1, TRUE.to_bytes()) is Belief.UNKNOWN


def test_a_signed_record_displaces_a_forged_one_from_the_future() -> None:
    cluster = Cluster(signs=False)  # its new member record has not come yet
    cluster.hear(UNSIGNED, VERSION + 3_000_000, FALSE.to_bytes())
    assert cluster.shown() is HostState.COMPLETE
    cluster.hear(SIGNED, VERSION, told())
    assert cluster.shown() is HostState.DOWNLOADING


def test_an_older_signed_record_displaces_nothing_after_a_restart() -> None:
    cluster = Cluster()
    cluster.hear(SIGNED, VERSION - 1_000, told(version=VERSION - 1_000))
    kept = cluster.table.to_bytes()
    cluster.table = ClusterProgress.from_bytes(kept, now=0.0, wall_s=NOW_S)
    cluster.hear(SIGNED, VERSION - 2_000, told(FALSE, version=VERSION - 2_000))  # as it was recorded once
    assert cluster.shown() is HostState.DOWNLOADING
    cluster.hear(SIGNED, VERSION - 1_000, told(version=VERSION - 1_000))
    row = cluster.table.host(NODE, ID)
    assert row is not None and row.is_signed, "it says again what was kept"
    cluster.hear(SIGNED, VERSION, told(FALSE))
    assert cluster.shown() is HostState.COMPLETE


def test_an_unsigned_record_displaces_no_signed_one() -> None:
    cluster = Cluster(signs=False)
    cluster.hear(SIGNED, VERSION, told())
    assert cluster.hear(UNSIGNED, VERSION + 1, FALSE.to_bytes()) is Belief.UNKNOWN
    assert cluster.shown() is HostState.DOWNLOADING


def test_a_host_that_went_back_to_an_older_gossipd_is_heard() -> None:
    cluster = Cluster()
    cluster.hear(SIGNED, VERSION, told())
    cluster.signs, cluster.began_s = False, NOW_S + 30
    assert cluster.hear(UNSIGNED, VERSION + 60_000, FALSE.to_bytes()) is Belief.YES


def test_of_a_host_that_nobody_knows_nothing_is_believed() -> None:
    stranger = ProgressKey(NodeId(b"s" * 16), ID, is_signed=True)
    assert Cluster().hear(stranger, VERSION, told(key=stranger)) is Belief.UNKNOWN


@pytest.mark.parametrize("version", [VERSION + 3_600_001, 2**62, VERSION_MAX])
@pytest.mark.parametrize("key", [SIGNED, UNSIGNED])
def test_a_version_from_far_in_the_future_is_refused(key: ProgressKey, version: int) -> None:
    payload = told(version=version) if key.is_signed else TRUE.to_bytes()
    for signs in (True, False):
        assert Cluster(signs=signs).hear(key, version, payload) is Belief.NO


@pytest.mark.parametrize("at", [0, 1, 5, 31, 32, 95])
def test_no_byte_of_a_signed_record_can_be_changed(at: int) -> None:
    changed = bytearray(told())
    changed[at] ^= 1
    assert Cluster().hear(SIGNED, VERSION, bytes(changed)) is Belief.NO


def test_a_signature_counts_for_its_host_deployment_and_version_only() -> None:
    cluster = Cluster()
    other = replace(SIGNED, deployment=b"otherone")
    assert cluster.hear(other, VERSION, told()) is Belief.NO
    assert cluster.hear(SIGNED, VERSION + 1, told()) is Belief.NO
    assert cluster.hear(replace(SIGNED, node=LIAR_NODE), VERSION, told()) is Belief.NO


@pytest.mark.parametrize("key", [b"", b"n" * 23, b"n" * 26, NODE + ID + b"\x03", NODE + ID + b"\x02\x02"])
def test_a_key_of_another_form_is_refused(key: bytes) -> None:
    with pytest.raises(ProgressFormatError):
        ProgressKey.decode(key)
    assert Cluster().judge.judge(key, VERSION, told(), NOW_S) is Belief.NO


def test_hosts_of_both_forms_find_a_record_under_its_own_key() -> None:
    assert UNSIGNED.encode() == NODE + ID
    assert ProgressKey.decode(SIGNED.encode()) == SIGNED
    assert ProgressKey.decode(UNSIGNED.encode()) == UNSIGNED
    assert SIGNED.encode() != UNSIGNED.encode(), "else the one would push out the other"


def test_signing_at_most_doubles_the_bytes() -> None:
    plain = len(wire.event(2, NODE, VERSION, UNSIGNED.encode(), TRUE.to_bytes()))
    signed = len(wire.event(2, NODE, VERSION, SIGNED.encode(), told()))
    assert signed <= 2 * plain


@given(st.sampled_from(HostState), st.sampled_from(HostReason), st.sampled_from([b"", b"12345678"]))
def test_every_state_reason_and_subject_survives_the_wire(state: HostState, reason: HostReason, subject: bytes) -> None:
    own = {HostState.REMOVED: HostReason.REMOVED, HostState.PAUSED: HostReason.PAUSED}
    own[HostState.EVICTED] = HostReason.EVICTED
    reason = own.get(state, reason)
    said = replace(TRUE, state=state_with(state, reason), reason=reason, subject=subject)
    assert Progress.from_body(said.to_body()) == said


@given(st.binary(max_size=FIELDS_BYTES_MAX + 40))
def test_any_bytes_are_a_body_or_one_typed_error(body: bytes) -> None:
    try:
        said = Progress.from_body(body)
    except ProgressFormatError as error:
        assert error.code == "E_PROGRESS_FORMAT"
    else:
        assert len(said.to_bytes()) == RECORD_BYTES


def test_fields_of_later_versions_are_skipped() -> None:
    later = TRUE.to_body() + bytes([1, 8]) + b"subject!" + bytes([3, 32]) + bytes(32) + bytes([200, 0])
    assert Progress.from_body(later) == replace(TRUE, subject=b"subject!")


@pytest.mark.parametrize("fields", [b"\x01", b"\x01\x08short", b"\x03\x00\x01\x08subject!", b"\x00\x00", b"\x01\x01x"])
def test_fields_that_are_cut_short_or_not_in_order_are_refused(fields: bytes) -> None:
    with pytest.raises(ProgressFormatError):
        Progress.from_body(TRUE.to_body() + fields)


def test_older_hosts_are_told_the_nearest_reason_they_know() -> None:
    def heard(reason: HostReason) -> HostReason:
        return Progress.from_bytes(replace(TRUE, reason=reason).to_bytes()).reason

    assert heard(HostReason.REFUSED_KEY) is HostReason.REFUSED
    assert heard(HostReason.WAITS_FOR_READER) is HostReason.STORAGE
    assert heard(HostReason.REFILLING) is HostReason.NONE


def test_a_signature_is_what_a_record_ends_with() -> None:
    assert len(told()) == len(TRUE.to_body()) + SIGNATURE_BYTES
