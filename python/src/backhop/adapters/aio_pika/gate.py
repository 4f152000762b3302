"""The gate of a consumer over aio-pika."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from ...breaker import Breaker
from ..gate import Gate
from .message import Message
from .session import AioPikaSession

Start = Callable[[Message], Coroutine[Any, Any, None]]
"""Calls a handler, and settles its message."""


class AioPikaGate(Gate[Message]):
    """Lets the tasks of held messages wait."""

    def __init__(self, session: AioPikaSession, breaker: Breaker) -> None:
        super().__init__(session, breaker)
        self._waiting: dict[Message, asyncio.Future[bool]] = {}

    async def admitted(self, message: Message) -> bool:
        """Returns True when the handler of a message may run.

        Returns False if the message was settled without a handler, or its channel is closed.
        """
        waiting = self._waiting[message] = asyncio.get_running_loop().create_future()
        try:
            self.hold(message)
            return bool(await waiting)
        except asyncio.CancelledError:  # aiormq cancels the tasks of a channel that it closes
            self.forget(message)
            self._session.give_back(message)
            self.ended(message)
            raise
        finally:
            self._waiting.pop(message, None)

    def _start(self, message: Message) -> None:
        self._answer(message, True)

    def _dropped(self, message: Message) -> None:
        self._answer(message, False)

    def _answer(self, message: Message, may_run: bool) -> None:
        waiting = self._waiting.get(message)
        if waiting is not None and not waiting.done():
            waiting.set_result(may_run)


def gated(session: AioPikaSession, start: Start) -> tuple[Start, AioPikaGate | None]:
    """Returns a coroutine function that starts handlers as the breaker permits.

    Returns also its gate, if the retrier has a breaker without keys.
    """
    if session.breaker is None:
        return start, None
    if session.breaker._has_keys:
        return partial(_start_by_key, session, start), None
    gate = AioPikaGate(session, session.breaker)

    async def start_later(message: Message) -> None:
        if await gate.admitted(message):
            try:
                await start(message)
            finally:
                gate.ended(message)

    return start_later, gate


async def _start_by_key(session: AioPikaSession, start: Start, message: Message) -> None:
    """Starts a handler if the breaker of the message's key permits, else defers the message."""
    try:
        is_permitted, wait_ms = session.has_permit(message)
    except Exception as error:
        session.events.delivered(message)
        await session.failed(message, error)
        return
    if not is_permitted:
        session.defer(message, wait_ms)
        return
    try:
        await start(message)
    finally:
        session.ignore_call(message)  # if the handler was aborted
