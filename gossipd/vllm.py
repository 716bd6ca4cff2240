"""vLLM loading a model's weights through the daemon of this host: ``vllm serve DIR --load-format gossipd``.

What lives here: a model loader that vLLM finds by its entry point: it orders what a rank needs, waits until that is
here, and holds it while vLLM reads it. What does not: reading, which is vLLM's own, and the configuration and tokenizer
of the model, which vLLM reads from DIR, or a name in the Hub's cache, before it makes a loader. Nothing else of gossipd
imports this, or vLLM.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vllm.model_executor.model_loader import register_model_loader
from vllm.model_executor.model_loader.default_loader import DefaultModelLoader

from gossipd.client.client import Client
from gossipd.core.errors import UsageError

LOAD_FORMAT = "gossipd"
_OPTIONS: dict[str, Any] = {
    "name": str,
    "version": int,
    "want": list,
    "part": bool,
    "timeout": (int, float),
    "socket": str,
}


class GossipdModelLoader(DefaultModelLoader):
    """Options, in ``--model-loader-extra-config``: ``name`` of the model; ``version``, the newest without it; ``want``,
    a list of terms such as ``ep:3/16`` that are ordered first; ``part``, whether to load the part that is here, true
    with ``want``; ``timeout`` in seconds, for ever without it; ``socket``, as ``Client`` finds it without it. All
    others are those of vLLM's own loader."""

    def __init__(self, load_config: Any) -> None:
        """Raises UsageError: an option is missing or of another type."""
        given = dict(load_config.model_loader_extra_config)
        own = {key: given.pop(key) for key in _OPTIONS if key in given}
        wrong = [key for key, value in own.items() if not isinstance(value, _OPTIONS[key])]
        if wrong or not own.get("name"):
            raise UsageError(f"model_loader_extra_config needs a name, and its {wrong or ['name']} of the right type")
        plain = copy.copy(load_config)
        plain.load_format, plain.model_loader_extra_config = "auto", given
        super().__init__(plain)
        self._own = own
        self._client = Client(own.get("socket"))
        self._is_part = own.get("part", bool(own.get("want")))

    def download_model(self, model_config: Any) -> None:
        """See BaseModelLoader. Raises what ``Client.want`` and ``Client.wait`` do."""
        self._fetched()

    def load_weights(self, model: Any, model_config: Any) -> None:
        """See BaseModelLoader. Raises also what ``Client.hold`` does."""
        with self._held() as directory:
            here = copy.copy(model_config)
            here.model, here.revision = str(directory), None
            super().load_weights(model, here)

    def _fetched(self) -> int:
        name, want = self._own["name"], self._own.get("want", [])
        if want:
            self._client.want(name, *want)
        return self._client.wait(name, self._own.get("version"), timeout=self._own.get("timeout")).version

    @contextmanager
    def _held(self) -> Iterator[Path]:
        with self._client.hold(self._own["name"], self._fetched(), part=self._is_part) as directory:
            yield directory


def register() -> None:
    """Make the load format known: the entry point that vLLM calls in each of its processes."""
    register_model_loader(LOAD_FORMAT)(GossipdModelLoader)
