"""The message of a pika retrier."""

from __future__ import annotations

import copy
from typing import Any

from ..._amqp import copied
from ...decider import Decider
from ...history import History
from ...message import Message as BaseMessage
from ...topology import Topology
from .channels import PikaOriginal


class Message(BaseMessage):
    """The message that a handler gets, with pika's ``method`` and ``properties``."""

    __slots__ = ("_decider", "_kept", "_original", "_properties", "method")

    def __init__(
        self,
        decider: Decider,
        topology: Topology,
        original: PikaOriginal,
        method: Any,
        properties: Any,
        body: bytes,
    ) -> None:
        BaseMessage.__init__(self, topology)
        self._decider = decider
        self._original = original
        self._properties = self._kept = properties
        self.body = body
        self.redelivered: bool = method.redelivered
        self.method = method
        """pika's Basic.Deliver, or Basic.GetOk."""

    @property
    def properties(self) -> Any:
        """pika's BasicProperties. If you change them, a retry still has the original ones."""
        self._keep()
        return self._properties

    def _keep(self) -> None:
        """Copies the properties, because the user may change them from now on."""
        if self._kept is self._properties:
            kept = self._kept = copy.copy(self._properties)
            kept.headers = copied(kept.headers)

    def _read(self) -> History:
        kept, method = self._kept, self.method
        return self._decider.read(method.exchange, method.routing_key, kept, kept.headers)
