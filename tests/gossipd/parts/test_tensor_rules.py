"""Which tensors are a rank's or a stage's, by the names that models give them."""

from __future__ import annotations

import pytest

from gossipd.parts.tensor_rules import admits, number_model
from gossipd.parts.want import TensorsWanted, WantError, parse_want

NAMES = [
    "model.embed_tokens.weight",
    *(f"model.layers.{layer}.self_attn.q_proj.weight" for layer in range(4)),
    *(f"model.layers.{layer}.mlp.experts.{expert}.up.weight" for layer in range(4) for expert in range(6)),
    *(f"model.layers.{layer}.mlp.shared_experts.up.weight" for layer in range(4)),
    "model.layers.3.mlp.experts.gate_up_proj",
    "model.norm.weight",
    "lm_head.weight",
    "rotary.inv_freq",
]


def admitted(text: str, names: list[str] = NAMES) -> set[str]:
    (term,) = parse_want([text]).terms
    assert isinstance(term, TensorsWanted)
    test = admits(term, number_model(names))
    return {name for name in names if test(name)}


def test_the_ranks_of_experts_share_all_of_them_and_each_has_the_rest() -> None:
    ranks = [admitted(f"ep:{rank}/4") for rank in range(4)]
    numbered = {name for name in NAMES if ".experts." in name and "gate_up" not in name}
    assert set.union(*ranks) == set(NAMES)
    assert all(set(NAMES) - numbered <= rank for rank in ranks)
    assert sum(len(rank & numbered) for rank in ranks) == len(numbered)
    assert [len(rank & numbered) // 4 for rank in ranks] == [1, 2, 1, 2]


def test_embeddings_go_with_the_first_stage_and_the_head_with_the_last() -> None:
    first, last = admitted("pp:0-1"), admitted("pp:2-3")
    assert first | last == set(NAMES) and first & last == {"rotary.inv_freq"}
    assert "model.embed_tokens.weight" in first and {"lm_head.weight", "model.norm.weight"} <= last


def test_a_model_without_a_head_reads_its_embeddings_in_the_last_stage_too() -> None:
    names = [name for name in NAMES if "head" not in name]
    assert "model.embed_tokens.weight" in admitted("pp:2-3", names)


def test_joined_rules_admit_what_each_of_them_admits() -> None:
    assert admitted("pp:0-1&ep:0/2") == admitted("pp:0-1") & admitted("ep:0/2")
    assert admitted("tensors:*.layers.0.*") == {name for name in NAMES if ".layers.0." in name}


@pytest.mark.parametrize("text", ["ep:0/7", "pp:0-4", "pp:4-4"])
def test_more_ranks_than_experts_and_layers_that_are_not_there_are_refused(text: str) -> None:
    with pytest.raises(WantError, match="the model names"):
        admitted(text)
