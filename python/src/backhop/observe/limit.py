"""TimeLimit: the time limit of a handler."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from .. import _backhop as c
from .._checks import span_ms
from .._handlers import awaited, called, end_child
from .._times import Seconds
from ..message import Message
from ..outcomes import Drop
from .handling import begin, times

_DAY_MS = 86_400_000

MessageT = TypeVar("MessageT", bound=Message)


class TimeLimit:
    """Calls handlers, and raises a TimeoutError for one that runs too long.

    :param timeout: seconds, 1 ms to a day; None: no limit
    :param on_busy: called with the microseconds of a plain handler that ran too long
    :raises ArgumentError: if it is no such time
    """

    __slots__ = ("ms", "on_busy")

    def __init__(
        self, timeout: Seconds | None, on_busy: Callable[[int], None] | None = None
    ) -> None:
        self.on_busy = on_busy
        self.ms = 0 if timeout is None else span_ms("timeout", timeout, 1, _DAY_MS)

    def called(self, handle: Callable[[MessageT], object], message: MessageT) -> None:
        """Calls a plain handler. Nothing can abort it: an overrun is raised when it returns.

        A child process that the handler forked ends here.
        """
        process = os.getpid()
        try:
            if self.ms:
                self._called(handle, message)
            else:
                called(handle, message)
        except BaseException as error:
            end_child(process, error)
            raise
        end_child(process)

    def _called(self, handle: Callable[[MessageT], object], message: MessageT) -> None:
        _begin(message)
        try:
            called(handle, message)
        except Drop:
            self._report(message)
            self.check(message, c.BH_OUTCOME_DROPPED)
            raise
        except BaseException:
            self._report(message)
            raise
        self._report(message)
        self.check(message)

    def _report(self, message: Message) -> None:
        took_us = times(message)[0]
        if self.on_busy is not None and took_us >= self.ms * 1000:
            self.on_busy(took_us)

    async def awaited(self, handle: Callable[[MessageT], object], message: MessageT) -> None:
        """Calls a handler, and awaits its result. Cancels its task at the limit.

        A child process that the handler forked ends here.
        """
        process = os.getpid()
        try:
            if self.ms:
                await self._awaited(handle, message)
            else:
                await awaited(handle, message)
        except GeneratorExit:
            raise  # a child that another function forked ends.
        except BaseException as error:
            end_child(process, error)
            raise
        end_child(process)

    async def _awaited(self, handle: Callable[[MessageT], object], message: MessageT) -> None:
        import asyncio  # a program without an event loop does not need it

        _begin(message)
        aborting = _Aborting(self.ms, asyncio.current_task(), asyncio.get_running_loop())
        try:
            await awaited(handle, message)
        except asyncio.CancelledError:
            if not aborting.end():
                raise
        except Drop:
            aborting.end()
            self.check(message, c.BH_OUTCOME_DROPPED)
            raise
        finally:
            aborting.end()
        self.check(message, is_aborted=aborting.is_over)

    def check(
        self, message: Message, outcome: int = c.BH_OUTCOME_OK, *, is_aborted: bool = False
    ) -> None:
        """Raises a TimeoutError in place of an outcome that came too late."""
        took_ms = max(times(message)[0] // 1000, self.ms if is_aborted else 0)
        if text := c.bh_overrun_text(outcome, took_ms, self.ms):
            raise TimeoutError(text)


class _Aborting:
    """Cancels a task after a time."""

    def __init__(self, ms: int, task: Any, loop: Any) -> None:
        self._task = task
        self._timer = loop.call_later(ms / 1000, self._abort)
        self.is_over = False
        self._is_alone = True

    def _abort(self) -> None:
        self.is_over = True
        self._task.cancel()

    def end(self) -> bool:
        """Ends it, and returns whether it alone cancelled the task."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            if self.is_over and sys.version_info >= (3, 11):
                self._is_alone = not self._task.uncancel()
        return self.is_over and self._is_alone


def _begin(message: Message) -> None:
    if not message._began:
        begin(message)
