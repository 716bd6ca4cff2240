"""The membership port of one host: a real brain with real seals, the judgement of statements, the deployment brain.

Real: ``Swim``, ``GossipRules`` with all its judges, the deployment brain with its store of statements, the table of
progress, the witness of audit heads. Made up: the host's disk and its peers' (``scripted_host``). Four members are
known; the attacker has the keys of one of them. All sign their progress, as their records say.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from random import Random
from struct import Struct
from typing import Any, cast

from gossipd.audit.witness import AuditHead, Witness
from gossipd.daemon.audit_gossip import HeadRules
from gossipd.daemon.gossip_rules import GossipRules
from gossipd.daemon.identity_watch import IdentityWatch
from gossipd.deployment import commands
from gossipd.deployment.events import ProgressHeard, StatementHeard
from gossipd.deployment.progress_record import HostState, Progress, ProgressFormatError, progress_key
from gossipd.deployment.progress_table import ClusterProgress
from gossipd.deployment.signed_progress import ProgressKey, ProgressWriter, read_progress, sign_progress
from gossipd.deployment.statement_file import register_from_bytes, register_to_bytes
from gossipd.deployment.statement_store import StatementStore
from gossipd.identity.cancel_rights import DEFAULT_ROLES
from gossipd.identity.keys import SecretKey
from gossipd.swarm.capabilities import NodeCapabilities
from membership import wire
from membership.credentials import Credentials
from membership.errors import SealError
from membership.events import MemberChanged, MemberUp, PayloadHeard, PayloadKind, SendDatagram
from membership.member import HANDLE_BYTES, NodeId, Record, node_id
from membership.record import encode_signed, sign_record
from membership.seal import HEADER_BYTES, OVERHEAD_BYTES, DatagramSeal, KeyRing
from membership.settings import SwimSettings
from membership.swim import Swim
from membership.tombstones import Tombstone
from tests.attacks.stage import FOR_OTHERS, RETIRED, RETIRED_BOOT, Stage
from tests.gossipd.deployment.scripted_host import KEY, ONE, OWN, WALL_S, ScriptedHost, ScriptedRoster, said
from tests.gossipd.manifest.making import PUBLISHER, manifest

RING = KeyRing(b"attacked cluster", (b"K" * 32,))
LIAR, VICTIM, OTHER = (SecretKey(name.ljust(32, b".")) for name in (b"liar", b"victim", b"other"))
_NEWCOMER = SecretKey(b"newcomer".ljust(32, b"."))
_BOOT = int(WALL_S) - 1_000
_RECORDED_MS = int(WALL_S - 300) * 1000
_WELCOME_BYTES = OVERHEAD_BYTES + wire.WELCOME_HEAD.size + wire.ITEM_HEAD_BYTES  # beside the record
_SENDER, _SENDER_AT = Struct(">16sQ"), 6  # in a datagram's head
_HONEST = ("node-1", "victim", "other", "retired")


@cache
def _first_stage() -> Stage:
    return GossipSurface().stage


def any_stage(**fields: Any) -> Stage:
    """For parts that need no more than names and keys."""
    return replace(_first_stage(), **fields)


_PING = wire.PROBE_HEAD.pack(wire.PING, 9, 0, 0, 0)


def record_of(secret: SecretKey, name: str, number: int) -> Record:
    record = Record(
        secret.public.ed25519, _BOOT, 1, name, f"rack-{number}", "zone", f"10.0.0.{number}", 7946, 7947,
        secret.public.curve25519, 125_000_000, "1.0.0", NodeCapabilities(signs_progress=True).to_bytes(),
    )  # fmt: skip
    return sign_record(record, RING.cluster_id, secret.sign)[0]


class _Judges:
    """What the judges ask for beside the brain's own roster: members' keys, and the time."""

    own = OWN

    def __init__(self, roster: ScriptedRoster, records: Iterable[Record]) -> None:
        self._roster = roster
        self._records = {one.node: one for one in records}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._roster, name)

    def record(self, node: NodeId) -> Record | None:
        """As MemberDirectory."""
        return self._records.get(node)

    def progress_writer(self, node: NodeId) -> ProgressWriter | None:
        """See WriterPort."""
        one = self._records.get(node)
        return None if one is None else ProgressWriter(one.public_key, signs=True, began_s=one.boot)

    def wall_s(self) -> float:
        """See Clocks."""
        return WALL_S

    def monotonic_s(self) -> float:
        """See Clocks."""
        return 1_000.0


class GossipSurface:
    """See Surface."""

    payload_bytes = 0

    def __init__(self) -> None:
        self._records = {
            name: record_of(secret, name, number)
            for number, (name, secret) in enumerate(
                (("node-1", KEY), ("victim", VICTIM), ("other", OTHER), ("liar", LIAR))
            )
        }
        self._seals = {name: DatagramSeal(RING, one.node, one.boot) for name, one in self._records.items()}
        self._codes: Counter[str] = Counter()
        self._now = 1_000.0
        self._sent: list[bytes] = []
        self._amplified = 0
        self._progress, self._witness, self._watch = self._kept_progress(), Witness(), IdentityWatch(OWN)
        self._host = ScriptedHost(published=[ONE], progress=self._progress)
        self._host.roster.signers = {one.public_key for one in self._records.values()}
        self._host.roster.roles = DEFAULT_ROLES
        self._judges = _Judges(self._host.roster, self._records.values())
        self._swim = self._life(self._host.statements, [])
        retired = node_id(RETIRED.public.ed25519)
        self._swim.recall([Tombstone(retired[:HANDLE_BYTES], RETIRED_BOOT, is_told=False)], self._now)
        for name in ("victim", "other", "liar"):
            one = self._records[name]
            self._hear(_joining(_secret(name), one, self._seals[name]), one)
        for name in ("victim", "other"):  # they are there
            heard = self._seals[name].seal(bytes((wire.GOSSIP,)), self._records["node-1"].node)
            self._hear(heard, self._records[name])
        self._host.drop(ONE)
        self._pass_on()
        self._deployed = self._host.statements.statement(ONE.id)
        assert self._deployed is not None

    def _life(self, statements: StatementStore, roster: list[Record]) -> Swim:
        judges = cast(Any, self._judges)
        heads = HeadRules(judges, self._witness, wall_clock=self._judges.wall_s)
        rules = GossipRules(statements, judges, self._progress, heads, self, clocks=self._judges)
        return Swim(
            SwimSettings(statement_count_max=64, member_count_max=64), self._records["node-1"],
            Credentials(KEY.sign, RING), rng=Random(1), now=self._now, roster=roster, rules=rules,
        )  # fmt: skip

    def _kept_progress(self) -> ClusterProgress:
        """As a daemon has it that was started again: the victim has failed, and was complete before that."""
        kept = ClusterProgress()
        kept.record(
            self._records["victim"].node, progress_key(FOR_OTHERS), _RECORDED_MS + 1, Progress(state=HostState.FAILED),
            now=0.0,
        )  # fmt: skip
        return ClusterProgress.from_bytes(kept.to_bytes(), now=self._now, wall_s=WALL_S)

    def _recorded(self) -> bytes:
        key = ProgressKey(self._records["victim"].node, progress_key(FOR_OTHERS), is_signed=True)
        told = sign_progress(VICTIM, key, _RECORDED_MS, Progress(state=HostState.COMPLETE))
        return wire.event(2, key.node, _RECORDED_MS, key.encode(), told)

    @property
    def stage(self) -> Stage:
        """See Surface."""
        assert self._deployed is not None
        return Stage(
            RING, self._records["node-1"], self._records["victim"], self._records["other"], self._records["liar"], LIAR,
            PUBLISHER, self._seals["liar"].seal, ONE.id, self._deployed, WALL_S, recorded=self._recorded(),
        )  # fmt: skip

    def deliver(self, made: list[bytes | float]) -> None:
        """See Surface. All come from the liar's address. A number is a pause, in which no timer runs: the host's own
        probes would find that nobody else is there."""
        for datagram in made:
            if isinstance(datagram, float):
                self._look()
                self._now += datagram
                continue
            self._hear(datagram, self._records["liar"])
            self._weigh(datagram)
        self._look()

    def _look(self) -> None:
        records = {one.record.node: one.record for one in self._swim.members()}
        self._codes.update(one.code for one in self._watch.look(records, set(records), self._now, heard=set(records)))

    def _weigh(self, datagram: bytes) -> None:
        """What was sent back in answer to a datagram in another's name. A short JOIN gets one record in return."""
        claimed, boot = _SENDER.unpack_from(datagram.ljust(HEADER_BYTES, b"\0"), _SENDER_AT)
        if claimed == self._records["liar"].node or not self._sent:
            return
        size = 0
        for answer in self._sent:
            with contextlib.suppress(SealError):
                kind = DatagramSeal(RING, NodeId(claimed), boot).open(answer).body[:1]
                # A round of gossip is no answer: it keeps to its bytes a second, whatever arrives.
                size += len(answer) if kind != bytes((wire.GOSSIP,)) else 0
        own = len(encode_signed(self._records["node-1"])) + _WELCOME_BYTES
        self._codes["answers_weighed"] += size > 0
        self._amplified += size > max(len(datagram), own)

    def seen(self) -> Counter[str]:
        """See Surface."""
        refused = [one.fields.get("code") for one in self._host.all_of(commands.RecordAudit)]
        unproven = {"unproven_kept": len(self._host.brain._context.unproven)}
        return self._codes + Counter(self._swim.statistics()) + Counter(str(one) for one in refused) + Counter(unproven)

    def state(self) -> dict[str, Any]:
        """See Surface. What the liar says of itself is not part of it, nor are members that it makes up."""
        rows = [one for one in self._swim.members() if one.record.name in _HONEST]
        events = self._swim._event_store._statements
        return {
            "amplified": self._amplified,
            "members": sorted((one.record.name, repr(one.record), one.state.value, one.incarnation) for one in rows),
            "event": events[bytes(ONE.id)].item if ONE.id in events else None,
            "deployments": self._deployments(),
            "statements": register_to_bytes(self._host.statements),
            "progress": self._rows(self._progress),
            "witness": self._witnessed(self._witness),
        }

    def state_after_restart(self) -> dict[str, Any]:
        """See Surface. What a daemon keeps: the roster, the statements, the table of progress."""
        kept = register_from_bytes(register_to_bytes(self._host.statements))
        rows = ClusterProgress.from_bytes(self._progress.to_bytes(), now=self._now, wall_s=WALL_S)
        life = self._life(kept, self._swim.roster_records())
        names = {one.record.name for one in life.members()}
        lost = {"victim", "other"} - names
        after = {"statements": register_to_bytes(kept), "progress": self._rows(rows)}
        after["witness"] = self._witnessed(Witness.from_bytes(self._witness.to_bytes()))
        return after | ({"members": sorted(lost)} if lost else {})

    def works(self) -> str:
        """See Surface. Members are heard, a statement of one of them is acted on, a manifest is taken, a host comes."""
        for name in ("victim", "other"):
            before = self._swim.statistics()["datagrams_in"]
            self._hear(self._seals[name].seal(_PING, self._records["node-1"].node), self._records[name])
            if self._swim.statistics()["datagrams_in"] != before + 1:
                return f"{name} is not heard any more"
        third, fourth = manifest(version=3), manifest(version=4)
        is_hidden = self._host.brain._context.unproven.of(third.id)  # of two words that say the same the first is heard
        self._host.peers_have[third.id] = third.envelope
        statement = said(third.id, secret=VICTIM)
        data = wire.event(1, self._records["victim"].node, statement.rank, third.id, statement.encode())
        self._hear(
            self._seals["victim"].seal(bytes((wire.GOSSIP,)) + data, self._records["node-1"].node),
            self._records["victim"],
        )
        self._host.roster.peers[self._records["victim"].node] = "rack-1"
        for _ in range(8 if is_hidden else 0):
            self._host.tell(ProgressHeard(self._records["victim"].node, progress_key(third.id)))
            self._host.wait(1.0)
        found = self._host.brain.lifecycle.get(third.id)
        if found is None or found.state is not HostState.DOWNLOADING:
            return "an honest statement is not acted on any more"
        error = self._host.drop(fourth).error
        if error is not None:
            return f"a manifest is refused: {error}"
        self._hear(_joining(_NEWCOMER, newcomer := record_of(_NEWCOMER, "newcomer", 99)), newcomer)
        return "" if self._swim.member(newcomer.node) is not None else "a newcomer is not let in"

    def close(self) -> None:
        """See Surface."""

    # ---- the host ----------------------------------------------------------------------------------

    def _deployments(self) -> list[tuple[str, str, int]]:
        rows = [one for one in self._host.brain.lifecycle if one.manifest is not None]
        return sorted((one.label, one.state.value, one.statement.rank) for one in rows)

    def _rows(self, table: ClusterProgress) -> list[tuple[NodeId, bytes, bytes]]:
        liar = self._records["liar"].node
        rows = table._rows.items()
        return sorted((node, key, row.record) for key, hosts in rows for node, row in hosts.items() if node != liar)

    def _witnessed(self, witness: Witness) -> list[object]:
        return [witness.cuts(int(WALL_S * 1000)), *(witness.heads_of(name) for name in ("node-1", "victim", "other"))]

    def word_refused(self, signer: bytes | None, code: str) -> None:
        """See Refusals."""
        self._codes[code] += 1

    def _hear(self, datagram: bytes, sender: Record) -> None:
        self._swim.handle_datagram(datagram, sender.address, self._now)
        self._sent = []
        for output in self._swim.drain():
            if isinstance(output, SendDatagram):
                self._sent.append(output.datagram)
            elif isinstance(output, PayloadHeard):
                self._take(output)
            elif isinstance(output, MemberUp | MemberChanged):
                self._watch.heard(output.member.record, self._now)

    def _take(self, event: PayloadHeard) -> None:
        if event.kind is PayloadKind.STATEMENT:
            self._host.tell(StatementHeard(event.payload, event.key, event.forwarder))
            return
        if event.kind is PayloadKind.AUDIT:
            record = self._judges.record(NodeId(event.key))
            head = None if record is None else AuditHead.opened(event.payload, record.public_key)
            if record is not None and head is not None:
                self._witness.heard(event.key, record.name, head)
            return
        try:
            key = ProgressKey.decode(event.key)
            progress = read_progress(key, event.payload)
        except ProgressFormatError as error:
            self._codes[error.code] += 1
            return
        self._codes[f"reason {progress.reason.value}"] += 1
        if key.node != self._records["node-1"].node:  # as the daemon does
            is_news = self._progress.record(
                key.node, key.deployment, event.version, progress, now=self._now, is_signed=key.is_signed
            )
            self._codes["progress_older"] += not is_news

    def _pass_on(self) -> None:
        for told in self._host.all_of(commands.TellStatement):
            one = told.statement
            self._swim.publish(PayloadKind.STATEMENT, one.deployment, one.rank, one.encode(), self._now)
        self._swim.drain()


def _joining(secret: SecretKey, record: Record, seal: DatagramSeal | None = None) -> bytes:
    signed = sign_record(record, RING.cluster_id, secret.sign)[1]
    body = bytes((wire.JOIN, 0)) + wire.item(wire.RECORD, signed)
    return (seal or DatagramSeal(RING, record.node, record.boot)).seal(body, None)


def _secret(name: str) -> SecretKey:
    return {"victim": VICTIM, "other": OTHER, "liar": LIAR}[name]
