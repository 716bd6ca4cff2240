"""OpenSSF Model Signing beside a manifest: a signature that lies in the tree is required, or one is made.

What lives here: asking the package ``model-signing`` (extra ``signing``), and which files its signature must name. What
does not: hashing for it (``file_reading.WholeFiles``). Hosts never look at such a signature: it would be a second hash
of all bytes and a second root of trust. They deliver ``model.sig`` as any other file, for who wants to verify it.

A signature is required of the tree as it is published: all that it names, and nothing beside, so that the stock tool
accepts what hosts get. Rejected: taking its hashes over, because it has none of chunks.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Collection, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm

from gossipd.manifest.errors import shown
from gossipd.publish.errors import ModelSignatureError, PublishError
from gossipd.publish.output import check_writable, write_whole

SIGNATURE = "model.sig"
HASH = "sha256"  # the only one that the stock tool compares when it verifies
IGNORED = (".git", ".gitattributes", ".github", ".gitignore")
"""What the stock tool leaves out at the top of every tree."""
_OUT_OPTION = "--model-sig-out"
_SAID_MAX = 300  # characters of the library's sentence, which may name thousands of files
_REFUSALS = (
    ValueError, LookupError, TypeError, AttributeError, RecursionError, OSError, InvalidSignature, UnsupportedAlgorithm
)  # fmt: skip
"""What the library raises on hostile or unsuitable files; it has no exception of its own."""


@dataclass(frozen=True, slots=True)
class _Digest:
    """As the library has it."""

    algorithm: str
    digest_value: bytes

    @property
    def digest_hex(self) -> str:
        return self.digest_value.hex()


@dataclass(frozen=True, slots=True)
class _Hashed:
    """In place of the library's hashing configuration: the hashes are known already."""

    manifest: Any

    def hash(self, _path: object) -> Any:
        return self.manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSigning:
    """What the operator asked for; by default nothing. Keys are PEM files of curve P-256, P-384 or P-521."""

    required: Path | None = None
    """The public key whose signature ``model.sig`` must be."""
    key: Path | None = None
    """The secret key that signs the published files."""
    out: Path = Path(SIGNATURE)
    """Where that signature goes."""

    @property
    def is_wanted(self) -> bool:
        return self.required is not None or self.key is not None

    def check(self, directory: Path | None, paths: Collection[str]) -> None:
        """Before the hashing: whether the signature that is required is there and right, and another could be made.

        Args:
            directory: where the files lie; None where that is no directory of this host.
            paths: of the files that are published.
        Raises: ModelSignatureError; PublishError ``E_EXTRA_MISSING``, ``E_OUTPUT``.
        """
        if not self.is_wanted:
            return
        if directory is None:
            raise ModelSignatureError("model signatures are of a directory of this host; publish from there")
        if self.required is not None:
            _check_required(directory, self.required, paths)
        if self.key is not None:
            check_writable(self.out, _OUT_OPTION)
            _signer(self.key)

    def write(self, name: str, digests: Mapping[str, bytes]) -> None:
        """Sign the files and write the signature, where that was asked for.

        Args:
            name: of the model, as the signature has it.
            digests: of each published file its whole SHA-256, by path.
        Raises: as ``check``.
        """
        if self.key is None:
            return
        from model_signing import manifest

        serialization = {"method": "files", "hash_type": HASH, "allow_symlinks": False, "ignore_paths": list(IGNORED)}
        items = [
            manifest.FileManifestItem(path=PurePosixPath(path), digest=_Digest(HASH, digest))
            for path, digest in digests.items() if PurePosixPath(path).parts[0] not in IGNORED
        ]  # fmt: skip
        made = manifest.Manifest(name, items, manifest.SerializationType.from_args(serialization))
        with TemporaryDirectory(prefix="gossipd-") as temporary:
            written = Path(temporary, SIGNATURE)
            try:
                _signer(self.key).set_hashing_config(_Hashed(made)).sign(temporary, written)
            except _REFUSALS as error:
                raise ModelSignatureError(f"{shown(str(self.key))} does not sign: {_said(error)}") from None
            write_whole(self.out, written.read_bytes(), _OUT_OPTION)


def _check_required(directory: Path, key: Path, paths: Collection[str]) -> None:
    verifying, file = _library("verifying"), directory / SIGNATURE
    try:
        verifier = verifying.Config().use_elliptic_key_verifier(public_key=key)
    except _REFUSALS as error:
        raise _unfit(key, "public", error) from None
    try:
        before = file.read_bytes()
        with redirect_stdout(sys.stderr):  # it warns of old signatures there
            verifier.verify(directory, file)
        named = _named(before)
        if file.read_bytes() != before:
            raise ValueError("it changed while it was verified")
    except InvalidSignature:
        raise ModelSignatureError(f"{shown(str(file))} is not of {shown(str(key))}, or was changed") from None
    except FileNotFoundError:
        raise ModelSignatureError(f"{shown(str(file))} is not there, and a model signature is required") from None
    except _REFUSALS as error:
        raise ModelSignatureError(f"{shown(str(file))}: {_said(error)}") from None
    if SIGNATURE not in paths:
        raise ModelSignatureError(f"{SIGNATURE} is required and left out; take it in with --include {SIGNATURE}")
    for path in sorted(named.difference(paths)):
        raise ModelSignatureError(
            f"{shown(path)} is in {SIGNATURE} and left out, so that hosts could not verify the rest; "
            "--no-default-excludes takes in what is left out by default"
        )


def _named(signature: bytes) -> set[str]:
    """The paths in a signature that the library has found right."""
    statement = json.loads(base64.b64decode(json.loads(signature)["dsseEnvelope"]["payload"]))
    if "predicate" not in statement or "resources" not in statement["predicate"]:
        return {one["name"] for one in statement["subject"]}  # of a signer before 1.0
    is_shards = statement["predicate"]["serialization"]["method"] == "shards"
    names = (one["name"] for one in statement["predicate"]["resources"])
    return {name.rsplit(":", 2)[0] if is_shards else name for name in names}


def _signer(key: Path) -> Any:
    try:
        return _library("signing").Config().use_elliptic_key_signer(private_key=key)
    except _REFUSALS as error:
        raise _unfit(key, "secret", error) from None


def _unfit(key: Path, kind: str, error: Exception) -> ModelSignatureError:
    what = f"{shown(str(key))} is no {kind} key of P-256, P-384 or P-521 in PEM, without a password"
    return ModelSignatureError(f"{what}: {_said(error)}")


def _said(error: Exception) -> str:
    text = ascii(str(error))[1:-1]
    return f"{text[:_SAID_MAX]}{'...' * (len(text) > _SAID_MAX)}" or type(error).__name__


def _library(module: str) -> Any:
    try:
        import model_signing.signing
        import model_signing.verifying
    except ImportError:
        cure = "pip install 'gossipd[signing]'"
        raise PublishError(f"model signatures need model-signing: {cure}", code="E_EXTRA_MISSING") from None
    return getattr(model_signing, module)
