"""The gate of a consumer over pika."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ...breaker import Breaker
from ..gate import Gate
from .message import Message
from .session import PikaSession

OnMessage = Callable[[Any, Any, Any, bytes], None]


class PikaGate(Gate[Message]):
    """Starts handlers in the connection's thread, or gives messages to a pool.

    :param start: starts the handler of a message
    :param has_room: returns whether a handler is free
    """

    def __init__(
        self,
        session: PikaSession,
        breaker: Breaker,
        start: Callable[[Message], None],
        has_room: Callable[[], bool] = lambda: True,
    ) -> None:
        super().__init__(session, breaker)
        self._begin = start
        self._is_free = has_room

    @property
    def _has_room(self) -> bool:
        return self._is_free()

    def _start(self, message: Message) -> None:
        self._begin(message)


def gated(
    session: PikaSession,
    start: Callable[[Message], None],
    has_room: Callable[[], bool] = lambda: True,
) -> tuple[OnMessage, PikaGate | None]:
    """Returns a callback of pika's that starts handlers as the breaker permits.

    Returns also its gate, if the retrier has a breaker without keys.
    """
    gate, arrived = None, session.arrived
    begin: Callable[[Message], object] = start
    if session.breaker is not None and session.breaker._has_keys:
        begin = partial(_start_by_key, session, start)
    elif session.breaker is not None:
        gate = PikaGate(session, session.breaker, start, has_room)
        begin = gate.hold

    def on_message(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        arrived(channel, method, properties, body, begin)

    return on_message, gate


def _start_by_key(session: PikaSession, start: Callable[[Message], None], message: Message) -> None:
    """Starts a handler if the breaker of the message's key permits, else defers the message."""
    try:
        is_permitted, wait_ms = session.has_permit(message)
    except Exception as error:
        session.events.delivered(message)
        session.failed(message, error)
        return
    if is_permitted:
        start(message)
    else:
        session.defer(message, wait_ms)
