"""Which version a publication gets that does not name one.

What lives here: a pure rule. What does not: what a version of steps looks like (``core.versions``).
"""

from __future__ import annotations

from gossipd.core.errors import LocalError, UsageError
from gossipd.core.versions import VERSION_MAX, split_version, step_version


class VersionKnownError(LocalError):
    """The version is not above those that are known. Fault: the caller. State: nothing was read. Retry: with a higher
    version, or without one."""

    code = "E_EXISTS"


def next_version(
    name: str, last: int | None, *, version: int | None = None, step: int | None = None, last_label: str = ""
) -> int:  # fmt: skip
    """The version to publish.

    Args:
        last: the highest that this host knows of the name; None when it knows none.
        version: the one that is wanted. step: of a training run; then the attempt is that of ``last``, and one more
            where the step is not above that of ``last``. Neither: one more than ``last``.
        last_label: ``last`` for people.
    Raises:
        VersionKnownError: the version is not above ``last``. UsageError: it is beyond the bounds.
    """
    if step is not None:
        before, attempt = split_version(last) if last is not None else (-1, 0)
        try:
            return step_version(step, attempt if step > before else attempt + 1)
        except ValueError as error:
            raise UsageError(f"step {step} of {name}: {error}") from None
    if version is None:
        version = 1 if last is None else last + 1
    if version > VERSION_MAX:
        raise UsageError(f"version {version} of {name}: at most {VERSION_MAX}")
    if last is not None and version <= last:
        raise VersionKnownError(
            f"{name}@{last_label or last} is known here; publish under a version above it, or name none"
        )
    return version
