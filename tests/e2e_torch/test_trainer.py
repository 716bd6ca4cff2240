"""The real Trainer of transformers on a small model: its checkpoints are versions, another host goes on."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments

from gossipd.client import Client
from gossipd.client.errors import NotTrustedError
from gossipd.torch.trainer import GossipdCallback
from tests.e2e.cluster import PATIENCE_S, Cluster, publishing_cluster, same_tree, until
from tests.e2e.cluster import cluster as cluster_without_keys

EXAMPLES = [{"input_ids": (row := torch.arange(at, at + 8) % 32), "labels": row} for at in range(16)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with publishing_cluster(tmp_path) as cluster:
        yield cluster


def trainer(output: Path, callback: TrainerCallback, *, limit: int | None = None, steps: int = 4) -> Trainer:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=32, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2,
    )  # fmt: skip
    arguments = TrainingArguments(
        output_dir=str(output), max_steps=steps, save_steps=2, save_total_limit=limit, use_cpu=True, report_to=[],
        per_device_train_batch_size=2, disable_tqdm=True, dataloader_pin_memory=False,
    )  # fmt: skip
    return Trainer(model=LlamaForCausalLM(config), args=arguments, train_dataset=EXAMPLES, callbacks=[callback])


@pytest.mark.parametrize("limit", [None, 1])
def test_checkpoints_become_versions_and_another_host_goes_on_from_the_last(
    cluster: Cluster, tmp_path: Path, limit: int | None
) -> None:
    cluster.start(hosts=2, racks=1)
    here, there = (Client(one.home / "gossipd.sock") for one in cluster.daemons.values())
    callback = GossipdCallback("run", client=here)
    first = trainer(tmp_path / "first", callback, limit=limit)
    first.train()
    assert callback.publication is not None and callback.publication.version == 4
    there.wait("run", 4, timeout=PATIENCE_S)
    with there.hold("run", 4) as directory:
        loaded = LlamaForCausalLM.from_pretrained(directory)
        second = trainer(tmp_path / "second", TrainerCallback(), steps=6)
        second.train(resume_from_checkpoint=str(directory))
    for name, weights in first.model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], weights)
    assert second.state.global_step == 6


def test_a_model_loads_by_its_repositorys_name_on_a_host_that_never_saw_the_hub(
    cluster: Cluster, tmp_path: Path
) -> None:
    cache, saved = tmp_path / "hub", tmp_path / "saved"
    names = {"GOSSIPD_HF__CACHES": f'["{cache}"]', "GOSSIPD_HF__NAMES": '{"tiny" = ["acme/tiny"]}'}
    here, there = cluster.add("node-1", "rack-1"), cluster.add("node-2", "rack-1", **names)
    for node in (here, there):
        node.start()
    cluster.wait_together()
    model = trainer(tmp_path / "out", TrainerCallback()).model
    model.save_pretrained(saved)
    made = Client(here.home / "gossipd.sock").publish(saved, name="tiny")
    until("the link is there", (cache / "models--acme--tiny" / "snapshots" / made.id[:40]).is_symlink)
    until("so is the ref", (cache / "models--acme--tiny" / "refs" / "main").is_file)
    loaded = LlamaForCausalLM.from_pretrained("acme/tiny", cache_dir=cache, local_files_only=True)
    assert all(torch.equal(loaded.state_dict()[name], one) for name, one in model.state_dict().items())

    def hf(*words: str) -> str:
        command = [sys.executable, "-m", "huggingface_hub.cli.hf", "cache", *words, "--cache-dir", str(cache)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert "acme/tiny" in hf("ls")
    hf("rm", "model/acme/tiny", "--yes")
    assert same_tree(saved, there.tree("tiny", 1)), "the library removes links only"


def test_a_model_of_which_a_part_is_here_loads_that_part_and_names_what_is_missing(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.start(hosts=2, racks=1)
    here, there = (Client(one.home / "gossipd.sock") for one in cluster.daemons.values())
    config = LlamaConfig(
        vocab_size=4096, hidden_size=128, intermediate_size=128, num_hidden_layers=1, num_attention_heads=2
    )
    model = LlamaForCausalLM(config)
    model.save_pretrained(tmp_path / "saved")
    there.want("tiny", "tensors:model.*")
    here.publish(tmp_path / "saved", name="tiny")
    there.wait("tiny", timeout=PATIENCE_S)
    with there.hold("tiny", part=True) as directory:
        loaded, told = LlamaForCausalLM.from_pretrained(directory, output_loading_info=True)
    assert set(told["missing_keys"]) == {"lm_head.weight"}
    for name, weights in model.model.state_dict().items():
        assert torch.equal(loaded.model.state_dict()[name], weights)


def test_a_refusal_is_logged_while_training_goes_on_and_raised_at_its_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with cluster_without_keys(tmp_path) as cluster:
        cluster.start(hosts=1, racks=1)
        [daemon] = cluster.daemons.values()
        callback = GossipdCallback("run", client=Client(daemon.home / "gossipd.sock"))
        refused = trainer(tmp_path / "out", callback, limit=1)
        with caplog.at_level(logging.WARNING), pytest.raises(NotTrustedError):
            refused.train()
        assert refused.state.global_step == 4, "all steps were made"
        assert caplog.text.count("a checkpoint of run was not published") == 1, "and the last one is raised"
        assert callback.publication is None


def test_only_the_first_process_of_a_job_publishes(tmp_path: Path) -> None:
    class Process:
        is_world_process_zero = False

    callback = GossipdCallback("run", client=Client(tmp_path / "nobody.sock"))
    callback.on_save(None, Process(), None)
    callback.on_train_end(None, Process(), None)
    assert callback.publication is None
