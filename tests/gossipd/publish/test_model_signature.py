"""Model signatures without the library: what is refused before it is asked. With it: ``tests/e2e_torch``."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gossipd.publish.errors import ModelSignatureError, PublishError
from gossipd.publish.model_signature import ModelSigning
from tests.gossipd.publish.trees import make_tree, published

WANTED = [ModelSigning(required=Path("ec.pub")), ModelSigning(key=Path("ec.pem"), out=Path("/tmp/model.sig"))]


@pytest.mark.parametrize("signing", WANTED)
def test_a_signature_is_of_a_directory_on_this_host_alone(signing: ModelSigning) -> None:
    with pytest.raises(ModelSignatureError, match="a directory of this host"):
        signing.check(None, {"config.json"})


@pytest.mark.parametrize("signing", WANTED)
def test_without_the_library_it_says_what_to_install(
    signing: ModelSigning, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "model_signing", None)
    with pytest.raises(PublishError, match=r"pip install 'gossipd\[signing\]'") as refused:
        signing.check(tmp_path, {"config.json"})
    assert refused.value.code == "E_EXTRA_MISSING"


def test_nothing_is_published_before_a_required_signature_was_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "model_signing", None)
    tree, out = make_tree(tmp_path / "tree"), tmp_path / "m.manifest"
    with pytest.raises(PublishError, match="model-signing"):
        published(tree, out, model_signing=ModelSigning(required=tmp_path / "ec.pub"))
    assert not out.exists()


def test_nothing_is_asked_of_who_wants_no_signature() -> None:
    ModelSigning().check(None, ())
    ModelSigning().write("m", {})
