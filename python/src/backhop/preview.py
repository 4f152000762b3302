"""Preview: the delays that a policy gives, as data and as a table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from . import _backhop as c
from ._checks import whole
from ._core import made
from ._errors import StrategyError, check
from ._times import duration, seconds

_ROWS = 20
_MOST_ROWS = 10_000


class PreviewRow(NamedTuple):
    """The delay after one failure. Times are in seconds."""

    attempt: int
    """Number of the failure: 1 is the first."""
    lowest: float
    mean: float
    highest: float
    total: float
    """Sum of the means up to this attempt."""
    rungs: int = 0
    """Number of the ladder's wait queues that share messages which fail together.

    0 without a ladder.
    """


class Preview(tuple[PreviewRow, ...]):
    """The delays after each failure: a tuple of PreviewRow that prints as a table."""

    __slots__ = ()

    def __str__(self) -> str:
        cells: list[tuple[str, ...]] = [("failure", "lowest", "mean", "highest", "total", "rungs")]
        cells += [
            (str(row.attempt), *map(duration, row[1:5]), str(row.rungs or "-")) for row in self
        ]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        return "\n".join(
            "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
            for row in cells
        )

    __repr__ = __str__


def failures_shown(count: int | None, max_attempts: int) -> Iterable[int]:
    """Returns the numbers of the failures that a preview shows.

    :param count: how many; None: all that are retried, at most 20
    :param max_attempts: the policy's; 0: no limit
    :raises ArgumentError: if ``count`` is above 10,000
    """
    if count is None:
        count = min(_ROWS, max_attempts - 1) if max_attempts else _ROWS
    return range(1, whole("failures", count, 0, _MOST_ROWS) + 1)


def policy_row(policy: c.Policy, attempt: int) -> PreviewRow:
    """Returns the delay after a failure by the policy's formula alone."""
    lowest_ms, mean_ms, highest_ms, total_ms, _ = c.Policy_preview(policy, attempt)
    return PreviewRow(
        attempt, seconds(lowest_ms), seconds(mean_ms), seconds(highest_ms), seconds(total_ms)
    )


def topology_row(topology: c.Topology, policy: c.Policy, attempt: int) -> PreviewRow:
    """Returns the delay after a failure as the topology's wait queues make it."""
    lowest_ms, mean_ms, highest_ms, total_ms, rungs = c.Topology_preview(topology, policy, attempt)
    return PreviewRow(
        attempt, seconds(lowest_ms), seconds(mean_ms), seconds(highest_ms), seconds(total_ms), rungs
    )


def ladder_preview(policy: c.Policy, failures: Iterable[int]) -> Preview:
    """Returns the preview of a policy on the default ladder.

    By its formula if the ladder cannot serve it.
    """
    topology = made(c.bh_topology_new("preview"))
    status = c.Topology_build(topology, policy)
    if status == StrategyError.status:
        return Preview(policy_row(policy, attempt) for attempt in failures)
    check(status)
    return Preview(topology_row(topology, policy, attempt) for attempt in failures)
