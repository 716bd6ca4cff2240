"""Which files a job's patterns leave out, and which patterns mean nothing."""

from __future__ import annotations

import pytest

from gossipd.config.job_sections import EXCLUDES_MAX
from gossipd.core.errors import UsageError
from gossipd.publish.selection import PATTERNS_MAX, selection_without


def test_a_jobs_patterns_go_beside_the_usual_ones() -> None:
    chosen = selection_without("optimizer/\n*.pt")
    paths = ("model.safetensors", "optimizer/state", "rank-0/rng.pt", "half.tmp")
    assert [path for path in paths if chosen.admits(path)] == ["model.safetensors"]
    assert [path for path in paths if selection_without("").admits(path)] == list(paths[:3])


@pytest.mark.parametrize("wrong", ["/data/step/*.pt", "./x", "*.pt\n", "\n".join(map(str, range(PATTERNS_MAX + 1)))])
def test_a_pattern_that_matches_no_file_is_refused(wrong: str) -> None:
    with pytest.raises(UsageError, match=r"^exclude has "):
        selection_without(wrong)


def test_a_watched_table_takes_as_many_patterns_as_a_publication() -> None:
    assert EXCLUDES_MAX == PATTERNS_MAX
