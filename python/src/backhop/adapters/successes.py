"""Successes whose acknowledgement was lost: their messages need no second call in this process."""

from __future__ import annotations

import os
import time

from .. import _backhop as c
from .._core import made
from .._errors import Error
from ..message import Message

_RANDOM_BYTES = 16

_successes = made(c.bh_successes_new(os.urandom(_RANDOM_BYTES)))
"""The successes of all retriers: a message can come back by another connection and retrier."""


def keep(message: Message) -> None:
    """Keeps the success of a message that the broker delivers again."""
    handle = _history_of(message)
    if handle is not None:
        c.Successes_keep(_successes, handle, message.queue, message.body, _now_ms())


def take(message: Message) -> bool:
    """Returns whether the handler of a message succeeded at an earlier delivery, and forgets it."""
    if not message.redelivered:
        return False
    handle = _history_of(message)
    return handle is not None and bool(
        c.Successes_take(_successes, handle, message.queue, message.body, True, _now_ms())
    )


def _history_of(message: Message) -> c.History | None:
    try:
        return message.history._handle
    except Error:  # the message is malformed
        return None


def _now_ms() -> int:
    return int(time.monotonic() * 1000)
