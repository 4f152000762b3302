"""Replays messages over pika."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pika.exceptions
import pika.spec

from ..._errors import ConnectionFailedError, Error
from ..declaring import CLOSED, Refusal, replay_refused
from ..replay import goes_on, replayed_messages, replayed_queues, skips_queue, unreadable
from .session import PikaSession


class Replay:
    """Gets messages one by one, on channels of its own, and publishes their copies.

    First come the parked messages, then this work queue's messages in the unroutable queue. Each
    queue has a channel of its own, because pika's BlockingChannel raises an error at a second
    GetEmpty.

    :param most: the largest number of messages; None: no limit
    :param done: called with the number of replayed messages, and None or the error. All channels of
        the replay are closed then: while one closes, pika cannot close the connection.
    :param queues: the queues to read, and whether each is shared; None: both
    """

    def __init__(
        self,
        session: PikaSession,
        most: int | None,
        done: Callable[[int, Error | None], None],
        queues: list[tuple[str, bool]] | None = None,
    ) -> None:
        self._session = session
        self._done = done
        self._most = math.inf if most is None else most
        self._queues = queues or replayed_queues(session.topology)
        self._queue = ""
        self._is_shared = False
        self._channel: Any = None
        self._closing: set[Any] = set()  # channels that wait for close-ok
        self._remaining = 0  # messages to get from the queue
        self._is_counted = False
        self._is_getting = False
        self._in_flight = 0
        self._count = 0
        self._error: Error | None = None  # the first
        self._is_stopped = False  # copies in flight are still confirmed
        self._is_over = False
        self._result: Error | None = None
        self._is_finished = False
        self.foreign = 0
        """The number of messages of other work queues, which stay."""

    def begin(self) -> None:
        """Begins with the next queue."""
        self._close_channel()
        self._queue, self._is_shared = self._queues.pop(0)
        self._remaining, self._is_counted = 1, False
        try:
            self._channel = self._session.open_channel(lambda _: self._next())
        except pika.exceptions.AMQPError as error:
            is_open = self._session.connection.is_open
            why = f"no channel can be opened: {error!r}" if is_open else CLOSED
            self._end(ConnectionFailedError(why))
            return
        self._channel.add_on_close_callback(self._closed)
        self._channel.add_callback(self._empty, [pika.spec.Basic.GetEmpty])

    def _close_channel(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None and channel.is_open:
            self._closing.add(channel)
            channel.close()

    def _next(self) -> None:
        if self._is_over or self._is_getting:
            return
        is_enough = self._is_stopped or self._count + self._in_flight >= self._most
        if self._remaining and not is_enough:
            self._is_getting = True
            self._channel.basic_get(self._queue, self._got)
        elif self._in_flight:
            return
        elif self._queues and not is_enough:
            self.begin()
        else:
            self._end(self._error)

    def _fail(self, error: Error) -> None:
        self._error = self._error or error
        self._is_stopped = self._is_stopped or not goes_on(error)

    def _empty(self, _: Any) -> None:
        self._is_getting = False
        self._remaining = 0
        self._next()

    def _got(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        session = self._session
        self._is_getting = False
        if not self._is_counted:  # a busy broker answers a passive declare of a quorum queue with 0
            self._is_counted = True
            self._remaining = replayed_messages(method.message_count, self._is_shared)
        self._remaining -= 1
        message = session.read(method, properties, body, channel)
        if self._is_shared and not session.owns(message):
            self.foreign += 1  # it is requeued when the channel closes
        else:
            try:
                plan = session.decider.replay(message.history)
            except Exception as error:
                self._fail(unreadable(error))
            else:
                self._in_flight += 1
                session.publisher.settle(plan, message, message._original, replayed=self._replayed)
        self._next()

    def _replayed(self, error: Error | None) -> None:
        self._in_flight -= 1
        if error:
            self._fail(error)
        else:
            self._count += 1
        self._next()

    def _closed(self, channel: Any, reason: Exception) -> None:
        if channel is not self._channel:
            self._closing.discard(channel)
            self._finish()
            return
        self._channel = None
        if not isinstance(reason, pika.exceptions.ChannelClosedByBroker):
            self._end(ConnectionFailedError(f"the channel was closed: {reason}"))
            return
        refusal = Refusal(reason.reply_code, reason.reply_text)
        refused = replay_refused(self._session.topology, self._queue, refusal)
        self._end(self._error if skips_queue(refused, self._is_shared) else refused)

    def _end(self, error: Error | None) -> None:
        if self._is_over:
            return
        self._is_over = True
        self._result = error
        self._close_channel()
        self._finish()

    def _finish(self) -> None:
        """Calls back, when it is over and all its channels are closed."""
        if self._is_over and not self._closing and not self._is_finished:
            self._is_finished = True
            self._done(self._count, self._result)
