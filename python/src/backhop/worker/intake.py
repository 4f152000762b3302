"""Takes messages from a worker's core, for threads and for tasks."""

from __future__ import annotations

import select
from collections.abc import Callable

from .. import _backhop as c
from .._errors import StateError, WaitTimeoutError, error
from ..topology import Topology
from .events import EventQueue
from .message import TakenMessage
from .settling import Settler

_NOTHING = (WaitTimeoutError.status, StateError.status)


class Intake:
    """Takes messages, and has all that handling them needs.

    :param worker: the core's worker
    :param stop: stops the worker: at once, or after its default drain time
    """

    def __init__(
        self,
        topology: Topology,
        worker: c.Worker,
        event_queue: EventQueue,
        settler: Settler,
        stop: Callable[[float | None], None],
    ) -> None:
        self._topology = topology
        self._worker = worker
        self.event_queue = event_queue
        self.settler = settler
        self.stop = stop
        self._readable = select.poll()

    def open(self) -> None:
        """Watches the core's descriptor, of a worker that started."""
        self._readable = select.poll()
        self._readable.register(c.Worker_fd(self._worker), select.POLLIN)

    def close(self) -> None:
        """Closes the core's descriptor. Without effect while the worker runs."""
        c.Worker_close_fd(self._worker)

    def take(self) -> TakenMessage | None:
        """Takes a message; returns None if there is none now.

        :raises Error: if the core failed
        """
        status, taken = c.Worker_take(self._worker)
        if not status:
            return TakenMessage(self._topology, self._worker, taken)
        if status not in _NOTHING:
            raise error(status)
        return None

    def wait(self, timeout: float) -> None:
        """Waits for a message or an event, at most so many seconds. One thread at a time."""
        self._readable.poll(1000 * timeout)
