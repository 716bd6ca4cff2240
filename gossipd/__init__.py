"""gossipd: one daemon per host, and a model on every host in the time of one download.

Imports point downwards in this list; ``tests/test_house.py`` has the exact rules.

* ``cli`` and ``demo``: the commands. ``daemon`` connects brains and adapters; ``sim`` runs brains on a virtual clock.
* ``client``: the library for jobs, which imports almost nothing; ``torch``, ``mlflow`` and ``vllm`` use it.
  ``web``: the page, a process of its own.
* Adapters, which do I/O and decide nothing: ``store``, ``sources``, ``transfer``, ``control``, ``api``, ``inbox``,
  ``audit``, ``publish``, ``config``. They stand on ``runtime`` (mechanisms) and ``wire`` (message formats).
* Brains, which decide and do no I/O: ``swarm`` (which chunk from whom), ``sessions`` (what two hosts have told each
  other) and ``deployment`` (what is deployed where). ``diagnosis`` says what is wrong, and is no brain.
* Words: ``core`` (ids, errors, events), ``identity`` (keys and trust), ``manifest`` (signed manifests), ``parts``.

``manual`` holds the pages of ``gossipd help``. ``membership``, a package beside this one, never imports it.
"""

__version__ = "0.2.0"
