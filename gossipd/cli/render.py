"""Text that the plain and the live status page share: one line of figures."""

from __future__ import annotations

from typing import Any

from gossipd.core.units import show_bytes


def traffic_words(row: dict[str, Any]) -> str:
    """The origins of the bytes, and what was wasted."""
    ratio = row["source_bytes"] / row["bytes_total"] if row["bytes_total"] else 0.0
    return (
        f"source {show_bytes(row['source_bytes'])} ({ratio:.2f}x)  "
        f"same rack {show_bytes(row['peer_bytes_same_rack'])}  "
        f"cross rack {show_bytes(row['peer_bytes_cross_rack'])}  "
        f"duplicate {show_bytes(row['duplicate_bytes'])}  corrupt {row['corrupt_chunks']}"
    )
