"""Counters seen from each sender, so that a datagram counts once.

Per sender: boot number, highest counter, and one bit for each of the 256 before it (DTLS uses 64; a busy sender
reorders more here). The seal proves no more than that the sender holds the cluster's key, so a header is believed only
as far as it can do no harm. A boot number is *vouched for* by the signed record of its node, which the caller knows.
Vouched datagrams from the address in that record have a window of their own. All others, of whatever boot, have one per
node and address, which cannot displace it: another holder of the key that names another node silences only itself.

Both tables are bounded and drop the entry that was added first. A datagram that then counts twice is harmless: it is
idempotent, and acks match our own numbers.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TypeAlias, TypeVar

from membership.member import Address, NodeId

_WINDOW = 256
_BITS = (1 << _WINDOW) - 1
_UNPROVEN_MAX = 4096
_Window: TypeAlias = tuple[int, int, int]  # boot, highest counter, bits of those before it
_Key = TypeVar("_Key")


class ReplayWindows:
    """See the module."""

    def __init__(self, senders_max: int) -> None:
        self._senders_max = senders_max
        self._proven: OrderedDict[NodeId, _Window] = OrderedDict()
        self._unproven: OrderedDict[tuple[NodeId, Address], _Window] = OrderedDict()

    def is_fresh(self, node: NodeId, boot: int, counter: int, address: Address, home: Address | None) -> bool:
        """True once per datagram, which it notes.

        Args:
            home: the address in the node's record, if that record has this boot; else None.
        """
        proven = self._proven.get(node)
        if home is None and proven is not None and boot <= proven[0]:
            home = address if boot == proven[0] else None  # a life that was vouched for, and is off the roster
            if home is None:
                return False
        if home is not None:
            if proven is None or proven[0] != boot:  # what came before the record, from the same address, counts too
                proven = self._unproven.get((node, home))
            window = _after(proven, boot, counter)
            if window is None:
                return False
            if address == home:
                _keep(self._proven, node, window, self._senders_max)
                return True
        window = _after(self._unproven.get((node, address)), boot, counter)
        if window is None:
            return False
        _keep(self._unproven, (node, address), window, _UNPROVEN_MAX)
        return True

    def __len__(self) -> int:
        return len(self._proven) + len(self._unproven)


def _after(window: _Window | None, boot: int, counter: int) -> _Window | None:
    """The window with this counter noted; None when it was seen, or is too old to tell. Another boot begins one."""
    if window is None or window[0] != boot:
        return boot, counter, 1
    _, top, bits = window
    ahead = counter - top
    if ahead > 0:
        return boot, counter, (bits << ahead | 1) & _BITS if ahead < _WINDOW else 1
    bit = 1 << -ahead if -ahead < _WINDOW else 0
    if bits & bit or not bit:
        return None
    return boot, top, bits | bit


def _keep(table: OrderedDict[_Key, _Window], key: _Key, window: _Window, count_max: int) -> None:
    table[key] = window
    if len(table) > count_max:
        table.popitem(last=False)
