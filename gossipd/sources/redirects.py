"""What helps where a web source redirects, by the kind of address to which it leads.

What lives here: the sentence. What does not: which redirects are followed (``hub``), whether the target is listed
(``admission``). Nothing of the target is shown but its host, because the rest may be as good as a password.
"""

from __future__ import annotations

import re
from urllib.parse import SplitResult

# Of S3 and what speaks like it, CloudFront, Google, Azure, Alibaba and Artifactory.
_SIGNED = re.compile(
    r"(?:^|&)(?:X-Amz-Signature|X-Goog-Signature|X-Oss-Signature|Signature|sig|Key-Pair-Id|Expires|X-Amz-Expires"
    r"|hdnts|token|verify)=",
    re.IGNORECASE,
)
_SIGN_IN = re.compile(r"(?:^|[/._-])(?:log-?in|sign-?in|sso|saml2?|oauth2?|auth|authorize|cas|adfs)(?:[/._-]|$)", re.I)


def redirect_cure(target: SplitResult) -> str:
    """What a person may do about a redirect to this address."""
    if _SIGNED.search(target.query):
        return "it is signed and expires, so name the storage behind it (s3://, gs://, az://), or a mirror"
    if _SIGN_IN.search(target.path) or _SIGN_IN.search((target.hostname or "").partition(".")[0]):
        return "it asks to sign in, so let this host read there without, or name a mirror"
    return "name the final address as the source"
