"""How a transfer can end without its bytes; each class carries the FailReason for the planner.

What lives here: the errors of this package. What does not: reactions (the planner strikes, waits or re-plans).
"""

from __future__ import annotations

from typing import ClassVar

from gossipd.core.errors import ExitCode, GossipdError, LocalError
from gossipd.core.events import FailReason


class TransferError(GossipdError):
    """Base of the fetch errors. Fault: see the subclass. State: nothing was stored."""

    reason: ClassVar[FailReason] = FailReason.GONE


class PeerBusyError(TransferError):
    """The peer has no free upload slot. Fault: nobody. Retry: after ``retry_after_s``, or elsewhere at once."""

    code = "E_BUSY"
    reason = FailReason.BUSY

    def __init__(self, message: str, *, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class PeerNotHoldingError(TransferError):
    """The peer does not hold the chunk (any more). Fault: nobody. Retry: elsewhere."""

    code = "E_NOT_HELD"
    reason = FailReason.NOT_HELD


class RelayEndedError(PeerNotHoldingError):
    """The chunk did not arrive at the peer that relayed it. Fault: unknown. Retry: elsewhere."""

    code = "E_RELAY_ENDED"


class PeerGoneError(TransferError):
    """Refused, reset, closed or unreachable. Fault: the peer or the network. Retry: elsewhere; here later."""

    code = "E_GONE"
    reason = FailReason.GONE


class PeerSlowError(TransferError):
    """No progress, below the least rate, or not done in time. Fault: the peer. Retry: elsewhere."""

    code = "E_SLOW"
    reason = FailReason.SLOW


class PeerRefusedError(TransferError):
    """The peer rejects us or does not know the deployment; ``code`` says which. Retry: later."""

    code = "E_REFUSED"
    reason = FailReason.REFUSED


class OtherLengthError(PeerRefusedError):
    """What the peer has is of another size than was asked for: ``length``, 0 when an older gossipd does not tell.
    Fault: who told the size, or nobody: an envelope with more signatures is larger. Retry: with that size."""

    code = "E_LENGTH"

    def __init__(self, message: str, *, length: int) -> None:
        super().__init__(message)
        self.length = length


class PeerProtocolError(TransferError):
    """The peer broke the protocol: wrong length, wrong chunk, garbage. Fault: the peer, a strike. Retry: elsewhere."""

    code = "E_BULK_PROTOCOL"
    reason = FailReason.CORRUPT


class FetchCancelledError(TransferError):
    """We stopped it, are closing, or had no buffer. Fault: this host. Retry: when the chunk is wanted again."""

    code = "E_CANCELLED"
    reason = FailReason.CANCELLED


class NoHandleError(FetchCancelledError):
    """This host has no descriptor for one more connection. Fault: this host. Retry: later."""

    code = "E_HANDLES"


class SecurityCheckError(LocalError):
    """Our own server admitted an unauthenticated client. Fault: this program or its configuration. Retry: no."""

    code = "E_SECURITY_CHECK"
    exit_code = ExitCode.TRUST
