"""A message's story, in words."""

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
    """A message's story, in words, from its headers alone.

    :param headers: as a client gives them
    :param topology: where the broker alone moves messages (strategies reject and native), it tells what to count
    :param legacy_counter: as History's
    :param wait_queues: as History's

    >>> print(explain({"backhop-attempts": 2, "backhop-delay": 30000, "backhop-error": "507 queue is full"}))
    It failed 2 times.
    The last error was: 507 queue is full
    Its last wait was 30 s.
    """
    history = History(Delivery(headers=headers or {}), topology, legacy_counter=legacy_counter, wait_queues=wait_queues)
    return c.History_explanation(history._handle)
