"""How often this node speaks to an address from which nobody has answered.

What lives here: the budget of each such address. What does not: who has answered (``roster``), and what is sent.

A member's record may name any address, also that of a third party. So an address gets a few datagrams, and then one a
minute, until a member has spoken from there. Probes come first: other datagrams leave half of the budget to them.
"""

from __future__ import annotations

from collections import OrderedDict

from membership.member import Address

_BURST = 16.0
_PROBES_ONLY = 8.0  # of the burst
_PER_S = 1 / 60
_ADDRESSES_MAX = 32768


class Reachability:
    """One budget per address; bounded, the address spoken to longest ago goes first."""

    def __init__(self) -> None:
        self._budgets: OrderedDict[Address, tuple[float, float]] = OrderedDict()

    def may_send(self, address: Address, now: float, *, is_probe: bool) -> bool:
        """Whether one more datagram may go to an address that has never answered; pays for it."""
        left, at = self._budgets.get(address, (_BURST, now))
        left = min(_BURST, left + (now - at) * _PER_S)
        if left < 1.0 + (0.0 if is_probe else _PROBES_ONLY):
            return False
        self._budgets[address] = (left - 1.0, now)
        self._budgets.move_to_end(address)
        if len(self._budgets) > _ADDRESSES_MAX:
            self._budgets.popitem(last=False)
        return True
