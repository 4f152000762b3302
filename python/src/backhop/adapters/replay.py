"""The progress of a replay, its limits and refusals: the same over each client."""

from __future__ import annotations

import math

from .. import _backhop as c
from .._errors import ContentError, Error
from .._exceptions import text_of
from ..message import Message
from ..observe.event import replay_error
from ..plan import Plan
from ..topology import Topology
from .session import Session


class Progress:
    """Counts the messages of a replay, and decides which message it gets next.

    First come the parked messages, then this work queue's messages in the unroutable queue.

    :param most: the largest number of messages; None: no limit
    :param queues: the queues to read, and whether each is shared; None: both
    """

    def __init__(
        self, session: Session, most: int | None, queues: list[tuple[str, bool]] | None = None
    ) -> None:
        self._session = session
        self._most = math.inf if most is None else most
        self._queues = queues or replayed_queues(session.topology)
        self._remaining = 0  # messages to get from the queue
        self._is_counted = False
        self._is_stopped = False  # copies in flight are still confirmed
        self.queue = ""
        self.is_shared = False
        """True if the queue has messages of other work queues too."""
        self.in_flight = 0
        """Copies that are not confirmed yet."""
        self.count = 0
        """Messages that were replayed."""
        self.foreign = 0
        """Messages of other work queues, which stay."""
        self.error: Error | None = None
        """The first error."""

    @property
    def _is_enough(self) -> bool:
        return self._is_stopped or self.count + self.in_flight >= self._most

    @property
    def gets_message(self) -> bool:
        """Returns whether it gets another message from its queue."""
        return self._remaining > 0 and not self._is_enough

    @property
    def gets_queue(self) -> bool:
        """Returns whether it reads another queue."""
        return bool(self._queues) and not self._is_enough

    def begin_queue(self) -> None:
        """Begins with the next queue."""
        self.queue, self.is_shared = self._queues.pop(0)
        self._remaining, self._is_counted = 1, False

    def end_queue(self) -> None:
        """The queue is empty."""
        self._remaining = 0

    def got(self, message: Message, behind: int) -> Plan | None:
        """Returns the plan of a message that it got. None: the message stays in its queue.

        :param behind: messages behind it, by its basic.get-ok
        """
        if not self._is_counted:
            # A busy broker may answer a passive declare of a quorum queue with 0.
            self._is_counted = True
            self._remaining = replayed_messages(behind, self.is_shared)
        self._remaining -= 1
        if self.is_shared and not self._session.owns(message):
            self.foreign += 1  # it is requeued when the channel closes
            return None
        try:
            plan = self._session.decider.replay(message.history)
        except Exception as problem:
            self._fail(unreadable(problem))
            return None
        self.in_flight += 1
        return plan

    def replayed(self, error: Error | None) -> None:
        """Records the end of a message with a plan."""
        self.in_flight -= 1
        if error:
            self._fail(error)
        else:
            self.count += 1

    def _fail(self, error: Error) -> None:
        self.error = self.error or error
        self._is_stopped = self._is_stopped or not goes_on(error)


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
    return bool(c.bh_replay_goes_on(error.status, 0))


def skips_queue(error: Error, is_shared: bool) -> bool:
    """Returns whether a replay leaves out a queue that it cannot read: the optional one."""
    return is_shared and bool(c.bh_replay_goes_on(error.status, 1))


def unreadable(problem: Exception) -> Error:
    """Returns the error of a message that cannot be replayed because it cannot be read."""
    if isinstance(problem, Error):
        return problem
    return replay_error(ContentError, text_of(problem))
