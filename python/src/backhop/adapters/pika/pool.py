"""Runs the handlers of a BlockingConnection's consumer in threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import Context, copy_context
from functools import partial
from queue import SimpleQueue

import pika.exceptions

from ..._exceptions import is_kind
from ..._handlers import ENDS_PROGRAM
from ...observe.limit import TimeLimit
from ..gate import Gate
from .message import Message
from .session import PikaSession

Job = tuple[Message, Context]


class Pool:
    """Passes the messages of a consumer to handlers in threads.

    :param threads: number of handlers that run at once
    """

    gate: Gate[Message] | None = None
    """The gate of its consumer; None without a breaker, or with one by key."""

    def __init__(
        self,
        session: PikaSession,
        handle: Callable[[Message], object],
        threads: int,
        limit: TimeLimit,
        name: str,
    ) -> None:
        self._session = session
        self._handle = handle
        self._limit = limit
        self._count = self._threads = threads
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._in_hand: set[Message] = set()
        for i in range(threads):
            threading.Thread(target=self._work, name=f"{name}-{i + 1}", daemon=True).start()
        session.connection.add_on_close_callback(lambda *_: self.close())

    @property
    def busy(self) -> int:
        """The number of its messages that are not settled. For any thread."""
        return len(self._in_hand)

    def close(self) -> None:
        """Ends the threads after the messages that arrived."""
        count, self._count = self._count, 0
        for _ in range(count):
            self._jobs.put(None)

    @property
    def has_room(self) -> bool:
        """Returns whether a thread is free."""
        return len(self._in_hand) < self._threads

    def start(self, message: Message) -> None:
        """Takes a message, in the connection's thread."""
        message._keep()
        self._session.events.delivered(message)
        self._in_hand.add(message)
        self._jobs.put((message, copy_context()))

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            message, context = job
            error, was_called = None, message._original.is_here
            if was_called:  # else the broker delivers it again
                try:
                    context.run(self._run, message)
                except BaseException as raised:
                    error = raised
                if message._call is not None:
                    message._call.stop()
            settle = partial(self._settle, message, error, was_called)
            try:
                self._session.blocking.add_callback_threadsafe(settle)
            except pika.exceptions.AMQPError:  # the connection is lost
                self._in_hand.discard(message)
                self._lost(message, error, was_called)

    def _run(self, message: Message) -> None:
        with self._session.events.handling(message, is_timed=True):
            self._limit.called(self._handle, message)

    def _lost(self, message: Message, error: BaseException | None, was_called: bool) -> None:
        """The message's channel is closed."""
        if was_called:
            self._session.record_end(message, error)
        else:
            self._session.ignore_call(message)
        if was_called and error is None:
            self._session.lost_ack(message)
        else:
            self._session.forget_call(message)
            self._session.emit_stale(message)

    def _settle(self, message: Message, error: BaseException | None, was_called: bool) -> None:
        """Settles a message, in the connection's thread."""
        self._in_hand.discard(message)
        if error is not None and is_kind(error, ENDS_PROGRAM):
            self._session.ends_program(message, error)
            raise error
        if message._original.is_here:
            self._session.settle(message, error)
        else:
            self._lost(message, error, was_called)
        if self.gate is not None:
            self.gate.ended(message)
