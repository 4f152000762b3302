"""Waits for the end of a worker's replay."""

from __future__ import annotations

import threading
from collections.abc import Callable

from .. import _backhop as c
from .._checks import whole
from .._errors import StateError, check
from ..observe.event import Event

_MOST_REPLAYED = 2**53 - 1


class Replay:
    """One replay, from its request to its end.

    :param on_end: called at the end, in the thread that emits events
    """

    def __init__(self, on_end: Callable[[], object]) -> None:
        self.ended = threading.Event()
        self._event: Event | None = None
        self._on_end = on_end

    def end(self, event: Event | None) -> None:
        """Ends it with the worker's event ``replayed`` or ``drained``.

        None: it replayed nothing.
        """
        self._event = event
        self.ended.set()
        self._on_end()

    def result(self) -> int:
        """Returns the number of replayed messages.

        :raises StateError: if the worker stopped before the end.
        :raises Error: the error that stopped the replay.
        """
        event = self._event
        if event is None:
            return 0
        if event.name == "drained":
            raise StateError(
                "the worker stopped before the replay ended: the remaining messages stay parked"
            )
        if event.error:
            raise event.error
        return event.count


class Replays:
    """Starts the replays of a worker, one at a time."""

    def __init__(self, worker: c.Worker) -> None:
        self._worker = worker
        self._starting = threading.Lock()
        self._current: Replay | None = None

    def begin(self, most: int | None, on_end: Callable[[], object] = lambda: None) -> Replay:
        """Starts a replay.

        :param most: the largest number of messages; None: all
        :raises StateError: if the worker does not run, or replays already
        """
        count = _MOST_REPLAYED if most is None else whole("most", most, 0, _MOST_REPLAYED)
        replay = Replay(on_end)
        if count == 0:
            replay.end(None)
            return replay
        detail = "the worker does not run, or a replay runs already"
        with self._starting:
            if self._current is not None:
                raise StateError(detail)
            self._current = replay  # before its event can arrive
            status = c.Worker_replay(self._worker, count)
            if status:
                self._current = None
        check(status, detail, StateError)
        return replay

    def end(self, event: Event) -> None:
        """Ends the current replay, if there is one."""
        if self._current is not None:
            replay, self._current = self._current, None
            replay.end(event)
