"""Publishing: find the files, hash every chunk on all cores, sign the result. Nothing here talks to a daemon.

* All steps: ``publisher``, ``output`` (writes the manifest), ``inspection`` (what looks wrong), ``model_signature``
  (of another tool), ``errors``
* Files on a disk: ``selection``, ``tree``, ``empty_directories``, ``file_reading``
* Files elsewhere: ``bucket``, ``odd_keys``, ``hub_listing``
* Chunks and hashes: ``extents`` (the work's parts), ``hashing``, ``safetensors_header``, ``tensor_borders``
* For jobs: ``permits`` (who may), ``next_version``, ``adoption`` (whose files), ``shard_hashing``, ``git_facts``
* Steps of a training run: ``step_listing``, ``step_watch``
"""
