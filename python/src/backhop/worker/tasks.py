"""Handles a worker's messages as tasks of an event loop."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from typing import Any

from .._handlers import ENDS_PROGRAM
from ..message import Message
from ..observe.limit import TimeLimit
from .intake import Intake
from .message import TakenMessage


class Tasks:
    """The tasks of one ``serve``.

    :param handle: the handler; its result is awaited if it is awaitable
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
        self._worker_drained = drained
        self._loop = asyncio.get_running_loop()
        self._server = asyncio.current_task()
        self._ended = asyncio.Event()
        self._drained = asyncio.Event()
        self._is_leaving = False
        self._tasks: set[asyncio.Task[None]] = set()
        self.failures: list[BaseException] = []
        """Exceptions that are no failures of handlers. They end the tasks."""

    def look(self) -> None:
        """Emits events, and starts a task for each message.

        Called when the worker has something new.
        """
        try:
            self._intake.event_queue.take_and_emit()
            while (message := self._intake.take()) is not None:
                task = self._loop.create_task(self._handle_one(message))
                self._tasks.add(task)
                task.add_done_callback(self._finish)
        finally:
            if self._worker_drained.is_set():
                self._drained.set()
                self._ended.set()

    async def wait_until_ended(self) -> None:
        """Returns when the worker has drained, or a task failed."""
        await self._ended.wait()

    async def leave(self) -> None:
        """Stops the worker if it still runs, cancels the tasks, and returns when both are done."""
        self._is_leaving = True
        if not self._drained.is_set():
            self._intake.stop(None)  # first, so that no more messages are taken
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self.failures and not self._drained.is_set():
            self._intake.stop(0)  # nothing settles the message of a handler that ended the program
        await self._drained.wait()

    async def _handle_one(self, message: TakenMessage) -> None:
        settler = self._intake.settler
        if not settler.begin_message(message):
            return
        try:
            await self._limit.awaited(self._handle, message)
        except asyncio.CancelledError as exception:
            if self._is_leaving or self._is_cancelled():
                self._intake.stop(None)
                settler.release(message)
                raise
            settler.fail(message, exception)  # by the handler, or something that it awaited
        except ENDS_PROGRAM as exception:
            settler.end_program(message, exception)
            self.failures.append(exception)
            self._ended.set()
        except BaseException as exception:
            settler.fail(message, exception)
        else:
            settler.succeed(message)

    def _is_cancelled(self) -> bool:
        """Returns whether ``serve`` is cancelled too, as by asyncio.run at its end."""
        server: Any = self._server
        return sys.version_info >= (3, 11) and bool(server.cancelling())

    def _finish(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        failure = None if task.cancelled() else task.exception()
        if failure:
            self.failures.append(failure)
            self._ended.set()
