"""Takes the events of a worker's core and emits them in order."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from .. import _backhop as c

_MOST_TAKEN = (
    1000  # events that wait for a listener; the core keeps the next ones, up to its own limit
)


class EventQueue:
    """Takes events in any thread, and emits them in one thread at a time.

    :param worker: the core's worker
    :param emit: called with each event
    """

    def __init__(self, worker: c.Worker, emit: Callable[[c.Event], None]) -> None:
        self._worker = worker
        self._emit = emit
        self._taking = threading.Lock()
        self._taken: deque[c.Event] = deque()  # to be emitted, in this order
        self._emitting = threading.Lock()
        self.emitter = 0
        """The thread that calls listeners; 0 for none."""

    def take(self) -> bool:
        """Takes the core's events, and returns whether this thread can emit one."""
        with self._taking:
            while len(self._taken) < _MOST_TAKEN:
                status, taken = c.Worker_take_event(self._worker)
                if status:
                    break
                self._taken.append(taken)
        return bool(self._taken) and not self._emitting.locked()

    def emit(self) -> None:
        """Emits the events that were taken.

        One thread emits at a time. So events stay in order, and no other thread waits for a
        listener.
        """
        while self._taken and self._emitting.acquire(blocking=len(self._taken) >= _MOST_TAKEN):
            self.emitter = threading.get_ident()
            try:
                while self._taken:
                    self._emit(self._taken.popleft())
            finally:
                self.emitter = 0
                self._emitting.release()

    def take_and_emit(self) -> None:
        """Takes the core's events and emits them."""
        self.take()
        self.emit()
