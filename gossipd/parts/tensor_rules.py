"""Which tensors a want admits, by their names: patterns, the experts of a rank, the layers of a stage.

What lives here: how models of experts and of layers name their tensors. What does not: bytes (``part``).

Experts are numbered in names, ``...experts.17.down_proj.weight``; shared experts have no number, and experts that are
one tensor together, and their scales, stay whole, as vLLM's own filter leaves them. Layers are numbered by the first of
``layers.N``, ``h.N``, ``blocks.N``. What has no layer goes with the first stage where it embeds, with the last where it
is a norm or a head, and with every stage where neither is clear. Without a head of its own a model reads its
embeddings in the last stage too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fnmatch import translate

from msgspec import Struct

from gossipd.parts.want import Experts, Layers, TensorNames, TensorRule, TensorsWanted, WantError

_EXPERT = re.compile(r"(?:^|\.)experts\.([0-9]{1,9})\.")
_LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks|block)\.([0-9]{1,9})(?:\.|\Z)")
_EMBEDS = re.compile(r"embed|(?:^|\.)w[tp]e\.")
_ENDS = re.compile(r"(?:^|\.)(?:norm|ln_f|final_layernorm|final_layer_norm)\b|head|(?:^|\.)output\.")
_HEAD = re.compile(r"head|(?:^|\.)output\.")

Admits = Callable[[str], bool]


class ModelNumbers(Struct, frozen=True):
    """What a model's names say of the whole: how many experts and layers, and whether it has a head."""

    experts: int
    layers: int
    has_head: bool


def number_model(names: Sequence[str]) -> ModelNumbers:
    """Count experts and layers by the highest number."""
    experts = [int(found[1]) for name in names if (found := _EXPERT.search(name))]
    layers = [int(found[1]) for name in names if (found := _LAYER.search(name))]
    return ModelNumbers(
        max(experts, default=-1) + 1, max(layers, default=-1) + 1, any(_HEAD.search(name) for name in names)
    )


def admits(term: TensorsWanted, numbers: ModelNumbers) -> Admits:
    """Whether a tensor is wanted, by its name. Raises WantError: the model has no such experts or layers."""
    tests = [_test(rule, numbers) for rule in term.rules]
    return lambda name: all(test(name) for test in tests)


def _test(rule: TensorRule, numbers: ModelNumbers) -> Admits:
    match rule:
        case TensorNames(glob):
            pattern = re.compile(translate(glob))
            return lambda name: pattern.match(name) is not None
        case Experts(rank, ranks):
            return _experts(rank, ranks, numbers)
        case Layers(first, last):
            return _layers(first, last, numbers)


def _experts(rank: int, ranks: int, numbers: ModelNumbers) -> Admits:
    if numbers.experts < ranks:
        raise WantError(f"want 'ep:{rank}/{ranks}': the model names {numbers.experts} experts; give fewer ranks")
    low, high = rank * numbers.experts // ranks, (rank + 1) * numbers.experts // ranks

    def test(name: str) -> bool:
        found = _EXPERT.search(name)
        return found is None or low <= int(found[1]) < high

    return test


def _layers(first: int, last: int, numbers: ModelNumbers) -> Admits:
    if last >= numbers.layers:
        raise WantError(f"want 'pp:{first}-{last}': the model names {numbers.layers} layers, counted from 0")
    is_first, is_last = first == 0, last == numbers.layers - 1

    def test(name: str) -> bool:
        found = _LAYER.search(name)
        if found is not None:
            return first <= int(found[1]) <= last
        if _EMBEDS.search(name):
            return is_first or (is_last and not numbers.has_head)
        return is_last if _ENDS.search(name) else True

    return test
