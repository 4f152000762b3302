"""The channels that deliver messages, and their ids in the ledger."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import _backhop as c
from .._errors import check


class DeliveryChannels:
    """Opens and closes channels of the ledger for the channels of a client.

    The channel None stands for all deliveries without acknowledgement.
    """

    def __init__(self, ledger: c.Ledger) -> None:
        self._ledger = ledger
        self._ids: dict[Any, int] = {}  # by the client's channels
        self._channels: dict[int, Any] = {}  # by their ids
        self._tags = 0  # stand-ins for the tags of deliveries without acknowledgement

    def __iter__(self) -> Any:
        return iter(list(self._ids))

    def __contains__(self, channel: Any) -> bool:
        return channel in self._ids

    def id_of(self, channel: object) -> int:
        """Returns the id of a channel; 0 if no message arrived on it."""
        return self._ids.get(channel, 0)

    def open(self, channel: Any) -> int:
        """Returns the id of a channel, and opens it in the ledger at its first use."""
        id_ = self._ids.get(channel, 0)
        if not id_:
            status, id_ = c.Ledger_open_channel(self._ledger)
            check(status)
            self._ids[channel] = id_
            self._channels[id_] = channel
        return id_

    def arrive(self, channel: Any, tag: int) -> tuple[int, int]:
        """Adds a delivery to the ledger, and returns its entry and its channel's id.

        :param tag: its delivery tag; 0: it needs no acknowledgement
        """
        if not tag:
            self._tags += 1
            channel, tag = None, self._tags
        id_ = self.open(channel)
        status, entry = c.Ledger_arrive(self._ledger, id_, tag)
        check(status)
        return entry, id_

    def channel(self, id_: int) -> Any:
        """Returns the client's channel with this id."""
        return self._channels[id_]

    def close(self, channel: Any, close: Callable[[c.Ledger, int], int]) -> tuple[int, int]:
        """Closes a channel in the ledger, and returns its id and how many messages were in hand
        from it.

        The id is 0 if no message arrived on the channel.

        :param close: Ledger_close_channel or Ledger_lose_channel
        """
        id_ = self._ids.pop(channel, 0)
        if not id_:
            return 0, 0
        del self._channels[id_]
        return id_, close(self._ledger, id_)
