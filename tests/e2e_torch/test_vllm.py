"""vLLM's own registry and loader with a real daemon: weights come by order, from the whole or from a part."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib.metadata import entry_points
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from vllm.config import DeviceConfig, VllmConfig, set_current_vllm_config
from vllm.config.load import LoadConfig
from vllm.model_executor.model_loader import get_model_loader

from gossipd.client import Client
from gossipd.client.errors import TimedOutError
from gossipd.core.errors import UsageError
from gossipd.vllm import GossipdModelLoader, register
from tests.e2e.cluster import PATIENCE_S, Cluster, Daemon, publishing_cluster

TENSORS = {
    f"model.layers.{layer}.mlp.experts.{expert}.weight": torch.full((300, 300), float(10 * layer + expert))
    for layer in range(2)
    for expert in range(4)
}


class Model(torch.nn.Module):
    """Takes what it is given, as vLLM's models do."""

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        self.taken = {name: weight.clone() for name, weight in weights}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    register()
    config = VllmConfig(device_config=DeviceConfig(device="cpu"))
    with publishing_cluster(tmp_path) as cluster, set_current_vllm_config(config):
        yield cluster


def loader(daemon: Daemon, **options: Any) -> Any:
    extra = {"name": "moe", "socket": str(daemon.home / "gossipd.sock"), "timeout": PATIENCE_S, **options}
    return get_model_loader(LoadConfig(load_format="gossipd", model_loader_extra_config=extra))


def model_config(directory: Path) -> Any:
    """What vLLM's loader asks of it; a whole one needs a GPU's platform."""
    return SimpleNamespace(
        model=str(directory), model_weights=None, revision=None, quantization=None, multimodal_config=None, is_moe=True
    )


def publish(cluster: Cluster, directory: Path) -> list[Daemon]:
    cluster.start(hosts=2, racks=1)
    directory.mkdir()
    save_file(TENSORS, directory / "model.safetensors")
    (directory / "config.json").write_text("{}")
    daemons = list(cluster.daemons.values())
    Client(daemons[0].home / "gossipd.sock").publish(directory, name="moe")
    return daemons


def test_vllm_loads_what_another_host_has_published(cluster: Cluster, tmp_path: Path) -> None:
    _, there = publish(cluster, tmp_path / "moe")
    made = loader(there)
    assert isinstance(made, GossipdModelLoader)
    model = Model()
    config = model_config(tmp_path / "nothing")
    made.download_model(config)
    made.load_weights(model, config)
    assert model.taken.keys() == TENSORS.keys()
    assert all(torch.equal(model.taken[name], weight) for name, weight in TENSORS.items())
    assert config.model == str(tmp_path / "nothing"), "vLLM's own configuration is left as it is"


def test_a_rank_gets_its_experts_by_order_and_no_others(cluster: Cluster, tmp_path: Path) -> None:
    _, there = publish(cluster, tmp_path / "moe")
    model = Model()
    loader(there, want=["ep:1/4"]).load_weights(model, model_config(tmp_path))
    wanted = {name for name in TENSORS if ".experts.1." in name}
    assert wanted <= model.taken.keys() and all(torch.equal(model.taken[name], TENSORS[name]) for name in wanted)


def test_a_version_that_does_not_come_ends_with_the_time_out(cluster: Cluster, tmp_path: Path) -> None:
    here, _ = publish(cluster, tmp_path / "moe")
    with pytest.raises(TimedOutError):
        loader(here, version=9, timeout=0.1).download_model(model_config(tmp_path))


@pytest.mark.parametrize("options", [{"name": ""}, {"version": "3"}, {"want": "ep:1/4"}])
def test_options_that_are_wrong_are_refused_before_anything_is_asked(tmp_path: Path, options: dict[str, Any]) -> None:
    register()
    extra = {"name": "moe", "socket": str(tmp_path / "nobody.sock"), **options}
    with pytest.raises(UsageError, match="model_loader_extra_config"):
        get_model_loader(LoadConfig(load_format="gossipd", model_loader_extra_config=extra))


def test_vllm_finds_the_loader_by_its_entry_point() -> None:
    [found] = entry_points(group="vllm.general_plugins", name="gossipd")
    assert found.value == "gossipd.vllm:register"
