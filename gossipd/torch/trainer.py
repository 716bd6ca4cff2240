"""A callback of ``transformers.Trainer`` whose checkpoints become versions: ``pip install gossipd[trainer]``.

What lives here: when the trainer's saves are published. What does not: what it saves, and how a run is resumed: with
``newest`` and ``Client.path``, then ``trainer.train(resume_from_checkpoint=PATH)``.
"""

from __future__ import annotations

import logging
from concurrent.futures import CancelledError, Future, wait
from pathlib import Path
from typing import Any

from transformers import TrainerCallback
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from gossipd.client import Client, Publication
from gossipd.core.errors import GossipdError

_log = logging.getLogger(__name__)


class GossipdCallback(TrainerCallback):
    """``Trainer(..., callbacks=[GossipdCallback("run-7")])``: each ``checkpoint-STEP`` is published beside training.

    The first process of the job publishes; the others, which share the directory, do nothing. A checkpoint that is
    saved before the last one was begun replaces it: versions between may be missing, the newest never. A publication
    that fails is logged, and the training goes on; of the last one the error is raised when the training ends.
    """

    def __init__(
        self, name: str, *, client: Client | None = None, keep_last: int | None = None, keep_every: int | None = None
    ) -> None:
        """``name``: of the model whose versions these are. The others: as of ``Client.publish``."""
        self._name = name
        self._client = client or Client()
        self._kept: dict[str, Any] = {"keep_last": keep_last, "keep_every": keep_every}
        self._future: Future[Publication] | None = None
        self.publication: Publication | None = None
        """The newest that is made."""

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """See TrainerCallback. Waits where the trainer keeps one checkpoint only: it deletes this one before it saves
        the next."""
        if not state.is_world_process_zero:
            return
        directory = Path(args.output_dir) / f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}"
        self._note()
        self._future = self._client.publish_async(directory, name=self._name, step=state.global_step, **self._kept)
        if args.save_total_limit == 1:
            wait([self._future])

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """See TrainerCallback. Raises what ``Client.publish`` raised for the last checkpoint."""
        if self._future is not None:
            future, self._future = self._future, None
            self.publication = future.result()

    def _note(self) -> None:
        """Take over how the publication before has ended, if it has."""
        if self._future is None or not self._future.done():
            return
        try:
            self.publication = self._future.result()
        except (GossipdError, CancelledError) as error:
            _log.warning("a checkpoint of %s was not published: %s", self._name, error)
