"""OpenStack Swift with its S3 API, all four servers in one process of Debian's Python, on loopback.

``/usr/bin/python3 swift_all_in_one.py DIRECTORY PORT`` keeps everything in DIRECTORY and creates its file ``ready``.
Swift's own commands make rings and processes one at a time, which takes half a minute. Users are tempauth's
``test:tester`` (``testing``), who owns the account, and ``test:reader`` (``reading``), who may read nothing.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import eventlet
import eventlet.wsgi

eventlet.monkey_patch()

from swift.common import utils  # noqa: E402
from swift.common.ring import RingBuilder  # noqa: E402
from swift.common.wsgi import loadapp  # noqa: E402

_STORAGE = """[DEFAULT]
swift_dir = {etc}
devices = {devices}
mount_check = false
disable_fallocate = true
[pipeline:main]
pipeline = {kind}-server
[app:{kind}-server]
use = egg:swift#{kind}
"""
_PROXY = """[DEFAULT]
swift_dir = {etc}
[pipeline:main]
pipeline = catch_errors gatekeeper s3api tempauth proxy-server
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
[filter:tempauth]
use = egg:swift#tempauth
user_test_tester = testing .admin
user_test_reader = reading
[filter:s3api]
use = egg:swift#s3api
auth_pipeline_check = false
location = region-one
[filter:gatekeeper]
use = egg:swift#gatekeeper
[filter:catch_errors]
use = egg:swift#catch_errors
"""


class _Cache:
    """In place of memcached."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}

    def get(self, key: str, *_: Any, **__: Any) -> Any:
        return self._values.get(key)

    def set(self, key: str, value: Any, *_: Any, **__: Any) -> None:
        self._values[key] = value

    def delete(self, key: str, *_: Any, **__: Any) -> None:
        self._values.pop(key, None)


def main(base: Path, port: int) -> None:
    etc, devices = base / "etc", base / "devices"
    etc.mkdir(parents=True)
    (devices / "sda").mkdir(parents=True)
    (etc / "swift.conf").write_text("[swift-hash]\nswift_hash_path_suffix = s\nswift_hash_path_prefix = p\n")
    utils.set_swift_dir(str(etc))
    for at, kind in enumerate(("account", "container", "object"), start=1):
        builder = RingBuilder(4, 1, 1)
        builder.add_dev(
            {"id": 0, "region": 1, "zone": 1, "ip": "127.0.0.1", "port": port + at, "device": "sda", "weight": 1.0}
        )
        builder.rebalance()
        builder.get_ring().save(str(etc / f"{kind}.ring.gz"))
        config = etc / f"{kind}.conf"
        config.write_text(_STORAGE.format(etc=etc, devices=devices, kind=kind))
        _serve(loadapp(str(config)), port + at)
    (etc / "proxy.conf").write_text(_PROXY.format(etc=etc))
    proxy, cache = loadapp(str(etc / "proxy.conf")), _Cache()

    def with_cache(environ: dict[str, Any], start_response: Any) -> Any:
        environ["swift.cache"] = cache
        return proxy(environ, start_response)

    serving = _serve(with_cache, port)
    (base / "ready").touch()
    serving.wait()


def _serve(app: Any, port: int) -> Any:
    listener = eventlet.listen(("127.0.0.1", port))
    return eventlet.spawn(eventlet.wsgi.server, listener, app, None, log_output=False)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
