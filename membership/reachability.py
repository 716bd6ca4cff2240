"""How often this node speaks to an address from which nobody has answered.

What lives here: the budget of each such address, and how often it was asked. What does not: who has answered
(``roster``), and what is sent.

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
IN_VAIN = 3  # pings: with a tenth lost each way, one member of 150 that lives answers none of so many


class Reachability:
    """One budget per address; bounded, the address spoken to longest ago goes first."""

    def __init__(self) -> None:
        self._budgets: OrderedDict[Address, tuple[float, float, int]] = OrderedDict()

    def may_send(self, address: Address, now: float, *, is_probe: bool) -> bool:
        """Whether one more datagram may go to an address that has never answered; pays for it."""
        left, at, asked = self._budgets.get(address, (_BURST, now, 0))
        left = min(_BURST, left + (now - at) * _PER_S)
        if left < 1.0 + (0.0 if is_probe else _PROBES_ONLY):
            return False
        self._budgets[address] = (left - 1.0, now, asked)
        self._budgets.move_to_end(address)
        if len(self._budgets) > _ADDRESSES_MAX:
            self._budgets.popitem(last=False)
        return True

    def asked(self, address: Address) -> None:
        """What was just sent there wants an answer."""
        if (budget := self._budgets.get(address)) is not None:
            self._budgets[address] = (*budget[:2], budget[2] + 1)

    def is_asked_in_vain(self, address: Address) -> bool:
        """Whether so many wanted an answer that a host there would have given one."""
        return address in self._budgets and self._budgets[address][2] >= IN_VAIN
