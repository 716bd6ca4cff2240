"""Bugs where bytes come in, and of the daemon behind: bulk path, external storage, inbox, audit log, limits."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_TRANSFER = "tests/gossipd/transfer"
_INBOX = "tests/gossipd/ops/test_inbox.py"
_AUDIT = "tests/gossipd/ops/test_audit.py"
_DAEMON = "tests/gossipd/daemon"
_SOURCES = "tests/gossipd/sources/test_reader.py"

MUTANTS = (
    Mutant(
        "takes-another-chunk-than-it-asked-for",
        "The index in a peer's reply is not compared with the one that was asked for.",
        "gossipd/transfer/client.py",
        "        if reply.chunk != request.chunk or reply.length != length:\n",
        "        if reply.length != length:\n",
        (f"{_TRANSFER}/test_hostile_servers.py",),
    ),
    Mutant(
        "serves-strangers",
        "Whoever has a connection is served, member or not.",
        "gossipd/transfer/server.py",
        "        if not self._is_member(node):\n",
        "        if not node:\n",
        (f"{_TRANSFER}/test_server_and_client.py", f"{_TRANSFER}/test_hostile_clients.py"),
    ),
    Mutant(
        "a-token-opens-any-number-of-connections",
        "A one-time token is not used up.",
        "gossipd/transfer/tokens.py",
        "            self._drop(_mark(token))\n            return found[0]\n",
        "            return found[0]\n",
        (f"{_TRANSFER}/test_tokens.py",),
    ),
    Mutant(
        "a-drip-is-progress",
        "A transfer that moves a byte now and then is never cut.",
        "gossipd/transfer/watchdog.py",
        "            if watch.moved - watch.window_moved < window_s * self._settings.rate_min:\n",
        "            if watch.moved == watch.window_moved:\n",
        (f"{_TRANSFER}/test_watchdog.py",),
    ),
    Mutant(
        "mixes-versions-of-an-object",
        "An object that has changed since it was first seen is read on.",
        "gossipd/sources/versions.py",
        "        if pinned.size != seen.size or not _may_be_same(pinned, seen):\n",
        "        if pinned.size != seen.size and not _may_be_same(pinned, seen):\n",
        (_SOURCES,),
    ),
    Mutant(
        "takes-a-page-for-the-range",
        "A 200 in answer to a range request is taken for the range.",
        "gossipd/sources/touch.py",
        "    if (first, last) != (start, start + length - 1):\n",
        "    if (first, last) == (0, 0):\n",
        (_SOURCES,),
    ),
    Mutant(
        "asks-a-failing-source-without-a-budget",
        "Repeated requests are not counted.",
        "gossipd/sources/pace.py",
        "        if self._budget < 1.0:\n            return False\n",
        "",
        ("tests/gossipd/sources/test_pace.py",),
    ),
    Mutant(
        "connects-to-any-resolved-address",
        "What a source's name resolves to is not checked.",
        "gossipd/sources/desk.py",
        "            self._policy.check_addresses(source, addresses)\n",
        "            pass\n",
        (f"{_SOURCES}::test_a_name_that_resolves_to_a_forbidden_address_is_never_connected_to",),
    ),
    Mutant(
        "the-inbox-follows-links",
        "A link put in place of a file that was listed is followed.",
        "gossipd/ops/drop_folder.py",
        "os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK",
        "os.O_RDONLY | os.O_NONBLOCK",
        (f"{_INBOX}::test_a_link_put_in_place_of_a_listed_file_is_not_followed",),
    ),
    Mutant(
        "reads-a-half-written-manifest",
        "A file that changed while it was read is judged by what was read.",
        "gossipd/ops/drop_folder.py",
        "            if len(content) != drop.print.size or Print.of(os.fstat(descriptor)) != drop.print:\n",
        "            if not drop.print.size and content:\n",
        (f"{_INBOX}::test_a_file_changed_in_place_while_it_is_read_is_read_later",),
    ),
    Mutant(
        "the-audit-chain-is-not-linked",
        "Records of one batch all follow the same record.",
        "gossipd/ops/audit_file.py",
        '"prev": head, "seq": seq',
        '"prev": self.head, "seq": seq',
        (f"{_AUDIT}::test_records_of_one_batch_follow_one_another_as_those_of_several_do",),
    ),
    Mutant(
        "a-changed-audit-record-goes-unseen",
        "A record's own hash is not compared.",
        "gossipd/ops/audit_file.py",
        '    if _sealed({key: value for key, value in record.items() if key != "hash"})[0] != line:\n',
        '    if "hash" not in record:\n',
        (f"{_AUDIT}::test_no_byte_can_be_changed_unseen",),
    ),
    Mutant(
        "blames-the-sender-for-our-disk",
        "A chunk that our own disk refused is its sender's fault.",
        "gossipd/daemon/performer.py",
        "        except StoreWriteError:\n            return FailReason.DISK\n",
        "        except StoreWriteError:\n            return FailReason.CORRUPT\n",
        (f"{_DAEMON}/test_performer.py",),
    ),
    Mutant(
        "reads-back-whatever-is-complained-about",
        "There is no bound on the chunks that complaints make us read back.",
        "gossipd/daemon/performer.py",
        "            if (deployment, chunk) in self._rechecks or len(self._rechecks) >= RECHECKS_MAX:\n",
        "            if (deployment, chunk) in self._rechecks:\n",
        (f"{_DAEMON}/test_performer.py",),
    ),
    Mutant(
        "takes-on-any-number-of-deployments",
        "A manifest is accepted however many are under way.",
        "gossipd/daemon/deployment.py",
        "    if wanted not in live and len(live) >= LIVE_MAX:\n",
        "    if wanted not in live and len(live) < 0:\n",
        (f"{_DAEMON}/test_spread.py",),
    ),
    Mutant(
        "keeps-models-in-memory",
        "Where models are kept is not looked at.",
        "gossipd/config/places.py",
        "    if config.store.any_file_system:\n",
        "    if config.file:\n",
        ("tests/gossipd/test_places.py",),
    ),
    Mutant(
        "an-alarm-is-in-status-only",
        "What an operator must act on is no event of the audit log.",
        "gossipd/daemon/view.py",
        "        self.told(code, sentence)\n",
        "",
        (f"{_DAEMON}/test_alarms.py",),
    ),
    Mutant(
        "a-limit-that-does-not-bite",
        "Callers of a throttle do not wait.",
        "gossipd/throttle.py",
        "            while not self._closed and self._rate is not None and self._paid < mark - ROUNDING_BYTES:\n",
        "            while not self._closed and self._rate is None:\n",
        ("tests/gossipd/test_throttle.py",),
    ),
)
