"""What two sides have against each other's TLS, in words, with what helps.

What lives here: the words for OpenSSL's failures, which Python raises, and for those of rustls, which obstore prints.
What does not: whose signature a certificate needs (``authorities``), connections (``web_connection``).

Time cures none of it, so none is told as a server that does not answer. A connection that ends while TLS is set up is
no such failure.
"""

from __future__ import annotations

import os
import ssl

from gossipd.sources.errors import SourceTlsError

SEE_ADDRESS = "see the address: its port, and whether it is http or https"
_NOT_VALID = "its TLS certificate is not valid"
_RENEW = "renew it there; see this host's clock, too"
_OTHER_NAME = "publish with a name that it has, or give the server one for this name"
_OF_TIME = (9, 10)  # OpenSSL's X509_V_ERR_CERT_NOT_YET_VALID and _HAS_EXPIRED
_OF_NAME = (62, 64)  # X509_V_ERR_HOSTNAME_MISMATCH and _IP_ADDRESS_MISMATCH
_NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG")
_NO_TERMS = ("ALERT", "UNSUPPORTED_PROTOCOL", "HANDSHAKE", "DH_KEY_TOO_SMALL")  # in OpenSSL's name of a failure
_CAUSES_MOST = 8  # of an exception; libraries of HTTP wrap one of OpenSSL four times
# What rustls prints, in one line, and the words for it; the first that occurs decides.
_OF_RUSTLS = (
    ("InvalidCertificate( UnknownIssuer", "authority"),
    ("InvalidCertificate( Expired", f"{_NOT_VALID}: it has expired; {_RENEW}"),
    ("InvalidCertificate( NotValidYet", f"{_NOT_VALID} yet; {_RENEW}"),
    ("InvalidCertificate( NotValidForName", f"{_NOT_VALID} for the endpoint's name; name the endpoint by one that it "
     "has, or give the server one for this name"),
    ("InvalidCertificate(", f"{_NOT_VALID}; give the server another"),
    ("AlertReceived(", "the server refused to set TLS up"),
    ("PeerIncompatible(", "the server has no version of TLS, or no cipher, that is safe enough"),
    ("InvalidMessage(", f"the server speaks no TLS there; {SEE_ADDRESS}"),
)  # fmt: skip


def is_of_tls(error: BaseException) -> bool:
    """Whether the two sides do not come to terms about TLS."""
    if not isinstance(error, ssl.SSLError) or isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return False
    reason = getattr(error, "reason", "") or ""  # one that Python code raised has none
    is_verdict = isinstance(error, ssl.SSLCertVerificationError)
    return is_verdict or reason in _NO_TLS or any(word in reason for word in _NO_TERMS)


def words_of_openssl(error: ssl.SSLError) -> str:
    """The failure, and what helps."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"{_NOT_VALID}: {error.verify_message}; {_cure(error.verify_code)}"
    if error.reason in _NO_TLS:
        return f"the server speaks no TLS there; {SEE_ADDRESS}"
    return f"TLS could not be set up ({(error.reason or 'no reason').lower().replace('_', ' ')})"


def words_of_rustls(text: str) -> str | None:
    """The same of the text that obstore prints for one connection, without any reply; None: it is no such failure."""
    line = " ".join(text.split())
    for printed, words in _OF_RUSTLS:
        if printed in line:
            return f"{_NOT_VALID}: its authority is unknown here; {_known()}" if words == "authority" else words
    return None


def tls_failure_in(error: BaseException, what: str, whose: str) -> SourceTlsError | None:
    """The error to raise where a library's exception came of TLS, else None. ``whose``: who was asked, to begin the
    sentence."""
    cause: BaseException | None = error
    for _ in range(_CAUSES_MOST):
        if cause is None:
            break
        if isinstance(cause, ssl.SSLError) and is_of_tls(cause):
            return SourceTlsError(what, f"{whose}: {words_of_openssl(cause)}")
        if type(cause).__name__ == "CertificateError":  # urllib3 compares names itself where botocore uses it
            return SourceTlsError(what, f"{whose}: {_NOT_VALID} for its name; give the server one for this name")
        cause = cause.__cause__ or cause.__context__
    return None


def _cure(verify_code: int) -> str:
    if verify_code in _OF_TIME:
        return _RENEW
    return _OTHER_NAME if verify_code in _OF_NAME else _known()


def _known() -> str:
    file = os.environ.get("SSL_CERT_FILE")
    known = f"the authorities are those of SSL_CERT_FILE={file}" if file else "see SSL_CERT_FILE"
    return f"{known}: name a file with its authority there, and restart the daemon"
