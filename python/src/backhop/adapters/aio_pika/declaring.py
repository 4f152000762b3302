"""Executes the steps of declaring over aiormq."""

from __future__ import annotations

import contextlib
from typing import Any

import aiormq
from aiormq.abc import AbstractChannel as WireChannel
from aiormq.abc import AbstractConnection as WireConnection

from ..._errors import ConnectionFailedError
from ..declaring import Refusal, Step, Steps
from .channels import AMQP_ERRORS, close, refusal_of


async def execute(connection: WireConnection, steps: Steps) -> None:
    """Executes the steps on channels of its own, because each refusal closes a channel.

    :raises Error: if the broker refuses a step, or the connection is lost
    """
    channel: WireChannel | None = None
    refusal: Refusal | None = None
    try:
        with contextlib.suppress(StopIteration):
            while True:
                step = steps.send(refusal)
                if channel is None:
                    channel = await connection.channel(publisher_confirms=False)
                refusal = await _execute_step(channel, step)
                if refusal:
                    channel = None
    except AMQP_ERRORS as error:
        raise ConnectionFailedError(f"the connection was lost: {error!r}") from error
    finally:
        if channel is not None:
            await close(channel)


async def _execute_step(channel: WireChannel, step: Step) -> Refusal | None:
    declaration, passive, unbind = step
    name, source, key = declaration.name, declaration.source, declaration.routing_key
    arguments: Any = declaration.arguments
    try:
        if declaration.what == "exchange":
            await channel.exchange_declare(
                name,
                exchange_type=declaration.type,
                passive=passive,
                durable=True,
                arguments=arguments,
            )
        elif declaration.what == "queue":
            await channel.queue_declare(name, passive=passive, durable=True, arguments=arguments)
        elif declaration.type == "exchange":
            await channel.exchange_bind(destination=name, source=source, routing_key=key)
        elif unbind:
            await channel.queue_unbind(name, source, routing_key=key)
        else:
            await channel.queue_bind(name, source, routing_key=key)
    except aiormq.exceptions.ChannelClosed as error:
        return refusal_of(error)
    except (
        aiormq.exceptions.ConnectionCommandInvalid
    ) as error:  # RabbitMQ before 4.0, for an exchange type
        return Refusal(503, str(error.args[0]))
    return None
