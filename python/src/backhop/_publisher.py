"""Publisher: publishes copies with confirms and acknowledges their originals, whatever the client.

It is a state machine without I/O of its own: nothing here waits. A client's subclass opens the channel, writes,
declares and keeps time, and calls back with what the broker says. No callback raises, as that would leave a client's
loop half done.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import takewhile
from typing import Any, Protocol

from ._errors import ConnectionFailedError, Error, PublishError
from ._retrier import LOGGER, BaseRetrier, tell_refused, tell_unpublished
from .history import History
from .plan import Plan
from .topology import Declaration

Key = tuple[Any, Any, Any]
"""What a return tells of a copy: exchange, routing key and backhop-id, as the client has them."""


class Original(Protocol):
    """A delivery to settle, on the channel that it came by and on no other."""

    @property
    def is_here(self) -> bool:
        """Whether it can still be settled."""

    def settle(self, action: str) -> object:
        """Settles it; where its channel is gone, the broker delivers it again."""


class ChannelClosingError(Exception):
    """The channel is just being closed, and takes nothing any more."""


class Copy:
    """A copy to publish, and to confirm before its original is acknowledged."""

    __slots__ = (
        "body",
        "failures",
        "history",
        "is_returned",
        "is_suspect",
        "key",
        "original",
        "plan",
        "properties",
        "replayed",
        "sent_at",
        "wait",
    )

    def __init__(
        self,
        plan: Plan,
        history: History,
        key: Key,
        properties: Any,
        body: bytes,
        original: Original,
        replayed: Callable[[Error | None], None] | None = None,
    ) -> None:
        self.plan = plan
        self.history = history
        self.key = key
        self.properties = properties
        self.body = body
        self.original = original
        self.replayed = replayed  # of a replay: called with its end, and nothing is tried again
        self.failures = 0
        self.wait = 0.0
        self.is_returned = False
        self.is_suspect = False
        self.sent_at = 0.0


class Publisher(ABC):
    """Publishes copies on a confirm channel of its own, any number at a time."""

    def __init__(self, retrier: BaseRetrier[Any], confirm_timeout: float) -> None:
        self._retrier = retrier
        self._confirm_timeout = confirm_timeout
        self._channel: Any = None
        self._is_ready = False
        self._is_watched = False
        self._is_declaring = False
        self._was_blocked = False  # at the last look
        self._is_suspecting = False  # what is sent is one copy, which may have closed the channel
        self._waiting: set[Copy] = set()  # for their back-off
        self._due: deque[Copy] = deque()
        self._sent: dict[int, Copy] = {}
        self._tag = 0
        self._pending = 0

    @property
    def pending(self) -> int:
        """Copies that are not confirmed yet; right in any thread: a copy counts while it goes between the lists."""
        return self._pending

    def publish(self, copy: Copy) -> None:
        """Publishes it as soon as it can be, and then acknowledges its original."""
        self._pending += 1
        self._enqueue(copy)

    # What a client's subclass does

    @property
    @abstractmethod
    def _is_open(self) -> bool:
        """Whether the connection is."""

    @property
    @abstractmethod
    def _is_blocked(self) -> bool:
        """Whether the broker reads nothing from the connection, for want of memory or disk."""

    @abstractmethod
    def _later(self, delay: float, callback: Callable[[], None]) -> object:
        """Calls back after so many seconds."""

    @abstractmethod
    def _begin_channel(self) -> Any:
        """Begins to open a channel with confirms, and calls _confirming, _unopened or _closed. What it returns stands
        for the channel; None after _unopened."""

    @abstractmethod
    def _end_channel(self, channel: Any) -> None:
        """Closes a channel of which nothing more is to be known."""

    @abstractmethod
    def _write(self, copy: Copy) -> None:
        """Publishes a copy on the channel.

        :raises ChannelClosingError: the channel takes nothing any more
        :raises Exception: any other: the copy cannot be encoded, and nothing was written
        """

    @abstractmethod
    def _declare(self, declarations: list[Declaration], done: Callable[[Error | None], None]) -> None:
        """Begins to declare, and calls back with None or with what is wrong."""

    # The channel

    def _open(self) -> None:
        self._sent.clear()
        self._tag = 0
        self._channel = self._begin_channel()

    def _unopened(self, error: BaseException) -> None:
        """No channel can be had."""
        self._channel = None
        if not self._is_open:
            self._lost(error)
            return
        due, self._due = list(self._due), deque()
        for copy in due:
            self._postpone(copy, f"cannot be published: {error!r}")

    def _confirming(self) -> None:
        self._is_ready = True
        self._pump()

    def _leave_channel(self) -> list[Copy]:
        """Forgets the channel; returns the copies of which nothing is known."""
        sent = list(self._sent.values())
        self._sent.clear()
        self._channel = None
        self._is_ready = False
        for copy in sent:
            copy.is_returned = False
        return sent

    def _closed(self, channel: Any, reason: object) -> None:
        if channel is not self._channel:
            return
        if not self._is_open:
            self._lost(reason)
            return
        sent = self._leave_channel()
        self._retrier._doubt()
        if len(sent) == 1:
            self._postpone(sent[0], f"closed the channel ({reason})")
        elif sent:  # which one it was shows where each goes alone
            LOGGER.warning("the channel was closed (%s): %d copies are published again, one by one", reason, len(sent))
            for copy in sent:
                copy.is_suspect = True
            self._due.extendleft(reversed(sent))
        self._pump()

    def _lost(self, reason: object) -> None:
        """The connection is gone, and the deliveries with it: the broker gives them again."""
        dropped = [*self._leave_channel(), *self._due, *self._waiting]
        self._due.clear()
        self._waiting.clear()
        if dropped:
            LOGGER.warning(
                "%d copies were not confirmed: the connection is lost (%s), and the broker delivers their originals "
                "again",
                len(dropped),
                reason,
            )
        for copy in dropped:
            self._end(copy, ConnectionFailedError(f"the connection was lost: {reason}"))

    # Sending

    def _enqueue(self, copy: Copy) -> None:
        self._due.append(copy)
        self._pump()

    def _pump(self) -> None:
        while self._due and not self._is_declaring:
            if not self._is_ready:
                if self._channel is None:
                    self._open()
                return
            copy = self._due[0]
            if not copy.original.is_here:
                self._due.popleft()
                self._end(copy, _GONE)
                continue
            if self._sent and (copy.is_suspect or self._is_suspecting):
                return
            if not self._has_topology(copy):
                return
            self._due.popleft()
            self._send(copy)

    def _has_topology(self, copy: Copy) -> bool:
        """Whether all is there that the copy needs; begins to declare it where it is not."""
        retrier, plan = self._retrier, copy.plan
        needed = retrier._needed(plan)
        if not needed:
            return True

        def declared(error: Error | None) -> None:
            self._is_declaring = False
            if error is None:
                retrier._made(plan)
            elif self._due and self._due[0] is copy:
                self._due.popleft()
                self._postpone(copy, f"cannot be published: {error}")
            self._pump()

        self._is_declaring = True
        self._declare(needed, declared)
        return False

    def _send(self, copy: Copy) -> None:
        try:
            self._write(copy)
        except ChannelClosingError:
            self._due.appendleft(copy)
            self._is_ready = False
            return
        except Exception as error:
            if not copy.replayed:
                tell_refused(copy.history, error)
            self._end(copy, PublishError(f"the copy cannot be written: {error!r}"))
            return
        self._tag += 1
        self._sent[self._tag] = copy
        self._is_suspecting = copy.is_suspect
        copy.sent_at = time.monotonic()
        self._watch()

    def _postpone(self, copy: Copy, why: str) -> None:
        copy.is_returned = copy.is_suspect = False
        if copy.replayed:
            self._end(copy, PublishError(f"the copy {why}"))
            return
        copy.failures += 1
        copy.wait = self._retrier._wait(copy.failures, copy.wait)
        tell_unpublished(copy.history, why + self._retrier._advice(why), copy.wait)
        self._waiting.add(copy)
        self._later(copy.wait, partial(self._waited, copy))

    def _waited(self, copy: Copy) -> None:
        if copy not in self._waiting:
            return
        self._waiting.remove(copy)
        if self._is_open:
            self._enqueue(copy)
        else:
            self._end(copy, _GONE)

    def _watch(self) -> None:
        if not self._is_watched:
            self._is_watched = True
            self._later(self._confirm_timeout / 2, self._look)

    def _look(self, is_second: bool = False) -> None:
        """Gives the channel up where confirms do not come."""
        self._is_watched = False
        if not self._sent or not self._is_open:
            return
        is_blocked = self._is_blocked
        if is_blocked or self._was_blocked:  # the block may have ended just now
            self._await_confirms_anew()
        self._was_blocked = is_blocked
        oldest = next(iter(self._sent.values()))
        if time.monotonic() - oldest.sent_at < self._confirm_timeout:
            self._watch()
            return
        if not is_second:  # confirms that came while the event loop stood still are read first
            self._is_watched = True
            self._later(0, partial(self._look, True))
            return
        channel = self._channel
        for copy in self._leave_channel():
            self._postpone(copy, f"was not confirmed within {self._confirm_timeout:g} s")
        self._end_channel(channel)
        self._pump()

    def _await_confirms_anew(self) -> None:
        """The broker read nothing until now."""
        for copy in self._sent.values():
            copy.sent_at = time.monotonic()

    # The broker's answer

    def _answered(self, tag: int, is_multiple: bool, is_ack: bool) -> None:
        if is_multiple:
            for each in list(takewhile(tag.__ge__, self._sent)):
                self._answered_one(self._sent.pop(each), is_ack)
        elif tag in self._sent:
            self._answered_one(self._sent.pop(tag), is_ack)
        self._pump()

    def _answered_one(self, copy: Copy, is_ack: bool) -> None:
        if copy.is_returned:
            self._postpone(copy, "was returned by the broker: no queue takes it")
        elif not is_ack:
            self._postpone(copy, "was nacked by the broker: a queue is full (reject-publish) or not available")
        else:
            copy.original.settle("ack")
            self._end(copy)

    def _returned(self, key: Key) -> None:
        """A return names no delivery tag: every copy that it could be is sent again, a duplicate at worst."""
        self._retrier._doubt()
        alike = [copy for copy in self._sent.values() if copy.key == key]
        for copy in alike or self._sent.values():  # one that is like none is some copy's all the same
            copy.is_returned = True

    def _end(self, copy: Copy, error: Error | None = None) -> None:
        """Nothing more is done about a copy."""
        self._pending -= 1
        if copy.replayed:
            copy.replayed(error)


_GONE = ConnectionFailedError("the channel that the message came by is closed")
