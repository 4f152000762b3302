"""ClientPublisher: the part of a publisher that each client implements."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from .. import _backhop as c
from .._errors import Error
from ..message import Message
from ..plan import Plan
from .copies import Copy
from .declaring import Steps
from .frames import How


class ClientPublisher(ABC):
    """Opens the channel, writes, settles, declares and schedules over one client.

    ``_doubt``, ``_emit`` and ``_pump`` are the same over each client.
    """

    _connection: Any
    """The client's connection."""

    @property
    @abstractmethod
    def _is_open(self) -> bool:
        """True while the connection is open."""

    @property
    @abstractmethod
    def _is_blocked(self) -> bool:
        """True while the broker blocks the connection, because its memory or disk is short."""

    @abstractmethod
    def _later(self, delay: float, callback: Callable[[], None]) -> object:
        """Calls back after ``delay`` seconds."""

    @abstractmethod
    def _begin_channel(self) -> Any:
        """Starts to open a channel with confirms. Calls _confirming, _unopened or _closed later.

        :returns: an object that stands for the channel; None after _unopened
        """

    @abstractmethod
    def _watch_channel(self, channel: Any) -> None:
        """Calls _ended when a channel that delivers closes."""

    @abstractmethod
    def _copy(self, plan: Plan, message: Message, error: BaseException | None) -> Copy:
        """Returns the copy of a message.

        :raises Exception: if the copy cannot be encoded
        """

    @abstractmethod
    def _write(self, copy: Copy) -> None:
        """Publishes a copy on the channel.

        :raises ChannelClosingError: if the channel closes
        """

    @abstractmethod
    def _settle(self, channel: Any, tag: int, how: How) -> bool:
        """Settles a delivery on the channel that it arrived on. Returns False if that is closed."""

    @abstractmethod
    def _hand_over(self) -> None:
        """Hands the frames to the connection."""

    @abstractmethod
    def _doubt(self) -> None:
        """Forgets the declarations, because some exchanges or queues may be deleted."""

    @abstractmethod
    def _emit(self, event: c.Event, exception: BaseException | None = None) -> None:
        """Emits an event, after the ledger's steps."""

    @abstractmethod
    def _pump(self) -> None:
        """Executes the ledger's steps until there is none."""

    @abstractmethod
    def _declare(self, steps: Steps, done: Callable[[Error | None], None]) -> None:
        """Starts to execute the steps. Calls ``done`` with None or the error later."""
