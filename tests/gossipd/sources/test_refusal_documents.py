"""Every document in which a storage says why it refuses, as the storages' own references print it, and forged ones."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipd.core.errors import ExitCode
from gossipd.sources.refusal_documents import DOCUMENT_CHARS_MAX, bucket_address, from_refusal, region_in

S3, GS, AZ = "s3://models/llama/a.safetensors", "gs://models/llama/a.safetensors", "az://models/llama/a.safetensors"
CANARIES = ("AKIACANARY7EXAMPLE", "canary/secret+key", "canary-token==")


def xml(code: str, message: str = "words", **more: str) -> str:
    """As S3 and Azure write it, with everything that S3 echoes of the request."""
    rest = "".join(f"<{name}>{value}</{name}>" for name, value in more.items())
    echo = f"<AWSAccessKeyId>{CANARIES[0]}</AWSAccessKeyId><StringToSign>{CANARIES[1]} {CANARIES[2]}</StringToSign>"
    head = '<?xml version="1.0" encoding="UTF-8"?>\n'
    return f"{head}<Error><Code>{code}</Code><Message>{message}</Message>{rest}{echo}<RequestId>E4</RequestId></Error>"


def gcs(status: int, reason: str, message: str = "words") -> str:
    inner = f'{{"message": "{message}", "domain": "global", "reason": "{reason}"}}'
    return f'{{"error": {{"code": {status}, "message": "{message} {CANARIES[2]}", "errors": [{inner}]}}}}'


SAID = [
    (S3, 400, xml("ExpiredToken", "The provided token has expired."), "E_SOURCE_TOKEN_EXPIRED"),
    (S3, 403, xml("RequestTimeTooSkewed", ServerTime="2026-11-25T00:00:00Z"), "E_SOURCE_CLOCK"),
    (S3, 301, xml("PermanentRedirect", Endpoint="models.s3.eu-west-3.amazonaws.com"), "E_SOURCE_REGION"),
    (S3, 400, xml("AuthorizationHeaderMalformed", Region="eu-west-3"), "E_SOURCE_REGION"),
    (S3, 403, xml("AccessDenied", "Access Denied"), "E_SOURCE_AUTH"),
    (S3, 403, xml("AccessDenied", "User x is not authorized to perform: kms:Decrypt on k"), "E_SOURCE_ENCRYPTED"),
    (S3, 400, xml("KMS.DisabledException"), "E_SOURCE_ENCRYPTED"),
    (S3, 400, xml("InvalidRequest", "stored using a form of Server Side Encryption."), "E_SOURCE_ENCRYPTED"),
    (S3, 403, xml("AccessDenied", "Bucket is requester pays"), "E_SOURCE_PAYER"),
    (S3, 403, xml("InvalidAccessKeyId"), "E_SOURCE_KEY"),
    (S3, 403, xml("SignatureDoesNotMatch"), "E_SOURCE_KEY"),
    (S3, 400, xml("InvalidToken"), "E_SOURCE_KEY"),
    (S3, 403, xml("InvalidObjectState", StorageClass="GLACIER"), "E_SOURCE_ARCHIVED"),
    (S3, 403, xml("AllAccessDisabled"), "E_SOURCE_ACCOUNT"),
    (S3, 404, xml("NoSuchBucket", BucketName="models"), "E_SOURCE_NO_BUCKET"),
    (S3, 404, xml("NoSuchKey", Key="llama/a.safetensors"), "E_SOURCE_NOT_FOUND"),
    (S3, 503, xml("SlowDown", "Please reduce your request rate."), "E_SOURCE_BUSY"),
    (S3, 500, xml("InternalError"), "E_SOURCE_UNREACHABLE"),
    (S3, 400, xml("RequestTimeout"), "E_SOURCE_UNREACHABLE"),
    (GS, 403, gcs(403, "forbidden", "x does not have storage.objects.get access"), "E_SOURCE_AUTH"),
    (GS, 401, gcs(401, "required", "Anonymous caller does not have access"), "E_SOURCE_NO_CREDENTIALS"),
    (GS, 400, gcs(400, "required", "Bucket is a requester pays bucket but no user project given"), "E_SOURCE_PAYER"),
    (GS, 401, gcs(401, "authError", "Invalid Credentials"), "E_SOURCE_KEY"),
    (GS, 404, gcs(404, "notFound"), "E_SOURCE_NOT_FOUND"),
    (GS, 403, gcs(403, "rateLimitExceeded"), "E_SOURCE_BUSY"),
    (GS, 403, gcs(403, "accountDisabled"), "E_SOURCE_ACCOUNT"),
    (GS, 400, '{"error": "invalid_grant", "error_description": "Bad Request"}', "E_SOURCE_TOKEN_EXPIRED"),
    (GS, 400, xml("UserProjectMissing"), "E_SOURCE_PAYER"),
    (AZ, 403, xml("AuthenticationFailed", "Make sure the value is formed correctly"), "E_SOURCE_KEY"),
    (AZ, 403, xml("AuthenticationFailed", AuthenticationErrorDetail="Request date header too old"), "E_SOURCE_CLOCK"),
    (AZ, 403, xml("AuthenticationFailed", AuthenticationErrorDetail="Signature not valid in the specified time frame"),
     "E_SOURCE_TOKEN_EXPIRED"),
    (AZ, 401, xml("NoAuthenticationInformation"), "E_SOURCE_NO_CREDENTIALS"),
    (AZ, 403, xml("AuthorizationPermissionMismatch"), "E_SOURCE_AUTH"),
    (AZ, 409, xml("BlobArchived"), "E_SOURCE_ARCHIVED"),
    (AZ, 404, xml("ContainerNotFound"), "E_SOURCE_NO_BUCKET"),
    (AZ, 404, xml("BlobNotFound"), "E_SOURCE_NOT_FOUND"),
    (AZ, 503, xml("ServerBusy"), "E_SOURCE_BUSY"),
    (AZ, 403, xml("AccountIsDisabled"), "E_SOURCE_ACCOUNT"),
    (AZ, 409, xml("BlobUsesCustomerSpecifiedEncryption"), "E_SOURCE_ENCRYPTED"),
    (AZ, 401, '{"error": "invalid_client", "error_description": "AADSTS7000215"}', "E_SOURCE_KEY"),
    (AZ, 404, '{"error": {"code": "FilesystemNotFound", "message": "m"}}', "E_SOURCE_NO_BUCKET"),
    (AZ, 401, '{"error": "invalid_client", "error_description": "AADSTS7000222: The client secret keys are expired."}',
     "E_SOURCE_TOKEN_EXPIRED"),
    (AZ, 400, '{"error": "invalid_request", "error_description": "AADSTS90002: Tenant not found."}', "E_SOURCE_KEY"),
    (S3, 403, xml("AccessDenied", "Request has expired"), "E_SOURCE_TOKEN_EXPIRED"),  # an address signed in advance
    (S3, 403, '{"Code":"RequestTimeTooSkewed","BucketName":"models","HostId":"ceph"}', "E_SOURCE_CLOCK"),
    (S3, 404, '{"Code":"NoSuchBucket","BucketName":"models","HostId":"ceph"}', "E_SOURCE_NO_BUCKET"),
    (S3, 400, xml("InvalidArgument", "Credential access key has length 20, should be 32"), "E_SOURCE_KEY"),  # R2
    (S3, 403, xml("NotEntitled", "Please enable R2 through the dashboard."), "E_SOURCE_ACCOUNT"),
    (S3, 403, xml("AccessDenied", "Transaction cap exceeded, see the Caps & Alerts page"), "E_SOURCE_ACCOUNT"),  # B2
    (S3, 403, xml("Arrearage", "The bucket you access is in arrears."), "E_SOURCE_ACCOUNT"),  # OSS
    (S3, 401, '{"code": "expired_auth_token", "message": "Authorization token has expired"}', "E_SOURCE_TOKEN_EXPIRED"),
    (S3, 401, '{"code": "bad_auth_token", "message": "Invalid authorization token"}', "E_SOURCE_KEY"),
    (GS, 403, gcs(403, "forbidden", "The project is associated with a closed billing account."), "E_SOURCE_ACCOUNT"),
    (GS, 403, gcs(403, "accessNotConfigured", "Cloud Storage API has not been used"), "E_SOURCE_ACCOUNT"),
    (GS, 404, gcs(404, "notFound", "The specified bucket does not exist."), "E_SOURCE_NO_BUCKET"),
    (GS, 403, xml("AccessDenied", "Access denied.", Details="Anonymous caller does not have access"),
     "E_SOURCE_NO_CREDENTIALS"),
    (S3, 503, xml("SlowDownRead", "please reduce your request rate"), "E_SOURCE_BUSY"),
    (S3, 400, xml("KMS.ThrottlingException", "You have exceeded the rate"), "E_SOURCE_BUSY"),
    (S3, 403, xml("SecurityTokenExpired", "The security token you provided has expired."), "E_SOURCE_TOKEN_EXPIRED"),
    (S3, 403, xml("SignatureDoesNotMatch", "Signature expired: 1 is now earlier than 2"), "E_SOURCE_CLOCK"),
    (S3, 403, xml("SignatureDoesNotMatch", "Signature not yet current: 2 is still later than 1"), "E_SOURCE_CLOCK"),
    (S3, 404, xml("NoSuchAccessPoint"), "E_SOURCE_NO_BUCKET"),
    (S3, 404, xml("NoSuchTenant"), "E_SOURCE_NO_BUCKET"),  # Ceph
    (GS, 403, gcs(403, "forbidden", "Permission denied on Cloud KMS key."), "E_SOURCE_ENCRYPTED"),
    (GS, 403, gcs(403, "vpcServiceControls", "Request is prohibited by organization's policy"), "E_SOURCE_AUTH"),
    (GS, 403, gcs(403, "dailyLimitExceeded"), "E_SOURCE_BUSY"),
    (GS, 401, gcs(401, "expired", "Token expired"), "E_SOURCE_TOKEN_EXPIRED"),
    (GS, 400, '{"error": "invalid_grant", "error_description": "Invalid JWT: Token must be a short-lived token (60 '
     'minutes) and in a reasonable timeframe. Check your iat and exp values in the JWT claim."}', "E_SOURCE_CLOCK"),
    (AZ, 401, '{"error": "invalid_client", "error_description": "AADSTS700024: Client assertion is not within its '
     'valid time range."}', "E_SOURCE_CLOCK"),
    (AZ, 403, xml("AuthenticationFailed", AuthenticationErrorDetail="The Date header in the request is incorrect."),
     "E_SOURCE_CLOCK"),
    (AZ, 403, xml("KeyBasedAuthenticationNotPermitted"), "E_SOURCE_AUTH"),
    (S3, 403, xml("AccountSuspended"), "E_SOURCE_ACCOUNT"),
    (S3, 403, xml("InArrearOrInsufficientBalance"), "E_SOURCE_ACCOUNT"),  # OBS
    (S3, 403, xml("BucketAccountFrozen"), "E_SOURCE_ACCOUNT"),  # in no row, as are the next seven
    (S3, 403, xml("AccessKeyTokenExpired"), "E_SOURCE_TOKEN_EXPIRED"),
    (S3, 403, xml("RequestClockSkewTooLarge"), "E_SOURCE_CLOCK"),
    (S3, 403, xml("ExceedAccountQPSLimit"), "E_SOURCE_BUSY"),  # TOS
    (S3, 400, xml("ReadThrottled"), "E_SOURCE_BUSY"),
    (S3, 400, xml("KMS.UnknownException"), "E_SOURCE_ENCRYPTED"),
    (S3, 403, xml("ObjectNotRestored"), "E_SOURCE_ARCHIVED"),
    (S3, 400, xml("XMinioServerNotInitialized"), "E_SOURCE_UNREACHABLE"),
    (S3, 400, xml("InvalidRegionName"), "E_SOURCE_REGION"),  # R2
    (S3, 403, xml("AccessDenied", "must be addressed using the specified endpoint"), "E_SOURCE_REGION"),  # OSS
    (S3, 403, xml("SecondLevelDomainForbidden"), "E_SOURCE"),
    (S3, 403, xml("AccessDenied", "Forbidden: No such key: GK12"), "E_SOURCE_KEY"),  # Garage
    (S3, 403, xml("InvalidSignatureException", "Signature not yet current: 2"), "E_SOURCE_CLOCK"),
    (S3, 403, xml("InvalidSignatureException", "does not match"), "E_SOURCE_KEY"),
    (S3, 400, xml("InvalidIdentityToken"), "E_SOURCE_KEY"),
    (S3, 404, '{"code": "NotAuthorizedOrNotFound", "message": "m"}', "E_SOURCE_AUTH"),  # Oracle
    (S3, 400, "Client sent an HTTP request to an HTTPS server.", "E_SOURCE"),
    (S3, 498, "<html><h1>Rate Limit</h1></html>", "E_SOURCE_BUSY"),  # Swift
    (S3, 403, '{"message": "API rate limit exceeded for 192.0.2.1."}', "E_SOURCE_BUSY"),  # GitHub
    (S3, 401, '{"errors": [{"status": 401, "message": "Token expired"}]}', "E_SOURCE_TOKEN_EXPIRED"),
    (GS, 400, '{"error": "invalid_grant", "error_description": "Invalid JWT Signature."}', "E_SOURCE_KEY"),
    (AZ, 400, xml("AccountRequiresHttps"), "E_SOURCE"),
    (S3, 408, "", "E_SOURCE_UNREACHABLE"),
    (S3, 421, "", "E_SOURCE_UNREACHABLE"),
    (S3, 425, "", "E_SOURCE_UNREACHABLE"),
]  # fmt: skip


@pytest.mark.parametrize(("what", "status", "document", "code"), SAID, ids=[f"{row[1]}-{row[3]}" for row in SAID])
def test_each_document_is_told_as_what_it_says(what: str, status: int, document: str, code: str) -> None:
    error = from_refusal(document, status, what)
    assert error.code == code
    assert not any(canary in str(error) + repr(error) for canary in CANARIES)
    assert str(error).startswith((f"{what}: ", f"{bucket_address(what)}: "))


def test_what_a_person_must_cure_does_not_heal_and_the_rest_does() -> None:
    heals = {code: from_refusal(document, status, what).heals for what, status, document, code in SAID}
    assert {code for code, by_itself in heals.items() if by_itself} == {
        "E_SOURCE_CLOCK", "E_SOURCE_BUSY", "E_SOURCE_UNREACHABLE",
    }  # fmt: skip


def test_every_refusal_of_credentials_has_their_exit_code() -> None:
    for what, status, document, code in SAID:
        if "KEY" in code or "TOKEN" in code or "CREDENTIALS" in code:
            assert from_refusal(document, status, what).exit_code == ExitCode.SOURCE_AUTH


@pytest.mark.parametrize(
    "document",
    [
        xml("AuthorizationHeaderMalformed", Region="ap-southeast-2"),
        xml("AuthorizationHeaderMalformed", "the region 'us-east-1' is wrong; expecting 'ap-southeast-2'"),
        xml("PermanentRedirect", Endpoint="models.s3-ap-southeast-2.amazonaws.com"),
    ],
)
def test_the_right_region_is_named_with_its_cure(document: str) -> None:
    error = from_refusal(document, 400, S3)
    assert str(error).startswith("s3://models: the bucket is in region ap-southeast-2; set AWS_REGION=ap-southeast-2")


def test_a_region_that_is_none_is_not_repeated() -> None:
    assert region_in(xml("AuthorizationHeaderMalformed", Region="canary; rm -rf /")) is None


def test_a_storage_that_takes_https_only_says_which_address_to_see() -> None:
    for document in ("Client sent an HTTP request to an HTTPS server.", xml("AccountRequiresHttps")):
        assert "takes https only; see the address" in str(from_refusal(document, 400, S3))


def test_s3_s_denial_says_that_the_object_may_be_absent() -> None:
    assert "whether the object is there" in str(from_refusal(xml("AccessDenied"), 403, S3))


def test_s3_s_denial_says_that_readers_may_have_to_pay() -> None:
    assert "AWS_REQUEST_PAYER=requester" in str(from_refusal(xml("AccessDenied"), 403, S3))
    assert "AWS_REQUEST_PAYER" not in str(from_refusal(gcs(403, "forbidden"), 403, GS))


def test_an_unknown_error_is_named_only_in_plain_words() -> None:
    assert "NotImplementedYet" in str(from_refusal(xml("NotImplementedYet"), 501, S3))
    for name in (CANARIES[0], "AKIAIOSFODNNEXAMPLE", "canarysecret", "a.b.c", "<script>"):
        error = from_refusal(xml(name), 403, S3)
        assert error.code == "E_SOURCE_AUTH"
        assert name not in str(error)


@given(st.text(max_size=400), st.integers(400, 599))
def test_no_document_breaks_or_leaks(document: str, status: int) -> None:
    error = from_refusal(document, status, S3)
    assert len(str(error)) < 400
    assert str(error).startswith("s3://models")


@pytest.mark.parametrize("document", ["<Code>" * 50_000, '{"error":' * 50_000, "<Endpoint>" + "a." * 100_000])
def test_a_huge_document_costs_next_to_nothing(document: str) -> None:
    began = time.process_time()
    assert from_refusal(document, 403, S3).code == "E_SOURCE_AUTH"
    assert time.process_time() - began < 0.1
    assert len(document) > DOCUMENT_CHARS_MAX
