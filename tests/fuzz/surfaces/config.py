"""The configuration: a TOML file and the environment that overrides it, up to what the daemon makes of both.

A change before sealing is one in a value, a key or a section, written as TOML again. What is accepted is translated
into every part's own settings, which must then hold.
"""

from __future__ import annotations

import json
import math
import tomllib
from pathlib import Path
from random import Random
from typing import Any

from gossipd.config.keys import Keys
from gossipd.config.load import ConfigError, parse_config
from gossipd.config.sections import SECTIONS, Config
from gossipd.daemon import settings_mapping
from gossipd.identity.keys import SecretKey
from gossipd.manifest.source_policy import SourcePolicy
from membership.record import sign_record
from membership.seal import KeyRing
from tests.fuzz.mutations import any_value, mutate_bytes, mutate_value, pick
from tests.fuzz.surface import Case

_PATH = Path("/etc/gossipd/gossipd.toml")
_SECRET = SecretKey(b"the fuzzed host's own secret....")
_TEXTS = (
    """[node]
name = "node-a"
rack = "rack-1"
[net]
bind = "10.0.0.1"
port = 7946
join = ["10.0.0.2:7946", "[fe80::1]:7946", "host.example:7946"]
[security]
trust = ["trust/publisher.key.pub"]
""",
    """[node]
name = "b"
rack = "r"
zone = "z"
[net]
bind = "::"
advertise = "2001:db8::1"
[bulk]
encryption = "none"
[store]
keep_versions = 3
reserve_bytes = "10GiB"
[sources]
allow = ["https://storage.example/", "s3://bucket"]
timeout_s = "30s"
""",
    """[node]
name = "c"
rack = "r"
[net]
bind = "127.0.0.1"
[limits]
upload_bytes_per_s = "100MB"
pool_bytes = 1073741824
[membership]
probe_interval_s = 0.5
probe_timeout_s = "200ms"
roster_keep_s = "14d"
[status]
socket = "run/s"
metrics_port = 9100
[log]
level = "info"
""",
)
_VARIABLES = (
    "GOSSIPD_NET__PORT", "GOSSIPD_NET__JOIN", "GOSSIPD_NODE__NAME", "GOSSIPD_LIMITS__POOL_BYTES", "GOSSIPD_LOG__LEVEL",
    "GOSSIPD_MEMBERSHIP__PROBE_INTERVAL_S", "GOSSIPD_SECURITY__TRUST", "GOSSIPD_STATUS__SOCKET", "GOSSIPD_NET__PROT",
)  # fmt: skip
# What a hand would hardly write, and TOML's grammar allows or a parser may stumble over.
_RAW = (
    "[" * 40, "[" * 1000, "{a=" * 200, "[" * 300 + "]" * 300, "0x" + "f" * 5000, "1" * 5000, "1e999", "0b1" + "0" * 400,
    "-0.0", "07:32:00", "1979-05-27", "1979-13-45", "+inf", "'~root/x'", "'~nobody-at-all/x'", '"\u0000"', '"\ud800"',
    "1_000", "0o777",
)  # fmt: skip
_BYTES_MAX = 4 * 1024  # tomllib needs a millisecond for each 10 KB, whatever is in them


class _Raw(str):
    """TOML as it stands."""


class ConfigSurface:
    """See the module."""

    name = "config"
    share = 1.0

    def __init__(self, rng: Random) -> None:
        self._raw = [text.encode() for text in _TEXTS]
        self._tables = [tomllib.loads(text) for text in _TEXTS]

    def case(self, rng: Random) -> Case:
        """See Surface."""
        at = int(rng.random() * len(self._raw))
        draw = rng.random()
        context = None
        if draw < 0.15:
            value = any_value(rng)
            context = (pick(rng, _VARIABLES), str(value) if rng.random() < 0.5 else _toml(value))
        if draw < 0.35:
            return Case("text", mutate_bytes(self._raw[at], rng, self._raw), False, context)
        table = dict(self._tables[at])
        if draw < 0.95:
            section = pick(rng, tuple(table))
            values = dict(table[section])
            key = pick(rng, tuple(values))
            if rng.random() < 0.3:
                key = pick(rng, [item.name for item in SECTIONS[section].settings])
            if draw < 0.38:
                values[key] = _Raw(pick(rng, _RAW))
            else:
                values[key] = mutate_value(values[key], rng) if key in values else any_value(rng)
            table[section] = values
        else:
            table = mutate_value(table, rng)
        body = _document(table).encode("utf-8", "surrogatepass")
        if len(body) > _BYTES_MAX:
            return Case("text", mutate_bytes(self._raw[at], rng, self._raw), False, context)
        return Case("text", body, True, context)

    def seal(self, case: Case) -> tuple[bytes, dict[str, str]]:
        """See Surface."""
        return case.body, {} if case.context is None else {case.context[0]: case.context[1]}

    async def deliver(self, arrived: tuple[bytes, dict[str, str]]) -> None:
        """See Surface."""
        body, environment = arrived
        try:
            text = body.decode("utf-8")
        except UnicodeDecodeError:
            return  # said by ``load_config`` before anything is parsed
        try:
            config = parse_config(text, _PATH, environment)
        except ConfigError as error:
            assert error.problems and error.sentence
            return
        _use(config)

    def rest(self) -> None:
        """See Surface."""

    def close(self) -> None:
        """See Surface."""


def _use(config: Config) -> None:
    """As the daemon does at its start."""
    settings_mapping.swim_settings(config).validate()
    settings_mapping.store_settings(config)
    settings_mapping.bulk_settings(config)
    settings_mapping.source_settings(config)
    keys = Keys(_SECRET, KeyRing(b"c" * 16, (b"k" * 32,)), (), ())
    settings_mapping.capabilities(config, keys).to_bytes()
    sign_record(settings_mapping.own_record(config, keys, 1), b"c" * 16, lambda message: bytes(64))
    SourcePolicy.parse(config.sources.allow)


def _document(table: Any) -> str:
    """TOML of a table of tables; what is none becomes a value at the top."""
    if not isinstance(table, dict):
        return f"value = {_toml(table)}\n"
    plain = [f"{_key(key)} = {_toml(value)}\n" for key, value in table.items() if not isinstance(value, dict)]
    sections = [
        f"[{_key(name)}]\n" + "".join(f"{_key(key)} = {_toml(value)}\n" for key, value in values.items())
        for name, values in table.items()
        if isinstance(values, dict)
    ]
    return "".join(plain + sections)


def _key(key: object) -> str:
    text = str(key)
    return text if text.isascii() and text.replace("_", "a").isalnum() else json.dumps(text, ensure_ascii=False)


def _toml(value: Any) -> str:
    if isinstance(value, _Raw):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return str(value) if math.isfinite(value) else "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(key)} = {_toml(item)}" for key, item in value.items()) + "}"
    return "1979-05-27T07:32:00Z" if value is None else json.dumps(value.decode("latin-1"), ensure_ascii=False)
