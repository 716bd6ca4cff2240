"""Checkpoints of torch through the daemon of each host: ``pip install gossipd[torch]``.

* ``checkpoints`` a writer and a reader for ``torch.distributed.checkpoint``, and steps that lie on several hosts
* ``trainer`` a callback of ``transformers.Trainer``; imported by itself, because it needs more: ``gossipd[trainer]``

Nothing else of gossipd imports it, or torch.
"""

from gossipd.torch.checkpoints import GossipdReader, GossipdWriter, all_gather, newest, save_shards

__all__ = ["GossipdReader", "GossipdWriter", "all_gather", "newest", "save_shards"]
