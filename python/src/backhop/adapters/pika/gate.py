"""The gate of a consumer over pika."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from ...breaker import Breaker
from ...message import Message as BaseMessage
from ..gate import Gate, GatedRetrier
from .message import Message

OnMessage = Callable[[Any, Any, Any, bytes], None]


class PikaGatedRetrier(GatedRetrier, Protocol):
    """The part of the retrier that a gate uses."""

    _blocking: Any
    _breaker: Breaker | None
    _connection: Any

    def _arrived(
        self,
        channel: Any,
        method: Any,
        properties: Any,
        body: bytes,
        begin: Callable[[Message], object],
    ) -> None: ...

    def _has_permit(self, message: BaseMessage) -> tuple[bool, int]: ...

    def _failed(self, message: Any, error: BaseException) -> None: ...


class PikaGate(Gate[Message]):
    """Starts handlers in the connection's thread, or gives messages to a pool.

    :param start: starts the handler of a message
    :param has_room: returns whether a handler is free
    """

    def __init__(
        self,
        retrier: PikaGatedRetrier,
        breaker: Breaker,
        start: Callable[[Message], None],
        has_room: Callable[[], bool] = lambda: True,
    ) -> None:
        super().__init__(retrier, breaker)
        self._client = retrier
        self._begin = start
        self._is_free = has_room

    @property
    def _has_room(self) -> bool:
        return self._is_free()

    def _is_here(self, message: Message) -> bool:
        return message._original.is_here

    def _start(self, message: Message) -> None:
        self._begin(message)

    def _later(self, delay: float, callback: Callable[[], None]) -> None:
        connection, blocking = self._client._connection, self._client._blocking
        if not connection.is_open:
            return
        if blocking is None:
            connection._adapter_call_later(delay, callback)
        else:
            blocking.call_later(delay, callback)  # there a handler may run


def gated(
    retrier: PikaGatedRetrier,
    start: Callable[[Message], None],
    has_room: Callable[[], bool] = lambda: True,
) -> tuple[OnMessage, PikaGate | None]:
    """Returns a callback of pika's that starts handlers as the breaker permits.

    Returns also its gate, if the retrier has a breaker without keys.
    """
    gate, arrived = None, retrier._arrived
    begin: Callable[[Message], object] = start
    if retrier._breaker is not None and retrier._breaker._has_keys:
        begin = partial(_start_by_key, retrier, start)
    elif retrier._breaker is not None:
        gate = PikaGate(retrier, retrier._breaker, start, has_room)
        begin = gate.hold

    def on_message(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        arrived(channel, method, properties, body, begin)

    return on_message, gate


def _start_by_key(
    retrier: PikaGatedRetrier, start: Callable[[Message], None], message: Message
) -> None:
    """Starts a handler if the breaker of the message's key permits, else defers the message."""
    try:
        is_permitted, wait_ms = retrier._has_permit(message)
    except Exception as error:
        retrier._events.delivered(message)
        retrier._failed(message, error)
        return
    if is_permitted:
        start(message)
    else:
        retrier._defer(message, wait_ms)
