"""What a storage says in the document of its refusal: S3's and Azure's XML, the JSON of GCS, Azure and token services.

What lives here: finding the name of the error in a document, and what each name means. What does not: the classes
(``errors``), statuses without a document (``errors.from_status``).

A document may hold anything, also the request with its keys, so nothing of it is shown but names that are in the table,
a region, and another name if it is made of plain words. It is searched, not parsed: a cut or broken document still has
its name, and no document can cost more than its first kilobytes.
"""

from __future__ import annotations

import re

from msgspec import Struct

from gossipd.sources import errors
from gossipd.sources.errors import SourceError

DOCUMENT_CHARS_MAX = 4096  # S3's documents have some 300 characters, GCS' 1,500
_XML_NAME = re.compile(r"<Code>\s*([A-Za-z0-9_.]{1,64})\s*</Code>")
_JSON_NAME = re.compile(r'\\?"(?:reason|[Cc]ode|error|status)\\?"\s*:\s*\\?"([A-Za-z0-9_.]{1,64})\\?"')
_PLAIN_NAME = re.compile(r"(?:[A-Z][a-z]{1,20}){2,6}")
_AWS_REGION = r"([a-z]{2}(?:-[a-z]{2,10}){1,3}-\d{1,2})"
_REGION = r"([a-z][a-z0-9]{1,15}(?:-[a-z0-9]{1,15}){0,4})"  # other storages have names of their own
_REGIONS = (
    re.compile(rf"<Region>{_REGION}</Region>"),
    re.compile(rf"expecting '{_REGION}'"),
    re.compile(rf"<Endpoint>[A-Za-z0-9.-]{{0,80}}?s3[.-]{_AWS_REGION}\."),
)


class _Meaning(Struct, frozen=True):
    kind: type[SourceError]
    why: str
    names: str
    """Separated by spaces, as the storages write them."""
    about_bucket: bool = False


_ROWS = (
    _Meaning(
        errors.SourceTokenExpiredError,
        "the session token has expired; renew the credentials of this host",
        "ExpiredToken ExpiredTokenException TokenRefreshRequired RequestExpired invalid_grant authTokenExpired"
        " expired_auth_token SecurityTokenExpired ExpiredSession",
    ),
    _Meaning(
        errors.SourceClockError,
        "the storage finds this host's clock wrong; set it (timedatectl, chrony)",
        "RequestTimeTooSkewed RequestInTheFuture InvalidAuthenticationInfoDate RequestNotYetValid",
    ),
    _Meaning(
        errors.SourceRegionError,
        "the bucket is in another region; set AWS_REGION",
        "PermanentRedirect TemporaryRedirect AuthorizationHeaderMalformed IllegalLocationConstraintException"
        " IncorrectEndpoint AuthorizationQueryParametersError InvalidRegionName",
        about_bucket=True,
    ),
    _Meaning(
        errors.SourcePayerError,
        "readers pay for this bucket",
        "UserProjectMissing UserProjectAccessDenied userProjectMissing userProjectAccessDenied",
        about_bucket=True,
    ),
    _Meaning(
        errors.SourceAccountError,
        "the account behind it is closed, unpaid or not set up; its owner must act",
        "AllAccessDisabled AccountProblem NotSignedUp InvalidPayer OptInRequired accountDisabled UserAccountProblem"
        " userProjectAccountProblem AccountIsDisabled UserSuspended billingNotEnabled NotEntitled UserDisable Arrearage"
        " accessNotConfigured SERVICE_DISABLED cap_exceeded download_cap_exceeded transaction_cap_exceeded"
        " AccountSuspended ArrearsAccount InArrearOrInsufficientBalance",
        about_bucket=True,
    ),
    _Meaning(
        errors.SourceEncryptedError,
        "the storage could not use the object's key (KMS); its state, and this identity's right to decrypt, are to be"
        " looked at",
        "KMS.DisabledException KMS.InvalidStateException KMS.NotFoundException KMS.AccessDeniedException"
        " KMS.KMSInvalidStateException KMS.InvalidKeyUsageException"
        " ServerSideEncryptionConfigurationNotFoundError CustomerEncryptionKeyFormatIsInvalid"
        " resourceIsEncryptedWithCustomerEncryptionKey BlobUsesCustomerSpecifiedEncryption"
        " KeyVaultEncryptionKeyNotFound KeyVaultAccessTokenCannotBeAcquired KeyVaultVaultNotFound",
    ),
    _Meaning(
        errors.SourceArchivedError,
        "the object lies in an archive (Glacier, Archive tier); restore it first, or publish another copy",
        "InvalidObjectState BlobArchived BlobBeingRehydrated BlobNotRehydrated",
    ),
    _Meaning(
        errors.SourceKeyError,
        "the storage does not know this host's key, or the secret is not the key's; see the credentials",
        "InvalidAccessKeyId SignatureDoesNotMatch InvalidToken UnrecognizedClientException InvalidClientTokenId"
        " InvalidSecurity AuthenticationFailed InvalidAuthenticationInfo invalid_client unauthorized_client"
        " InvalidCredentials authError UNAUTHENTICATED bad_auth_token InvalidTokenId InvalidSecurityToken"
        " InvalidSignatureException InvalidSessionToken InvalidIdentityToken IDPRejectedClaim",
    ),
    _Meaning(
        errors.SourceNoCredentialsError,
        "the storage is not public, and this host showed no credentials",
        "NoAuthenticationInformation MissingSecurityHeader MissingAuthenticationToken required AuthenticationRequired",
    ),
    _Meaning(
        errors.SourceNoBucketError,
        "there is no such bucket at this storage; see its name, and the endpoint",
        "NoSuchBucket ContainerNotFound FilesystemNotFound ContainerDisabled ContainerBeingDeleted InvalidBucketName"
        " InvalidResourceName NoSuchAccessPoint NoSuchMultiRegionAccessPoint NoSuchTenant BucketNotFound",
        about_bucket=True,
    ),
    _Meaning(
        errors.SourceNotFoundError,
        "not there",
        "NoSuchKey NoSuchVersion BlobNotFound ResourceNotFound PathNotFound notFound NotFound KeyTooLongError"
        " MethodNotAllowed",
    ),
    _Meaning(
        errors.SourceBusyError,
        "the storage asks to be read more slowly",
        "SlowDown ServiceUnavailable ServerBusy Throttling ThrottlingException TooManyRequests"
        " BandwidthLimitExceeded rateLimitExceeded userRateLimitExceeded quotaExceeded ReducedRate"
        " OperationAbortedDueToThrottling SlowDownRead KMS.ThrottlingException dailyLimitExceeded RequestLimitExceeded"
        " TooManyRequestsException QpsLimitExceeded TotalQpsLimitExceeded DownloadTrafficRateLimitExceeded",
    ),
    _Meaning(
        errors.SourceUnreachableError,
        "the storage failed",
        "InternalError internalError backendError OperationTimedOut RequestTimeout OperationAborted"
        " IDPCommunicationError",
    ),
    _Meaning(
        errors.SourceChangedError,
        "the object has changed since it was first seen",
        "PreconditionFailed ConditionNotMet conditionNotMet UpdateConditionNotSatisfied",
    ),
    _Meaning(
        errors.SourceShortError, "the object ends before the range begins", "InvalidRange requestedRangeNotSatisfiable"
    ),
    _Meaning(
        errors.SourceAuthError,
        "access denied: the key is right, but may not read it; see its policy",
        "AccessDenied AccessDeniedException AuthorizationFailure AuthorizationPermissionMismatch forbidden"
        " InsufficientAccountPermissions AuthorizationProtocolMismatch AuthorizationSourceIPMismatch"
        " AuthorizationServiceMismatch AuthorizationResourceTypeMismatch PublicAccessNotPermitted"
        " PERMISSION_DENIED insufficientPermissions UnauthorizedAccess AccessForbidden vpcServiceControls"
        " KeyBasedAuthenticationNotPermitted"
        " SECURITY_POLICY_VIOLATED NotAuthorizedOrNotFound",
    ),
    _Meaning(
        SourceError,
        "the storage takes https only; see the address, or the endpoint in this host's environment",
        "AccountRequiresHttps",
    ),
    _Meaning(
        SourceError,
        "the storage wants the bucket in the host's name; set AWS_VIRTUAL_HOSTED_STYLE_REQUEST=true",
        "SecondLevelDomainForbidden VirtualHostDomainRequired",
    ),
)
# Where S3 has a cure that others have not. S3 says AccessDenied where readers must pay, too, and where the object is
# absent and the identity may not list.
_S3_CURES: dict[type[SourceError], str] = {
    errors.SourceAuthError: ", whether the object is there (who may not list is told the same of one that is not), and "
    "whether readers must pay (AWS_REQUEST_PAYER=requester)",
    errors.SourcePayerError: "; set AWS_REQUEST_PAYER=requester if this host's account is to",
}
_MEANINGS = {name: row for row in _ROWS for name in row.names.split()}
# Where the name says less than the sentence beside it: (names, a word of the document, the row's class).
_WORDS: tuple[tuple[str, type[SourceError]], ...] = (
    ("kms:decrypt", errors.SourceEncryptedError),
    ("cloud kms", errors.SourceEncryptedError),
    ("server side encryption", errors.SourceEncryptedError),
    ("requester pays", errors.SourcePayerError),
    ("request date header too old", errors.SourceClockError),
    ("date header in the request is incorrect", errors.SourceClockError),
    ("signature expired", errors.SourceClockError),  # AWS, of a request that was signed just now
    ("signature not yet current", errors.SourceClockError),
    ("reasonable timeframe", errors.SourceClockError),  # Google, of a token that was made just now
    ("aadsts700024", errors.SourceClockError),
    ("signature not valid in the specified time frame", errors.SourceTokenExpiredError),
    ("token is expired", errors.SourceTokenExpiredError),
    ("token expired", errors.SourceTokenExpiredError),
    ("request has expired", errors.SourceTokenExpiredError),
    ("aadsts7000222", errors.SourceTokenExpiredError),
    ("access key has length", errors.SourceKeyError),
    ("aadsts90002", errors.SourceKeyError),
    ("cap exceeded", errors.SourceAccountError),
    ("billing account", errors.SourceAccountError),
    ("anonymous caller", errors.SourceNoCredentialsError),
    ("specified bucket does not exist", errors.SourceNoBucketError),
    ("including the signature", errors.SourceKeyError),
    ("invalid jwt signature", errors.SourceKeyError),
    ("account not found", errors.SourceKeyError),
    ("no such key: ", errors.SourceKeyError),  # Garage, of an access key
    ("must be addressed using the specified endpoint", errors.SourceRegionError),
    ("reauth", errors.SourceTokenExpiredError),
    ("rate limit", errors.SourceBusyError),
    ("http request to an https server", SourceError),
    ("plain http request was sent to https port", SourceError),
)
# What a name that is in no row speaks of, as storages invent names; the first that matches decides.
_KINDS_OF_NAMES: tuple[tuple[re.Pattern[str], type[SourceError]], ...] = (
    (re.compile(r"Throttl|TooManyRequest|TooFrequent|SlowDown|(?:QPS|Rate|Traffic)\w*Limit"), errors.SourceBusyError),
    (re.compile(r"TooSkewed|ClockSkew|TimeSkew"), errors.SourceClockError),
    (re.compile(r"(?:Token|Credentials?|Session|Signature)\w*Expired|Expired\w*(?:Token|Credential|Session)"),
     errors.SourceTokenExpiredError),
    (re.compile(r"Arrear|Overdue|Suspended|InsufficientBalance|(?:Account|User|Project)\w*(?:Disabled|Frozen|Closed)"),
     errors.SourceAccountError),
    (re.compile(r"^KMS\.|Encryption|KeyVault"), errors.SourceEncryptedError),
    (re.compile(r"Archived|Rehydrat|NotRestored"), errors.SourceArchivedError),
    (re.compile(r"NotInitialized|TemporarilyUnavailable|UnderMaintenance"), errors.SourceUnreachableError),
)  # fmt: skip
_VAGUE = frozenset(
    {
        "AccessDenied", "SignatureDoesNotMatch", "expired", "AuthenticationFailed", "InvalidRequest",
        "InvalidArgument", "forbidden", "required",
        "invalid", "invalid_client", "invalid_grant", "invalid_request", "InvalidAuthenticationInfo",
        "AuthenticationRequired", "AuthorizationFailure", "notFound", "InvalidSignatureException",
    }
)  # fmt: skip


def from_refusal(document: str, status: int, what: str) -> SourceError:
    """The error for an answer with this status and document. Its subject is ``what``, the object's address, or the
    bucket's part of that."""
    error = _judged(document, status, what)
    error.is_too_many = status == errors.TOO_MANY
    return error


def _judged(document: str, status: int, what: str) -> SourceError:
    document = document[:DOCUMENT_CHARS_MAX]
    names = [*_XML_NAME.findall(document), *_JSON_NAME.findall(document)]
    known = next((name for name in names if name in _MEANINGS), None)
    says_little = known in _VAGUE or (known is None and (not names or not set(names).isdisjoint(_VAGUE)))
    row = _by_words(document) if says_little else None
    if row is None and known is not None:
        row = _MEANINGS[known]
    if row is None and known is None:
        row, known = next(((row, name) for name in names if (row := _by_name(name)) is not None), (None, None))
    if row is None:
        error = errors.from_status(status, what)
        if (name := next(filter(_PLAIN_NAME.fullmatch, names), None)) is None:
            return error
        return type(error)(what, f"the storage refused: {name} (status {status})")
    why = row.why
    if row.kind is errors.SourceRegionError and (region := region_in(document)):
        why = in_region(region)
    if what.startswith("s3"):
        why += _S3_CURES.get(row.kind, "")
    label = known if known is not None and _is_shown(known) else f"status {status}"
    return row.kind(bucket_address(what) if row.about_bucket else what, f"{why} ({label})")


def region_in(document: str) -> str | None:
    """The region that a refusal names."""
    return next((found[1] for pattern in _REGIONS if (found := pattern.search(document))), None)


def in_region(region: str) -> str:
    """The sentence for a bucket in another region."""
    return f"the bucket is in region {region}; set AWS_REGION={region}"


def bucket_address(what: str) -> str:
    """``s3://bucket`` of an object's address."""
    return "/".join(what.split("/")[:3])


def _by_words(document: str) -> _Meaning | None:
    text = document.lower()
    kind = next((kind for words, kind in _WORDS if words in text), None)
    return next((row for row in _ROWS if row.kind is kind), None)


def _by_name(name: str) -> _Meaning | None:
    kind = next((kind for pattern, kind in _KINDS_OF_NAMES if pattern.search(name)), None)
    return next((row for row in _ROWS if row.kind is kind), None)


def _is_shown(name: str) -> bool:
    """Names such as ``required`` tell a person nothing, and one that is in no row may be anything."""
    return len(name) > 8 and (name in _MEANINGS or _PLAIN_NAME.fullmatch(name) is not None)
