"""Names of models, nodes and racks; those that are refused are in the bad-input table."""

from __future__ import annotations

import pytest

from gossipd.manifest.errors import ManifestError
from gossipd.manifest.names import check_label, check_model_name, split_model


@pytest.mark.parametrize("name", ["m", "Qwen/Qwen3-235B-A22B", "_x", "a.b_c-d", "9", "x" * 128, "7/a", "org/7b"])
def test_a_model_is_a_name_or_an_organisation_and_a_name(name: str) -> None:
    assert check_model_name(name) == name


def test_a_version_can_follow() -> None:
    assert split_model("org/m@12") == ("org/m", 12)
    assert split_model("org/m") == ("org/m", None)


@pytest.mark.parametrize(
    "text", ["m@", "m@-1", "m@1.0", "m@1@2", "@1", "m@٣", "m@99999999999999999", "m@9007199254740992"]
)
def test_a_version_is_a_natural_number_within_53_bits(text: str) -> None:
    with pytest.raises(ManifestError) as caught:
        split_model(text)
    assert caught.value.code == "E_NAME"


def test_labels_have_no_slash() -> None:
    assert check_label("rack-1.a", "rack") == "rack-1.a"
    with pytest.raises(ManifestError, match="rack 'a/b'"):
        check_label("a/b", "rack")
