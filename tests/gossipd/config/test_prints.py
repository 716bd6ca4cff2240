"""What changes the prints that hosts compare, and what does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gossipd.config.keys import Keys
from gossipd.config.load import parse_config
from gossipd.config.prints import PRINT_NAMES, PRINTS_BYTES, named_prints, prints_of
from gossipd.config.sections import Config
from gossipd.config.status_sections import DRIFT_ASPECTS
from gossipd.diagnosis.drift import ASPECTS
from gossipd.identity.keys import SecretKey
from gossipd.swarm import capabilities
from membership.seal import KeyRing

ONE, TWO = SecretKey(b"1" * 32), SecretKey(b"2" * 32)
KEYS = Keys(ONE, KeyRing(b"c" * 16, (b"k" * 32, b"l" * 32)), (ONE.public, TWO.public), (TWO.public,))


def config(more: str = "", name: str = "a", home: str = "/srv/a") -> Config:
    text = f'[node]\nname = "{name}"\nrack = "r-{name}"\n[net]\nbind = "127.0.0.1"\n{more}\n'
    return parse_config(text, Path(home) / "gossipd.toml", {})


def changed(other: Config, keys: Keys = KEYS) -> list[str]:
    before, after = named_prints(prints_of(config(), KEYS)), named_prints(prints_of(other, keys))
    return [name for name in PRINT_NAMES if before[name] != after[name]]


def test_a_host_of_another_name_place_and_directory_has_the_same_prints() -> None:
    own = '[sources]\nenabled = false\n[log]\nlevel = "debug"\n[hooks]\nfailed = ["/bin/true"]'
    assert changed(config(own, name="b", home="/srv/b"), replace(KEYS, node=TWO)) == []


@pytest.mark.parametrize(
    ("more", "name"),
    [
        ('[bulk]\nencryption = "none"', "encryption"),
        ("[limits]\nupload_slots = 3", "settings"),
        ('[sources]\nallow = ["s3"]', "settings"),
        ('[security]\nmay_cancel = ["member"]', "clients"),
    ],
)
def test_a_setting_that_should_be_shared_changes_its_print(more: str, name: str) -> None:
    assert changed(config(more)) == [name]


@pytest.mark.parametrize(
    ("keys", "name"),
    [
        ({"publishers": (ONE.public,)}, "trust"),
        ({"publisher_names": {ONE.public.ed25519: ("prod/*",)}}, "trust"),
        ({"clients": ()}, "clients"),
        ({"cluster": KeyRing(b"c" * 16, (b"k" * 32,))}, "cluster_key"),
        ({"cluster": KeyRing(b"c" * 16, (b"l" * 32, b"k" * 32))}, "cluster_key"),
    ],
)
def test_a_key_more_or_less_changes_its_print_and_so_does_the_one_that_sends(keys: Any, name: str) -> None:
    assert changed(config(), replace(KEYS, **keys)) == [name]


def test_the_order_of_trusted_keys_changes_nothing() -> None:
    assert changed(config(), replace(KEYS, publishers=(TWO.public, ONE.public))) == []


def test_prints_of_another_length_are_none() -> None:
    assert named_prints(b"") == named_prints(bytes(PRINTS_BYTES + 1)) == {}
    assert capabilities.PRINTS_BYTES == PRINTS_BYTES


def test_the_alarm_may_be_about_the_version_and_every_print() -> None:
    assert ("version", *PRINT_NAMES) == DRIFT_ASPECTS
    assert set(DRIFT_ASPECTS) == ASPECTS.keys() - {"clock"}
