"""Bugs where bytes come in: the bulk path, external storage, the inbox, the audit log."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_TRANSFER = "tests/gossipd/transfer"
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
        "        if pinned.size != seen.size or not same_tag:\n",
        "        if pinned.size != seen.size and not same_tag:\n",
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
        (_SOURCES,),
    ),
    Mutant(
        "the-inbox-follows-links",
        "A symbolic link in the inbox is read.",
        "gossipd/ops/drop_folder.py",
        "    stat.S_IFLNK: ",
        "    -1: ",
        ("tests/gossipd/ops/test_inbox.py",),
    ),
    Mutant(
        "reads-a-half-written-manifest",
        "A file that changed while it was read is judged by what was read.",
        "gossipd/ops/drop_folder.py",
        "            if len(content) != drop.print.size or Print.of(os.fstat(descriptor)) != drop.print:\n",
        "            if not drop.print.size and content:\n",
        ("tests/gossipd/ops/test_inbox.py",),
    ),
    Mutant(
        "the-audit-chain-is-not-linked",
        "Records of one batch all follow the same record.",
        "gossipd/ops/audit_file.py",
        '"prev": head, "seq": seq',
        '"prev": self.head, "seq": seq',
        ("tests/gossipd/ops/test_audit.py",),
    ),
    Mutant(
        "a-changed-audit-record-goes-unseen",
        "A record's own hash is not compared.",
        "gossipd/ops/audit_file.py",
        '    if _sealed({key: value for key, value in record.items() if key != "hash"})[0] != line:\n',
        '    if "hash" not in record:\n',
        ("tests/gossipd/ops/test_audit.py",),
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
