"""A run of real MLflow on sqlite refers to a version, and MLflow loads it from the disk of a real daemon's host."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import mlflow
import pytest
from mlflow.exceptions import MlflowException

from gossipd.client import Client, NotThereError
from gossipd.core.errors import NotFoundError, UsageError
from gossipd.mlflow import about_run, log_reference, uri_of
from tests.e2e.cluster import publishing_cluster, same_tree

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # MLflow's own, of its database


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """Of a host whose daemon publishes; MLflow's store is a file."""
    with publishing_cluster(tmp_path) as cluster:
        cluster.start(hosts=1, racks=1)
        socket = cluster.daemons["node-1"].home / "gossipd.sock"
        monkeypatch.setenv("GOSSIPD_SOCKET", str(socket))
        monkeypatch.chdir(tmp_path)
        mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/mlflow.db")
        try:
            yield Client(socket)
        finally:
            while mlflow.active_run() is not None:
                mlflow.end_run()


def saved(path: Path) -> Path:
    (path / "model").mkdir(parents=True)
    (path / "model" / "weights.bin").write_bytes(b"w" * 300_000)
    (path / "config.json").write_text("{}")
    return path


def test_a_run_and_a_version_refer_to_each_other(job: Client, tmp_path: Path) -> None:
    step = saved(tmp_path / "step-10")
    with mlflow.start_run(run_name="first") as run:
        about = {**about_run(), "wandb": {"run": "acme/llm/3xy7"}}
        made = job.publish(step, name="train/run", step=10, about=about)
        uri = log_reference(made)
    assert uri == "gossipd:/train/run/10" == uri_of("train/run", 10)
    stored = mlflow.MlflowClient().get_run(run.info.run_id)
    assert stored.data.tags["gossipd.id"] == made.id
    assert stored.data.tags["gossipd.uri"] == uri
    reference = json.loads(
        Path(mlflow.artifacts.download_artifacts(run_id=run.info.run_id, artifact_path="gossipd/train--run@10.json"))
        .read_text()
    )  # fmt: skip
    assert reference == {"uri": uri, "name": "train/run", "version": 10, "id": made.id, "bytes_total": 300_002}
    (told,) = job.lineage("train/run", 10)
    assert told.about["mlflow"]["run_id"] == run.info.run_id
    assert told.about["wandb"] == {"run": "acme/llm/3xy7"}
    assert told.about["run"] == "first"


def test_mlflow_reads_a_version_in_place_and_copies_it_where_asked(job: Client, tmp_path: Path) -> None:
    step = saved(tmp_path / "step-10")
    job.publish(step, name="run", step=10)
    uri = uri_of("run", 10)
    assert Path(mlflow.artifacts.download_artifacts(uri)) == job.path("run", 10)
    inner = mlflow.artifacts.download_artifacts(f"{uri}/model/weights.bin")
    assert Path(inner) == job.path("run", 10) / "model" / "weights.bin"
    copy = mlflow.artifacts.download_artifacts(uri, dst_path=str(tmp_path / "copy"))
    assert same_tree(step, Path(copy))
    registry = mlflow.MlflowClient()
    registry.create_registered_model("prod")
    registry.create_model_version("prod", source=uri)
    assert registry.get_model_version("prod", "1").source == uri
    assert Path(mlflow.artifacts.download_artifacts("models:/prod/1")) == job.path("run", 10)


def test_what_is_not_there_is_said(job: Client, tmp_path: Path) -> None:
    job.publish(saved(tmp_path / "step-10"), name="run", step=10)
    with pytest.raises(NotThereError, match="run@11 is not on this host"):
        mlflow.artifacts.download_artifacts("gossipd:/run/11")
    with pytest.raises(NotFoundError, match="run@10 has no nothing"):
        mlflow.artifacts.download_artifacts("gossipd:/run/10/nothing")
    with pytest.raises((UsageError, MlflowException)):
        mlflow.artifacts.download_artifacts("gossipd:/run/10/../../x")
    with pytest.raises(UsageError, match="no MLflow run is active"):
        about_run()
