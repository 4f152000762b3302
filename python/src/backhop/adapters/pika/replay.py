"""Replays messages over pika."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pika.exceptions
import pika.spec

from ..._errors import ConnectionFailedError, Error
from ..declaring import CLOSED, Refusal, replay_refused
from ..replay import Progress, skips_queue
from .session import PikaSession


class Replay:
    """Gets messages one by one, on channels of its own, and publishes their copies.

    Each queue has a channel of its own, because pika's BlockingChannel raises an error at a second
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
        self._progress = Progress(session, most, queues)
        self._channel: Any = None
        self._closing: set[Any] = set()  # channels that wait for close-ok
        self._is_getting = False
        self._is_over = False
        self._result: Error | None = None
        self._is_finished = False

    @property
    def foreign(self) -> int:
        """The number of messages of other work queues, which stay."""
        return self._progress.foreign

    def begin(self) -> None:
        """Begins with the next queue."""
        self._close_channel()
        self._progress.begin_queue()
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
        progress = self._progress
        if progress.gets_message:
            self._is_getting = True
            self._channel.basic_get(progress.queue, self._got)
        elif progress.in_flight:
            return
        elif progress.gets_queue:
            self.begin()
        else:
            self._end(progress.error)

    def _empty(self, _: Any) -> None:
        self._is_getting = False
        self._progress.end_queue()
        self._next()

    def _got(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        session = self._session
        self._is_getting = False
        message = session.read(method, properties, body, channel)
        if plan := self._progress.got(message, method.message_count):
            session.publisher.settle(plan, message, message._original, replayed=self._replayed)
        self._next()

    def _replayed(self, error: Error | None) -> None:
        self._progress.replayed(error)
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
        refused = replay_refused(self._session.topology, self._progress.queue, refusal)
        is_left_out = skips_queue(refused, self._progress.is_shared)
        self._end(self._progress.error if is_left_out else refused)

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
            self._done(self._progress.count, self._result)
