"""The message of an aio-pika retrier."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import aio_pika

from ..._amqp import copied
from ...decider import Decider
from ...delivery import PROPERTIES
from ...history import History
from ...message import Message as BaseMessage
from ...topology import Topology
from .channels import AioPikaOriginal

_BLANK = ("", 0)
"""Values besides None that mean an absent property: pamqp reads both as these."""


class Message(BaseMessage):
    """The message that a handler gets, with aio-pika's own message as ``incoming``."""

    __slots__ = ("_decider", "_incoming", "_kept", "_original")

    def __init__(
        self,
        decider: Decider,
        topology: Topology,
        original: AioPikaOriginal,
        incoming: aio_pika.abc.AbstractIncomingMessage,
    ) -> None:
        BaseMessage.__init__(self, topology)
        self._decider = decider
        self._original = original
        self._incoming = incoming
        self._kept: Any = incoming
        self.body = incoming.body
        self.redelivered: bool = bool(incoming.redelivered)

    @property
    def incoming(self) -> aio_pika.abc.AbstractIncomingMessage:
        """aio-pika's IncomingMessage.

        If you change it, a retry still has the original properties.
        """
        self._keep()
        return self._incoming

    def _keep(self) -> None:
        """Copies the properties, because the user may change aio-pika's message from now on."""
        incoming = self._incoming
        if self._kept is incoming:
            kept: dict[str, Any] = {name: getattr(incoming, name) for name in PROPERTIES}
            self._kept = SimpleNamespace(headers=copied(incoming.headers), **kept)

    def _read(self) -> History:
        incoming, kept = self._incoming, self._kept
        return self._decider.read(
            incoming.exchange or "", incoming.routing_key or "", kept, kept.headers, _BLANK
        )
