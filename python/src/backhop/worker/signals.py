"""Drains the workers of the process at SIGINT and SIGTERM."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from .._errors import ForkedError


class Stoppable(Protocol):
    """A worker."""

    def stop(self, drain: float | None = None) -> None: ...


_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_RUNNING: list[Stoppable] = []


@contextmanager
def running(worker: Stoppable) -> Iterator[None]:
    """Registers a worker, so that a signal drains it too."""
    _RUNNING.append(worker)
    try:
        yield
    finally:
        _RUNNING.remove(worker)


@contextmanager
def draining_at_signals() -> Iterator[None]:
    """In the main thread: drains all registered workers at SIGINT and SIGTERM.

    A second signal stops the workers at once. Earlier handlers of these signals are called too,
    except the defaults of Python and of the system. In other threads it does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before: dict[int, Any] = {one: signal.getsignal(one) for one in _SIGNALS}
    is_second = False

    def stop(number: int, frame: Any) -> None:
        nonlocal is_second
        try:
            for worker in tuple(_RUNNING):
                worker.stop(drain=0 if is_second else None)
        except ForkedError:  # in a child process, which inherited this handler
            signal.signal(number, before[number] or signal.SIG_DFL)
            signal.raise_signal(number)
            return
        is_second = True
        if callable(before[number]) and before[number] is not signal.default_int_handler:
            before[number](number, frame)

    # Not the event loop's handlers: in a child process they would call the parent.
    for one in _SIGNALS:
        signal.signal(one, stop)
    try:
        yield
    finally:
        for one in _SIGNALS:
            if signal.getsignal(one) is stop:  # else somebody replaced it meanwhile
                signal.signal(one, before[one] or signal.SIG_DFL)
