"""The past of a message, as a text."""

from __future__ import annotations

from collections.abc import Iterable

from . import _backhop as c
from ._amqp import Headers, Text
from .delivery import Delivery
from .history import History
from .topology import Topology


def explain(
    headers: Headers | None,
    *,
    topology: Topology | None = None,
    legacy_counter: Text | None = None,
    wait_queues: Iterable[Text] = (),
) -> str:
    """Returns the past of a message as a text, from its headers alone.

    :param headers: the headers, as a client decoded them.
    :param topology: needed for the strategies reject and native, because the broker alone moves
        their messages.
    :param legacy_counter: as History's.
    :param wait_queues: as History's.
    :raises ArgumentError: if an argument has another type.

    >>> headers = {"backhop-attempts": 2, "backhop-delay": 30000}
    >>> headers["backhop-error"] = "507 queue is full"
    >>> print(explain(headers))
    It failed 2 times.
    The last error was: 507 queue is full
    Its last wait was 30 s.
    """
    history = History(
        Delivery(headers=headers or {}),
        topology,
        legacy_counter=legacy_counter,
        wait_queues=wait_queues,
    )
    return c.History_explanation(history._handle)
