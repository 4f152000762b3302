"""Runs a handler in the bridges' contexts, and measures its time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from types import TracebackType

from .. import _backhop as c
from ..message import Message
from .observer import Observer

Complain = Callable[[int, Exception], None]
"""Logs a bridge's exception; called with the number of the event at which it happened."""


class Handling:
    """A context around a handler: enters each bridge's own context.

    A bridge that raises is logged. The handler still runs, and its exception passes unchanged.

    :param is_timed: whether the handler starts later than the delivery, or ends before the
        settlement
    """

    __slots__ = ("_bridges", "_complain", "_entered", "_is_timed", "_message")

    def __init__(
        self, bridges: Sequence[Observer], message: Message, complain: Complain, *, is_timed: bool
    ) -> None:
        self._bridges = bridges
        self._message = message
        self._complain = complain
        self._is_timed = is_timed
        self._entered: list[AbstractContextManager[object]] = []

    def __enter__(self) -> None:
        if self._is_timed:
            self._message._began, self._message._over = time.perf_counter(), 0.0
        for bridge in self._bridges:
            try:
                manager = bridge.handling(self._message)
                manager.__enter__()
            except Exception as failure:
                self._complain(c.BH_EVENT_DELIVERED, failure)
            else:
                self._entered.append(manager)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        raised: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._is_timed:
            self._message._over = time.perf_counter()
        while self._entered:
            try:
                self._entered.pop().__exit__(kind, raised, traceback)
            except BaseException as failure:
                if failure is raised:
                    continue
                if not isinstance(failure, Exception):
                    raise
                self._complain(c.BH_EVENT_FAILED if raised else c.BH_EVENT_SUCCEEDED, failure)


def begin(message: Message) -> None:
    """Notes that a handler gets the message now."""
    message._began, message._over = time.perf_counter(), 0.0


def times(message: Message) -> tuple[int, int]:
    """Returns the handler's duration in microseconds, -1 if unknown, and its age in ms.

    The age is the time since the handler ended.
    """
    began, over = message._began, message._over
    if not began:
        return -1, 0
    now = time.perf_counter()
    if not over:
        return int((now - began) * 1_000_000), 0
    return int((over - began) * 1_000_000), int((now - over) * 1000)
