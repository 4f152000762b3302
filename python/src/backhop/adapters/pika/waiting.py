"""Does I/O on a BlockingConnection until a condition holds."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from ..._errors import ArgumentTypeError
from ..._times import Seconds, milliseconds, seconds

_LOOK_AFTER = 0.05  # seconds


def run_until(connection: Any, is_done: Callable[[], bool], timeout: Seconds | None = None) -> None:
    """Does I/O until a condition holds. Passes no message to a handler meanwhile.

    :param connection: a BlockingConnection; None: the user's connection is asynchronous
    :raises ArgumentTypeError: if the connection is asynchronous.
    """
    if connection is None:
        raise ArgumentTypeError(
            "an asynchronous connection cannot wait: use the callback, or look at pending"
        )
    end = None if timeout is None else time.monotonic() + seconds(milliseconds(timeout))
    is_over = False

    def wake() -> None:
        nonlocal is_over
        is_over = True

    timer = end and connection._impl._adapter_call_later(max(0.0, end - time.monotonic()), wake)
    try:
        connection._flush_output(lambda: is_done() or is_over)
    finally:
        if timer and not is_over and connection.is_open:
            connection._impl._adapter_remove_timeout(timer)


def run_callbacks(connection: Any, is_idle: Callable[[], bool], end: float | None) -> None:
    """Runs callbacks that wait for the connection's thread, until no handler runs in a thread.

    Within such a callback they are left to its caller.

    :param is_idle: whether no handler runs in a thread
    :param end: by time.monotonic; None: no limit
    """
    if not connection.is_open:
        return
    with connection._acquire_event_dispatch() as is_ours:
        if not is_ours:
            return
    behind: list[bool] = []  # set after the callbacks before it
    connection.add_callback_threadsafe(lambda: behind.append(True))
    while connection.is_open and (
        not behind or not (is_idle() or (end is not None and time.monotonic() >= end))
    ):
        run_until(connection, lambda: bool(connection._ready_events), _LOOK_AFTER)
        connection._dispatch_connection_events()
