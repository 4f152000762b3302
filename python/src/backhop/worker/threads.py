"""Handles a worker's messages in threads."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable

from .._handlers import ENDS_PROGRAM
from ..message import Message
from ..observe.limit import TimeLimit
from .intake import Intake
from .message import TakenMessage

LOOK_AFTER = 1.0
"""Seconds: how often events are taken while every thread handles a message."""

_SHORT_WHILE = 0.01  # seconds


class Threads:
    """The threads of one ``run``. A thread whose handler does not end in time outlives the run.

    :param handle: the handler
    :param drained: set when the worker has drained
    """

    def __init__(
        self,
        intake: Intake,
        handle: Callable[[Message], object],
        drained: threading.Event,
        limit: TimeLimit,
    ) -> None:
        self._intake = intake
        self._handle = handle
        self._limit = limit
        self._drained = drained
        self._context = contextvars.copy_context()  # of run: each handler starts in a copy
        self._leader = threading.Lock()  # its holder waits for messages
        self._threads: list[threading.Thread] = []
        self._handling: set[threading.Thread] = set()
        self.failures: list[BaseException] = []
        """Exceptions that are no failures of handlers, for example SystemExit. They end the run."""

    def start(self, count: int, name: str) -> None:
        """Starts threads named ``name-1``, ``name-2`` and so on."""
        for i in range(count):
            thread = threading.Thread(target=self._work, name=f"{name}-{i + 1}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def wait_until_drained(self) -> None:
        """Waits until the worker has drained, and emits events meanwhile."""
        while not self._drained.wait(LOOK_AFTER):
            self._intake.event_queue.take_and_emit()

    def join(self) -> None:
        """Waits for the threads, except those whose handlers did not end in time."""
        for thread in self._threads:
            while thread.is_alive() and thread not in self._handling:
                thread.join(_SHORT_WHILE)

    def _work(self) -> None:
        thread, intake, drained = threading.current_thread(), self._intake, self._drained
        try:
            while not drained.is_set() and (message := intake.take() or self._next()) is not None:
                self._handling.add(thread)
                self._handle_one(message)
                self._handling.discard(thread)
                if self.failures:
                    self._stop_if_idle()
        except BaseException as failure:  # SystemExit, for example: it ends the run
            self.failures.append(failure)
            self._handling.discard(thread)
            if not drained.is_set():
                intake.stop(None)
                self._stop_if_idle()

    def _handle_one(self, message: TakenMessage) -> None:
        settler = self._intake.settler
        if not settler.begin_message(message):
            return
        try:
            self._context.copy().run(self._limit.called, self._handle, message)
        except ENDS_PROGRAM as exception:
            settler.end_program(message, exception)
            raise
        except BaseException as exception:
            settler.fail(message, exception)
        else:
            settler.succeed(message)

    def _next(self) -> TakenMessage | None:
        """Waits for the next message; None if the worker has drained. One thread waits for all."""
        intake, events = self._intake, self._intake.event_queue
        while not self._drained.is_set():
            with self._leader:
                if (message := intake.take()) is not None:
                    return message
                if not events.take() and not self._drained.is_set():
                    intake.wait(LOOK_AFTER)  # another thread may have taken the last event
            events.emit()  # without the lock: the other threads do not wait for a listener
        return None

    def _stop_if_idle(self) -> None:
        """Ends the draining if no handler runs that could settle a message."""
        if not self._handling and not self._drained.is_set():
            self._intake.stop(0)
