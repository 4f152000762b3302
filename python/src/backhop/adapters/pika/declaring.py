"""Executes the steps of declaring over pika."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pika.exceptions

from ..._errors import ConnectionFailedError, Error
from ..declaring import Refusal, Step, Steps
from .channels import OpenChannel

_COMMAND_INVALID = 503
"""RabbitMQ before 4.0 closes the connection with this code for an unknown exchange type."""


class Declarer:
    """Executes the steps of declaring on channels of its own, because each refusal closes a
    channel.

    :param done: called with None or the error
    """

    def __init__(
        self, open_channel: OpenChannel, steps: Steps, done: Callable[[Error | None], None]
    ) -> None:
        self._open_channel = open_channel
        self._steps = steps
        self._done = done
        self._channel: Any = None
        self._is_over = False
        self._next(None)

    @property
    def is_closed(self) -> bool:
        """Returns whether its channel is closed. pika cannot close a connection meanwhile."""
        return self._channel is None or bool(self._channel.is_closed)

    def _next(self, refusal: Refusal | None) -> None:
        try:
            step = self._steps.send(refusal)
            if self._channel is None:
                self._channel = self._open_channel(partial(self._execute, step))
                self._channel.add_on_close_callback(self._closed)
            else:
                self._execute(step, self._channel)
        except StopIteration:
            self._end(None)
        except Error as error:
            self._end(error)
        except pika.exceptions.AMQPError as error:
            self._end(ConnectionFailedError(f"the connection was lost: {error!r}"))

    def _execute(self, step: Step, channel: Any) -> None:
        declaration, passive, unbind = step
        common: dict[str, Any] = {"callback": self._executed}
        if declaration.what == "binding":
            bind = {"routing_key": declaration.routing_key, "source": declaration.source, **common}
            if declaration.type == "exchange":
                channel.exchange_bind(destination=declaration.name, **bind)
            else:
                bind["exchange"] = bind.pop("source")
                execute = channel.queue_unbind if unbind else channel.queue_bind
                execute(queue=declaration.name, **bind)
            return
        common |= {"passive": passive, "durable": True, "arguments": declaration.arguments}
        if declaration.what == "exchange":
            channel.exchange_declare(
                exchange=declaration.name, exchange_type=declaration.type, **common
            )
        else:
            channel.queue_declare(queue=declaration.name, **common)

    def _executed(self, _: Any) -> None:
        self._next(None)

    def _closed(self, _: Any, reason: Exception) -> None:
        if self._is_over:
            return
        self._channel = None
        is_channel = isinstance(reason, pika.exceptions.ChannelClosedByBroker)
        if is_channel or getattr(reason, "reply_code", 0) == _COMMAND_INVALID:
            self._next(Refusal(reason.reply_code, reason.reply_text))  # type: ignore[attr-defined]
        else:
            self._end(ConnectionFailedError(f"the connection was lost: {reason!r}"))

    def _end(self, error: Error | None) -> None:
        self._is_over = True
        if self._channel is not None and self._channel.is_open:
            self._channel.close()
        self._done(error)
