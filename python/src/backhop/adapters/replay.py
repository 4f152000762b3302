"""The limits and refusals of a replay, the same over each client."""

from __future__ import annotations

from .. import _backhop as c
from .._errors import ContentError, Error
from .._exceptions import text_of
from ..observe.event import replay_error
from ..topology import Topology


def replayed_queues(topology: Topology) -> list[tuple[str, bool]]:
    """Returns the queues that a replay reads, in order, and whether each is shared."""
    unroutable = topology.unroutable_queue
    return [(topology.parked_queue, False), *([(unroutable, True)] if unroutable else [])]


def replayed_messages(behind: int, is_shared: bool) -> int:
    """Returns how many messages a replay reads from a queue.

    :param behind: messages behind the first one, by its basic.get-ok
    """
    return c.bh_replay_limit(behind, is_shared)


def goes_on(error: Error) -> bool:
    """Returns whether a replay goes on with the next message after one message failed."""
    return bool(c.bh_replay_skips_message(error.status))


def skips_queue(error: Error, is_shared: bool) -> bool:
    """Returns whether a replay leaves out a queue that it cannot read: the optional one."""
    return is_shared and bool(c.bh_replay_skips_queue(error.status))


def unreadable(problem: Exception) -> Error:
    """Returns the error of a message that cannot be replayed because it cannot be read."""
    if isinstance(problem, Error):
        return problem
    return replay_error(ContentError, text_of(problem))
