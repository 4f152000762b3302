"""Publisher: carries out over a client, whichever it is, what the core's ledger says: copies out, originals settled.

The ledger has every message in hand, and decides; nothing here waits. A client's subclass opens the channel, writes,
settles, declares and keeps time, and calls back with what the broker says. No callback raises, as that would leave a
client's loop half done.
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Container, Mapping
from functools import partial
from typing import Any, Protocol

from . import _backhop as c
from ._amqp import encode_table
from ._core import made
from ._declaring import Steps, declaring, forget
from ._errors import ChannelClosedError, ConnectionFailedError, ContentError, Error, PublishError, check, in_seconds
from ._errors import error as error_of
from ._frames import How, content_frames, content_header, publish_frame
from ._retrier import BaseRetrier, unreadable
from ._time import milliseconds
from .event import Fields, replay_error
from .history import History
from .message import Message
from .outcomes import story
from .plan import Plan

_PUBLISH, _TELL, _DECLARE = c.BH_STEP_PUBLISH, c.BH_STEP_TELL, c.BH_STEP_DECLARE
_DISMISSALS: dict[int, How] = {
    c.BH_STEP_NACK: "reject",
    c.BH_STEP_REJECT: "return",
    c.BH_STEP_GIVE_BACK: "requeue",
}
_SAFE = {c.BH_EVENT_RETRIED, c.BH_EVENT_PARKED, c.BH_EVENT_REPLAYED}
_REFUSED, _UNCONFIRMED = c.BH_EVENT_REFUSED, c.BH_EVENT_UNCONFIRMED
_NEVER = -1  # of Ledger_due_ms
_RANDOM_BYTES = 8
_BASE_MS = 1
"""In the ledger, a rung that stands for all that is none on demand: no rung is so short."""
_LONGEST_STRIDE = 1.0  # seconds


class Original(Protocol):
    """A delivery to settle, on the channel that it came by and on no other."""

    @property
    def channel(self) -> Any:
        """That channel, as the client has it."""

    @property
    def tag(self) -> int:
        """Its delivery tag; 0 where it needs no acknowledgement."""

    @property
    def is_here(self) -> bool:
        """Whether it can still be settled."""


class ChannelClosingError(Exception):
    """The channel is just being closed, and takes nothing any more."""


class Copy:
    """What becomes of a message that is in the ledger: a copy to publish, but where the broker itself retries.

    It has what is needed until the broker confirms it, and no more, as many wait at once.

    :param message: its properties are the original's
    :param tag_of_bytes: as encode_table's
    :param blank: as content_header's
    :raises Exception: it cannot be encoded
    """

    __slots__ = (
        "action",
        "attempts",
        "body",
        "delay_ms",
        "error",
        "error_class",
        "event",
        "exchange",
        "header",
        "id",
        "is_mandatory",
        "number",
        "reason",
        "replayed",
        "routing_key",
        "rung_ms",
        "traceparent",
        "written",
    )

    def __init__(
        self,
        plan: Plan,
        message: Message,
        error: BaseException | None,
        tag_of_bytes: bytes,
        blank: Container[object] = (),
    ) -> None:
        (
            self.action,
            self.attempts,
            self.delay_ms,
            self.rung_ms,
            self.reason,
            self.id,
            self.exchange,
            self.routing_key,
            self.is_mandatory,
            expiration,
            kept,
        ) = plan._described()
        self.error = error if self.action == c.BH_ACTION_PARK else None
        """What the handler raised, which holds much."""
        self.event: c.Event | None = None
        """What tells that the copy is safe; None where nobody wants to know."""
        self.error_class = message._error_class
        self.traceparent = message._traceparent
        self.written = 0.0
        """When it was, by time.monotonic."""
        self.replayed: Callable[[Error | None], None] | None = None
        """Of a replay: called with its end, and nothing is tried again."""
        self.number = 0
        """Of the original's channel in the ledger."""
        if plan.publishes:
            original = message._kept
            table = encode_table(original.headers or {}, tag_of_bytes, plan._handle)
            self.header = content_header(original, len(message.body), kept, expiration, table, blank)
            self.body = message.body
        else:
            self.id = message.id

    def frames(self, number: int, most: int) -> list[bytes]:
        """What publishes it.

        :param number: the channel's
        :param most: the longest frame of the connection, in bytes
        """
        publish = publish_frame(number, self.exchange, self.routing_key, self.is_mandatory)
        return [publish, *content_frames(number, self.header, self.body, most)]


class Publisher(ABC):
    """Settles, and publishes copies on a confirm channel of its own, any number at a time, while a connection lasts."""

    _connection: Any
    """The client's."""

    def __init__(self, retrier: BaseRetrier[Any], confirm_timeout: float) -> None:
        ledger = made(c.bh_ledger_new(retrier._back_off._handle, os.urandom(_RANDOM_BYTES)))
        check(c.Ledger_set_confirm_timeout_ms(ledger, milliseconds(confirm_timeout)))
        self._retrier = retrier
        self._events = retrier._events
        self._ledger = ledger
        self._copies: dict[int, Copy] = {}  # by their entries
        self._numbers: dict[Any, int] = {}  # in the ledger, of the channels that deliver
        self._channels: dict[int, Any] = {}  # by these numbers
        self._unacknowledged = 0  # messages that need no acknowledgement
        self._channel: Any = None  # the one that publishes
        self._number = 0  # its in the ledger
        self._is_ready = False
        self._is_pumping = False
        self._was_blocked = False  # at the last look
        self._come_again = 0  # messages that were in hand from channels which the lost connection closed
        self._is_declaring = False
        self._wanted: deque[int] = deque()  # rungs to declare
        self._why = ""  # what was wrong with the last channel, or the last declaring
        self._ends: deque[Callable[[], None]] = deque()  # what is called when the ledger rests
        self._stride = min(_LONGEST_STRIDE, confirm_timeout / 2)
        self._now = 0.0
        self._looked = time.monotonic()
        self._timer: float | None = None

    @property
    def pending(self) -> int:
        """Copies that are not confirmed yet; in any thread."""
        return c.Ledger_copies(self._ledger)

    def settle(
        self,
        plan: Plan,
        message: Message,
        original: Original,
        error: BaseException | None = None,
        replayed: Callable[[Error | None], None] | None = None,
    ) -> None:
        """Settles the original as the plan says: where a copy is published, once that is confirmed.

        :param error: what the handler raised
        :param replayed: of a replay: called with its end, and nothing is tried again
        """
        try:
            copy = self._copy(plan, message, error)
        except Exception as problem:
            if replayed:
                replayed(unreadable(problem))
            else:
                self.refuse(original, message._history, problem)
            return
        copy.replayed = replayed
        kind = c.bh_event_of_copy(copy.action)
        if not replayed and self._events.tells(kind):
            copy.event = self._events.copied(kind, plan, copy.id, error)
        if not original.is_here:
            self._say(c.BH_EVENT_STALE, copy, {})
            self._end(copy, replay_error(ConnectionFailedError))
            self._pump()
            return
        entry, copy.number = self._arrive(original)
        self._copies[entry] = copy
        self._enter(entry, copy)
        self._pump_soon()

    def refuse(self, original: Original, history: History | None, problem: Exception) -> None:
        """Leaves a message of which no copy can be made: it is given back after a while."""
        if original.is_here:
            entry, _ = self._arrive(original)
            check(c.Ledger_leave(self._ledger, entry, self._clock()))
        status = problem.status if isinstance(problem, Error) else ContentError.status
        id_ = history.id if history else ""
        why: Fields = {"status": status, "id": id_, "count": 1, "cause": story(problem)}
        self._announce(self._events.make(c.BH_EVENT_REFUSED, why), problem)
        self._pump()

    def _arrive(self, original: Original) -> tuple[int, int]:
        """Its entry in the ledger, and its channel's number."""
        tag = original.tag
        if not tag:
            self._unacknowledged += 1
            tag = self._unacknowledged
        number = self._number_of(original.channel if original.tag else None)
        status, entry = c.Ledger_arrive(self._ledger, number, tag)
        check(status)
        return entry, number

    def _enter(self, entry: int, copy: Copy) -> None:
        rung_ms = copy.rung_ms if self._retrier._makes_rungs else 0
        rung_ms = rung_ms or (_BASE_MS if self._retrier._restores else 0)
        settle = c.Ledger_settle
        check(settle(self._ledger, entry, copy.action, rung_ms, copy.id, copy.exchange, copy.routing_key))

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
    def _watch_channel(self, channel: Any) -> None:
        """Calls _ended once a channel that delivers is closed."""

    @abstractmethod
    def _copy(self, plan: Plan, message: Message, error: BaseException | None) -> Copy:
        """What becomes of a message.

        :raises Exception: it cannot be encoded
        """

    @abstractmethod
    def _write(self, copy: Copy) -> None:
        """Publishes a copy on the channel.

        :raises ChannelClosingError: the channel takes nothing any more
        """

    @abstractmethod
    def _settle(self, channel: Any, tag: int, how: How) -> None:
        """Settles a delivery on the channel that it came by, if that is still open."""

    @abstractmethod
    def _hand_over(self) -> None:
        """Hands what was written and settled to the connection."""

    @abstractmethod
    def _declare(self, steps: Steps, done: Callable[[Error | None], None]) -> None:
        """Begins to declare, and calls back with None or with what is wrong."""

    # Channels

    def _number_of(self, channel: Any) -> int:
        number = self._numbers.get(channel, 0)
        if not number:
            status, number = c.Ledger_open_channel(self._ledger)
            check(status)
            self._numbers[channel] = number
            self._channels[number] = channel
            if channel is not None:
                self._watch_channel(channel)
        return number

    def _ended(self, channel: Any, reason: object, is_refused: bool) -> None:
        """A channel that delivers is closed: the broker delivers again what was in hand.

        :param is_refused: whether the broker closed it, and not its user or the end of the connection
        """
        gone, count = self._drop(channel, replay_error(ConnectionFailedError, reason))
        if not self._is_open:
            self._come_again += count
        elif is_refused:
            for copy in gone:
                self._say(c.BH_EVENT_STALE, copy, {})
        self._pump()

    def _drop(self, channel: Any, error: Error) -> tuple[list[Copy], int]:
        """Forgets a channel, and what is in hand from it: what of that was no replay, and how many messages."""
        number = self._numbers.pop(channel, 0)
        if not number:
            return [], 0
        del self._channels[number]
        gone = [self._copies.pop(entry) for entry, copy in list(self._copies.items()) if copy.number == number]
        for copy in gone:
            self._end(copy, error)
        return [copy for copy in gone if not copy.replayed], c.Ledger_close_channel(self._ledger, number)

    def _lost(self, reason: object, is_wanted: bool) -> None:
        """The connection is gone, and the deliveries with it.

        :param is_wanted: whether its user closed it
        """
        for channel in list(self._numbers):
            count = self._drop(channel, replay_error(ConnectionFailedError, reason))[1]
            self._come_again += count if channel is not None else 0  # else they needed no acknowledgement
        count, self._come_again, self._was_blocked = self._come_again, 0, False
        if not is_wanted and (count or self._retrier._consumes(self._connection)):
            status = ConnectionFailedError.status
            why: Fields = {"status": status, "connection": "consume", "count": count, "cause": str(reason)}
            self._announce(self._events.make(c.BH_EVENT_DISCONNECTED, why))
        self._pump()

    def _unopened(self, error: BaseException) -> None:
        """No channel can be had to publish on."""
        self._channel = None
        if not self._is_open:
            return
        now = self._clock()
        self._say_unavailable(repr(error), self.pending)
        why = str(replay_error(PublishError, repr(error)))
        for entry, copy in list(self._copies.items()):
            if c.Ledger_state(self._ledger, entry) != c.BH_STATE_DUE:
                continue
            if copy.replayed:
                self._stop_replay(entry, why, now)
            else:
                check(c.Ledger_postpone(self._ledger, entry, now))
        self._pump()

    def _confirming(self) -> None:
        status, self._number = c.Ledger_open_publisher(self._ledger)
        check(status)
        self._is_ready = True
        self._pump()

    def _closed(self, channel: Any, reason: object, reply_code: int = 0) -> None:
        """The channel that publishes is closed.

        :param reply_code: the broker's; 0 where it did not close it
        """
        if channel is not self._channel:
            return
        self._channel, self._is_ready = None, False
        self._why = str(reason)
        ending, count = c.bh_ending_of(reply_code), self.pending
        is_told = c.Ledger_close_publisher(self._ledger, self._number, ending, self._clock())
        if is_told and self._is_open:  # else the end of the connection is told
            self._say_unavailable(self._why, count)
        if ending == c.BH_ENDING_MISSING:
            self._doubt()
        self._number = 0
        self._pump()

    def _doubt(self) -> None:
        """Something of the topology may be gone."""
        self._retrier._doubt()
        forget(self._connection)
        c.Ledger_forget_rungs(self._ledger)

    # What is to be done

    def _pump_soon(self) -> None:
        """Carries it out at once, or what fails together soon and together."""
        self._pump()

    def _pump(self) -> None:
        """Carries out what the ledger says, until it rests."""
        if self._is_pumping:
            return  # whoever pumps goes on with what happened now
        self._is_pumping = True
        ledger, now = self._ledger, self._clock()
        try:
            while step := c.Ledger_next(ledger, now, self._is_ready):
                self._carry_out(step, now)
        finally:
            self._is_pumping = False
            self._hand_over()
        if self._wanted and not self._is_declaring:
            self._declare_rung(self._wanted.popleft())
        if self._channel is None and self._is_open and c.Ledger_count(ledger, c.BH_STATE_DUE):
            self._channel = self._begin_channel()
        self._set_timer()
        while self._ends:
            self._ends.popleft()()

    def _carry_out(self, step: int, now: int) -> None:
        ledger = self._ledger
        if step == _PUBLISH:
            self._publish(c.Ledger_step_entry(ledger))
        elif step == _TELL:
            self._tell(c.Ledger_step_entry(ledger), now)
        elif step == _DECLARE:
            self._wanted.append(c.Ledger_step_delay_ms(ledger))
        else:
            self._copies.pop(c.Ledger_step_entry(ledger), None)
            channel = self._channels[c.Ledger_step_channel(ledger)]
            if channel is not None:
                self._settle(channel, c.Ledger_step_tag(ledger), _DISMISSALS.get(step, "ack"))

    def _publish(self, entry: int) -> None:
        copy = self._copies[entry]
        copy.written = self._looked
        try:
            self._write(copy)
        except ChannelClosingError:
            self._is_ready = False
            self._enter(entry, copy)

    def _declare_rung(self, rung_ms: int) -> None:
        """Declares what copies wait for, one rung after the other."""
        retrier = self._retrier
        needed = [] if retrier._is_declared else [0]
        if rung_ms != _BASE_MS:
            needed.append(rung_ms)
        self._is_declaring = True

        def declared(error: Error | None) -> None:
            self._is_declaring = False
            if error is None:
                retrier._is_declared = True
            else:
                self._why = str(error)
            c.Ledger_rung(self._ledger, rung_ms, error.status if error else 0, self._clock())
            self._pump()

        if needed:
            steps = declaring(retrier.topology, rungs=needed, connection=self._connection)
            self._declare(steps, declared)
        else:
            declared(None)

    # Time

    def _clock(self) -> int:
        """The ledger's time, in ms. While the event loop stands still it goes on by one stride alone, so that confirms
        that came meanwhile are heard before they are late."""
        now = time.monotonic()
        self._now += min(now - self._looked, self._stride)
        self._looked = now
        return int(self._now * 1000)

    def _set_timer(self) -> None:
        due_ms = c.Ledger_due_ms(self._ledger)
        if due_ms != _NEVER:
            delay = min(max(due_ms / 1000 - self._now, 0), self._stride)
        elif self._was_blocked:
            delay = self._stride  # to hear that it is blocked no more
        else:
            return
        at = self._looked + delay
        if self._timer is None or at < self._timer:
            self._timer = at
            self._later(delay, partial(self._wake, at))

    def _wake(self, at: float) -> None:
        if self._timer == at:
            self._timer = None
        self._hear_block()
        self._pump()

    def _hear_block(self) -> None:
        before, self._was_blocked = self._was_blocked, self._is_blocked
        c.Ledger_block(self._ledger, self._was_blocked, self._clock())
        if self._was_blocked != before:
            kind = c.BH_EVENT_BLOCKED if self._was_blocked else c.BH_EVENT_UNBLOCKED
            self._announce(self._events.make(kind, {"connection": "publish", "count": self.pending}))

    # The broker's answer

    def _answered(self, tag: int, is_multiple: bool, is_ack: bool) -> None:
        c.Ledger_confirm(self._ledger, self._number, tag, is_multiple, is_ack, self._clock())
        self._pump()

    def _returned(self, method: Any, headers: Mapping[Any, Any] | None) -> None:
        """A return names no delivery tag: every copy that it could be is sent again, a duplicate at worst.

        :param method: the client's Basic.Return
        """
        self._doubt()
        self._why = f"{method.reply_code} {method.reply_text}"
        id_ = (headers or {}).get("backhop-id", "")
        c.bh_ledger_return(self._ledger, self._number, id_, method.exchange, method.routing_key)

    # What is told

    def _tell(self, entry: int, now: int) -> None:
        ledger = self._ledger
        kind = c.Ledger_step_event(ledger)
        if kind == _UNCONFIRMED:
            self._tell_unconfirmed()
            return
        copy = self._copies[entry]
        if kind in _SAFE:
            del self._copies[entry]
            if copy.replayed:
                self._end(copy)
            elif copy.event is not None or self._events.counters:
                self._tell_safe(kind, copy)
            return
        status, delay_ms = c.Ledger_step_status(ledger), c.Ledger_step_delay_ms(ledger)
        text = self._words(copy.exchange, copy.routing_key)
        if kind == _REFUSED:
            del self._copies[entry]
        if not copy.replayed:
            self._say(kind, copy, {"text": text, "delay_ms": delay_ms, "status": status})
        elif kind == _REFUSED:
            self._end(copy, error_of(status, text))
        else:
            self._stop_replay(entry, text, now)

    def _tell_safe(self, kind: int, copy: Copy) -> None:
        duration_us = int((self._looked - copy.written) * 1_000_000) if copy.written else -1
        self._events.count_copy(kind, copy.attempts, copy.delay_ms, copy.reason, copy.error_class, duration_us)
        if copy.event is not None:
            if duration_us >= 0:
                c.Event_set_int(copy.event, c.BH_FIELD_DURATION, duration_us)
            self._ends.append(partial(self._events.hand, copy.event, copy.error, copy.traceparent))

    def _tell_unconfirmed(self) -> None:
        status, count, text = c.Ledger_step_status(self._ledger), c.Ledger_step_count(self._ledger), self._words("", "")
        self._announce(self._events.make(_UNCONFIRMED, {"text": text, "status": status, "count": count}))
        for channel in {self._channels[copy.number] for copy in self._copies.values() if copy.replayed}:
            self._drop(channel, PublishError(text))

    def _words(self, exchange: str, routing_key: str) -> str:
        """The last step in a sentence."""
        return in_seconds(c.Ledger_words(self._ledger, exchange, routing_key, self._why, self._retrier._forgotten))

    def _say(self, kind: int, copy: Copy, fields: Fields) -> None:
        """Announces what became of one message."""
        about: Fields = {"id": copy.id, "attempts": copy.attempts, "count": 1}
        self._announce(self._events.make(kind, {**about, **fields}), copy.error)

    def _say_unavailable(self, cause: str, count: int) -> None:
        """Announces that there is no channel to publish on."""
        about: Fields = {"status": ChannelClosedError.status, "connection": "publish", "count": count}
        self._announce(self._events.make(c.BH_EVENT_UNAVAILABLE, {**about, "cause": cause}))

    def _announce(self, event: c.Event, exception: BaseException | None = None) -> None:
        self._ends.append(partial(self._events.tell, event, exception))

    def _stop_replay(self, entry: int, why: str, now: int) -> None:
        """Nothing is tried again: the message stays parked."""
        c.Ledger_leave(self._ledger, entry, now)  # unless the ledger left it
        self._end(self._copies.pop(entry), PublishError(why))

    def _end(self, copy: Copy, error: Error | None = None) -> None:
        """Nothing more is done about a copy."""
        if copy.replayed:
            self._ends.append(partial(copy.replayed, error))
