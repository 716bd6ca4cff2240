"""Bugs of parts: holes that are read, chunks that nobody wants, and wants that nobody hears."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_HEADER = "tests/gossipd/parts/test_masked_header.py"
_NOTE = "tests/gossipd/store/models/test_part_note.py"
_CLASSES = "tests/gossipd/swarm/test_class_roles.py"

MUTANTS = (
    Mutant(
        "a-hole-is-listed-as-a-tensor",
        "The header of a part lists what is not there, and a reader gets zeros.",
        "gossipd/parts/masked_header.py",
        "    shown_entries.update((row.name, told[row.name]) for row in rows if row.name in present)\n",
        "    shown_entries.update((row.name, told[row.name]) for row in rows)\n",
        (_HEADER,),
    ),
    Mutant(
        "an-index-that-lies-is-shown",
        "Names and places of the index are believed, not those of the signed header.",
        "gossipd/parts/masked_header.py",
        "    if entries != told or len(told) != len(rows):\n",
        "    if not entries:\n",
        (_HEADER, _NOTE),
    ),
    Mutant(
        "a-part-serves-the-header-that-users-see",
        "A peer gets the masked header of a part instead of the signed bytes.",
        "gossipd/store/models/reading.py",
        "    segments = replica.placement.segments(chunk)\n",
        "    segments = replica.manifest.segments(chunk)\n",
        (_NOTE,),
    ),
    Mutant(
        "a-part-believes-chunks-that-it-left-out",
        "After a want has changed the journal's claims on deleted files are believed.",
        "gossipd/store/journal/recovery.py",
        "        replica.held.difference_update(replica.held.snapshot() - replica.part.wanted)\n",
        "        pass\n",
        (_NOTE,),
    ),
    Mutant(
        "reads-what-it-does-not-want",
        "Duties for a chunk go to hosts that do not want it.",
        "gossipd/swarm/interests.py",
        "if chunks & ~bits)\n",
        "if not chunks)\n",
        (_CLASSES,),
    ),
    Mutant(
        "an-order-takes-away-what-is-configured",
        "What a job orders stands in place of what the operator has configured.",
        "gossipd/parts/want_orders.py",
        "            wants[name] = both(wants[name], want) if name in wants else want\n",
        "            wants[name] = want\n",
        ("tests/gossipd/parts/test_want_orders.py",),
    ),
    Mutant(
        "who-leaves-takes-the-orders-of-others-away",
        "The first rank that has loaded its part has the other ranks of its host wait for whole versions.",
        "gossipd/parts/want_orders.py",
        "[name, holder] if holder else [name]\n",
        "[name]\n",
        ("tests/gossipd/parts/test_want_orders.py",),
    ),
    Mutant(
        "a-killed-job-s-order-stays",
        "After a killed job its host fetches parts alone for ever.",
        "gossipd/daemon/want_orders.py",
        "            after = without_process(before, process)\n",
        "            after = dict(before)\n",
        ("tests/gossipd/daemon/test_want_orders.py",),
    ),
    Mutant(
        "damaged-orders-are-taken-for-none",
        "A host whose file of orders has rotted fetches the whole of every model.",
        "gossipd/daemon/state_dir.py",
        "        return {} if kept is None else orders_from_bytes(kept)\n",
        "        return {} if kept is None or kept[-1:] != b'}' else orders_from_bytes(kept)\n",
        ("tests/gossipd/daemon/test_state_dir.py",),
    ),
    Mutant(
        "a-part-counts-as-the-whole-model",
        "The cluster is said to hold the bytes that hosts of parts never wanted.",
        "gossipd/deployment/progress_table.py",
        "    return min(progress.bytes_wanted, bytes_total) if progress.chunks_wanted else bytes_total\n",
        "    return bytes_total\n",
        ("tests/gossipd/api/test_deployment_row.py",),
    ),
)
