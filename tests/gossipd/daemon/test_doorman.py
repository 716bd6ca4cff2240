"""What the doorman writes down of strangers."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from gossipd.daemon.doorman import Doorman
from gossipd.ops.audit import SUBJECT_BURST, AuditLog
from gossipd.ops.audit_file import verify_audit


@pytest.mark.parametrize("form", ["10.0.0.{host}", "tcp://10.0.0.{host}:{port}", "tcp://[fe80::{host}]:{port}"])
async def test_b29_a_stranger_that_knocks_for_ever_is_written_down_a_few_times(
    tmp_path: Path, autojump_clock: MockClock, form: str
) -> None:
    audit = AuditLog(tmp_path / "audit.jsonl", wall=lambda: 1_790_000_000.0)
    doorman = Doorman(cluster=cast(Any, None), tokens=None, clients=tuple, post=lambda event: None, audit=audit.record)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(audit.run)
        for port in range(1024, 6024):
            doorman.on_refused("handshake", form.format(host=7, port=port))
        doorman.on_refused("handshake", form.format(host=8, port=9))
        await trio.sleep(1.0)
        nursery.cancel_scope.cancel()
    assert verify_audit(tmp_path / "audit.jsonl").problem is None
    text = (tmp_path / "audit.jsonl").read_text()
    assert text.count('"stranger refused"') == SUBJECT_BURST + 1
