"""Logs events, and exceptions of listeners, to the logger ``backhop``."""

from __future__ import annotations

import atexit
import logging
import threading
import time
from contextlib import suppress

from .. import _backhop as c
from .._core import made
from .._exceptions import loggable, text_of
from .event import Event

LOGGER = logging.getLogger("backhop")

_LOG = made(c.bh_log_new())
_SECOND = 1.0
_LOGGING = threading.Lock()  # the core's log is for one thread at a time

_OMITTED: dict[tuple[str, str], tuple[c.Event, Event]] = {}
"""Events whose lines were left out, by names and queues, until the log reports how many."""


def log_event(handle: c.Event, event: Event) -> None:
    """Logs an event, unless the core's limit of lines per second is reached.

    Lines that are left out are reported a second later, or at the end of the process.
    """
    with _LOGGING:
        line = c.Log_line(_LOG, handle, int(time.monotonic() * 1000))
        is_first = not line and (event.name, event.queue) not in _OMITTED
        if is_first:
            _OMITTED[event.name, event.queue] = handle, event
    if is_first:
        timer = threading.Timer(_SECOND, _log_omitted, [event.name, event.queue])
        timer.daemon = True
        timer.start()
    if line:
        is_traced = event.level >= logging.WARNING or LOGGER.isEnabledFor(logging.DEBUG)
        exception = event.exception if is_traced else None
        LOGGER.log(
            event.level,
            "%s",
            event._readable(line),
            exc_info=loggable(exception),
            extra=event.fields,
        )


def _log_omitted(name: str, queue: str, after: float = 0.0) -> None:
    """Logs how many lines of an event and queue were left out."""
    with suppress(Exception):  # a logging filter's
        with _LOGGING:
            handle, event = _OMITTED.pop((name, queue))
            line = c.Log_omitted_line(_LOG, handle, int((time.monotonic() + after) * 1000))
        if line:
            LOGGER.log(
                event.level,
                "%s",
                line,
                extra={"backhop_event": event.name, "backhop_queue": event.queue},
            )


@atexit.register
def _log_all_omitted() -> None:
    for name, queue in list(_OMITTED):
        _log_omitted(name, queue, after=_SECOND)


def log_listener(handle: c.Event, failure: BaseException) -> None:
    """Logs the exception of a listener or bridge, at most ten lines per second for a queue."""
    with suppress(Exception):  # a logging filter's, which may be the one that failed
        with _LOGGING:
            now_ms = int(time.monotonic() * 1000)
            line = c.Log_listener_line(_LOG, handle, text_of(failure), now_ms)
        if line:
            LOGGER.error("%s", line, exc_info=loggable(failure))
