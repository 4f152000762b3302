"""TakenMessage: the message of a worker, which reads its parts from the core on first access."""

from __future__ import annotations

from typing import Any

from .. import _backhop as c
from .._core import made
from .._errors import check
from ..delivery import Delivery
from ..history import History
from ..message import Message
from ..topology import Topology


class TakenMessage(Message):
    """A message that a worker took.

    :param worker: the core's worker
    :param taken: the core's message
    """

    __slots__ = ("_worker", "taken")

    def __init__(self, topology: Topology, worker: c.Worker, taken: c.Message) -> None:
        Message.__init__(self, topology)
        self._worker = worker
        self.taken = taken

    def __getattr__(self, name: str) -> Any:
        """Reads a part on its first access."""
        if name == "body":
            self.body = c.Message_body(self.taken)
        elif name == "redelivered":
            self.redelivered = bool(c.Message_redelivered(self.taken))
        else:
            raise AttributeError(f"a message has no {name}")
        return getattr(self, name)

    def _read(self) -> History:
        delivery, history = Delivery.__new__(Delivery), History.__new__(History)
        delivery._handle = made(c.bh_delivery_new())
        history._handle = made(c.bh_history_new())
        history.delivery = delivery
        check(c.Worker_read(self._worker, self.taken, delivery._handle, history._handle))
        return history
