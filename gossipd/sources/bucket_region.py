"""Which region an S3 bucket is in, asked of S3 itself when it said "elsewhere" without obstore saying where.

What lives here: one unsigned request for the bucket's head, whose answer has the region whatever its status. What does
not: going there; the operator sets the region, because credentials and traffic costs depend on it.
"""

from __future__ import annotations

import os
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

from gossipd.manifest.source_url import WEB_SCHEMES
from gossipd.sources.errors import SourceRegionError
from gossipd.sources.location import endpoint
from gossipd.sources.pieces import UNREADABLE
from gossipd.sources.proxies import storage_proxy
from gossipd.sources.refusal_documents import bucket_address, in_region, region_in

TIMEOUT_S = 5.0  # the answer only improves the sentence of an error
_HEADER = "x-amz-bucket-region"


class _Stays(HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


def with_region(error: SourceRegionError, bucket: str) -> SourceRegionError:
    """The same error, with the region if S3 tells it."""
    if error.is_named or (region := ask_region(bucket)) is None:
        return error
    return SourceRegionError(bucket_address(error.what), in_region(region))


def ask_region(bucket: str) -> str | None:
    """The region, or None when S3 does not say."""
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
    base = endpoint("s3") or f"https://s3.{region}.amazonaws.com"
    request = Request(f"{base.rstrip('/')}/{quote(bucket)}", method="HEAD", headers={"User-Agent": "gossipd"})
    try:
        proxy = storage_proxy("s3", bucket, os.environ)
        proxies = ProxyHandler({} if proxy is None else dict.fromkeys(WEB_SCHEMES, proxy.url))
        with build_opener(_Stays, proxies).open(request, timeout=TIMEOUT_S) as answer:
            found = answer.headers.get(_HEADER)
    except HTTPError as error:
        found = error.headers.get(_HEADER)
        error.close()
    except (URLError, HTTPException, OSError, *UNREADABLE):
        return None
    return region_in(f"<Region>{found}</Region>")
