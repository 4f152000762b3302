"""Publisher: executes the ledger's steps over a client. It publishes copies and settles originals.

The ledger has every message in hand, and decides. Nothing here waits. A client's subclass opens the
channel, writes, settles, declares and schedules, and calls back with the broker's answers. No
callback raises an exception, because that would interrupt the client's own loop.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from .. import _backhop as c
from .._core import made
from .._errors import (
    ChannelClosedError,
    ConnectionFailedError,
    ContentError,
    Error,
    PublishError,
    check,
    in_seconds,
)
from .._errors import error as error_of
from .._exceptions import text_of
from .._times import milliseconds
from ..history import History
from ..message import Message
from ..observe.event import Fields, replay_error
from ..plan import Plan
from .channels import DeliveryChannels
from .client import ClientPublisher
from .clock import LedgerClock
from .copies import ChannelClosingError, Copy, Original
from .declaring import declaring, forget
from .frames import How
from .orphans import Orphans, end_call
from .replay import unreadable
from .session import Session
from .watch import Watch

_REST, _PUBLISH, _EMIT, _DECLARE = (
    c.BH_STEP_REST,
    c.BH_STEP_PUBLISH,
    c.BH_STEP_EMIT,
    c.BH_STEP_DECLARE,
)
_DISMISSALS: dict[int, How] = {
    c.BH_STEP_NACK: "reject",
    c.BH_STEP_REJECT: "return",
    c.BH_STEP_GIVE_BACK: "requeue",
}
_CONFIRMED = {
    c.BH_EVENT_RETRIED,
    c.BH_EVENT_DEFERRED,
    c.BH_EVENT_PARKED,
    c.BH_EVENT_REPLAYED,
}
_REFUSED, _UNCONFIRMED = c.BH_EVENT_REFUSED, c.BH_EVENT_UNCONFIRMED
_NEVER = -1  # of Ledger_due_ms
_RANDOM_BYTES = 8
_BASE_MS = 1
"""The ledger's rung for everything that is no rung on demand; no real rung is so short."""
_LONGEST_STRIDE = 1.0  # seconds


class Publisher(ClientPublisher):
    """Settles messages, and publishes copies on a confirm channel of its own, while a connection
    lasts.

    Any number of copies is in flight at a time.
    """

    def __init__(self, session: Session, confirm_timeout: float) -> None:
        ledger = made(c.bh_ledger_new(session.back_off, os.urandom(_RANDOM_BYTES)))
        check(c.Ledger_set_confirm_timeout_ms(ledger, milliseconds(confirm_timeout)))
        self._confirm_timeout = confirm_timeout
        self._session = session
        self._events = session.events
        self._ledger = ledger
        self._copies: dict[int, Copy] = {}  # by their entries
        self._orphans = Orphans()
        self._channels = DeliveryChannels(ledger)
        self._channel: Any = None  # publishes
        self._publisher_id = 0  # of that channel, in the ledger
        self._is_ready = False
        self._is_pumping = False
        self._was_blocked = False
        self._redelivered = (
            0  # count of messages in hand from channels that closed with the connection
        )
        self._is_declaring = False
        self._wanted: deque[int] = deque()  # rungs to declare, in ms
        self._problem = ""  # of the last channel, or of the last declaring
        self._callbacks: deque[Callable[[], None]] = (
            deque()
        )  # to be called after the ledger's steps
        self._clock = LedgerClock(min(_LONGEST_STRIDE, confirm_timeout / 2))
        self._timer: float | None = None
        self.watch = Watch(self, session)
        """Looks for the return exchange."""

    @property
    def pending(self) -> int:
        """The number of copies that are not confirmed yet. For any thread."""
        return c.Ledger_copies(self._ledger)

    def has_copies_of(self, channel: object) -> bool:
        """Returns whether copies of messages from a channel are not confirmed yet."""
        id_ = self._channels.id_of(channel)
        return any(copy.channel_id == id_ for copy in self._copies.values()) if id_ else False

    def settle(
        self,
        plan: Plan,
        message: Message,
        original: Original,
        error: BaseException | None = None,
        replayed: Callable[[Error | None], None] | None = None,
    ) -> None:
        """Settles the original by the plan. If the plan has a copy, publishes it and waits for its
        confirm first.

        :param error: what the handler raised
        :param replayed: for a replay: called with None or the error; the copy is published once at
            most
        """
        try:
            copy = self._copy(plan, message, error)
        except Exception as problem:
            if replayed:
                replayed(unreadable(problem))
            else:
                self._session.forget_call(message)
                self.refuse(original, message._history, problem)
            return
        copy.call = 0 if replayed else self._session.keep_call(message, original)
        copy.replayed = replayed
        kind = c.bh_event_of_copy(copy.action)
        if not replayed and self._events.wants(kind):
            copy.event = self._events.of_copy(kind, plan, copy.id, error)
        if not original.is_here:
            self._emit_copy(c.BH_EVENT_STALE, copy, {})
            self._end(copy, replay_error(ConnectionFailedError))
            self._pump()
            return
        entry, copy.channel_id = self._arrive(original)
        self._copies[entry] = copy
        self._settle_entry(entry, copy)
        self._pump_soon()

    def refuse(self, original: Original, history: History | None, problem: Exception) -> None:
        """Abandons a message that cannot be copied: it goes back to its queue after a while."""
        if original.is_here:
            entry, _ = self._arrive(original)
            check(c.Ledger_abandon(self._ledger, entry, self._clock.now_ms()))
        status = problem.status if isinstance(problem, Error) else ContentError.status
        id_ = history._event_id if history else ""
        why: Fields = {"status": status, "id": id_, "count": 1, "cause": text_of(problem)}
        self._emit(self._events.new(c.BH_EVENT_REFUSED, why), problem)
        self._pump()

    def _arrive(self, original: Original) -> tuple[int, int]:
        """Adds a delivery to the ledger, and returns its entry and its channel's id."""
        channel, tag = original.channel, original.tag
        if tag and channel not in self._channels:
            self._channels.open(channel)
            self._watch_channel(channel)
        return self._channels.arrive(channel, tag)

    def _settle_entry(self, entry: int, copy: Copy) -> None:
        """Enters what becomes of the message into the ledger."""
        rung_ms = copy.rung_ms if self._session.makes_rungs else 0
        rung_ms = rung_ms or (_BASE_MS if self._session.restores else 0)
        settle = c.Ledger_settle
        check(
            settle(
                self._ledger, entry, copy.action, rung_ms, copy.id, copy.exchange, copy.routing_key
            )
        )

    # Channels

    def _ended(self, channel: Any, reason: object, is_refused: bool) -> None:
        """A channel that delivers is closed: the broker redelivers the messages in hand.

        :param is_refused: whether the broker closed it, and not its user or the end of the
            connection
        """
        gone, count = self._drop(channel, replay_error(ConnectionFailedError, reason))
        if not self._is_open:
            self._redelivered += count
        elif is_refused:
            for copy in gone:
                self._emit_copy(c.BH_EVENT_STALE, copy, {})
        self._pump()

    def _drop(self, channel: Any, error: Error) -> tuple[list[Copy], int]:
        """Drops the messages in hand from a channel.

        :returns: the copies that are not of a replay, and the number of messages.
        """
        id_ = self._channels.id_of(channel)
        of_channel = [entry for entry, copy in self._copies.items() if copy.channel_id == id_]
        in_flight = [
            entry
            for entry in of_channel
            if self._is_ready and c.Ledger_state(self._ledger, entry) == c.BH_STATE_SENT
        ]
        id_, count = self._channels.close(channel)
        if not id_:
            return [], 0
        self._keep_orphans([self._copies[entry] for entry in in_flight])
        gone = [self._copies.pop(entry) for entry in of_channel]
        for copy in gone:
            self._end(copy, error)
        return [copy for copy in gone if not copy.replayed], count

    def _keep_orphans(self, copies: list[Copy]) -> None:
        """Keeps copies in flight whose originals the broker redelivers."""
        if self._is_open and (orphans := self._orphans.keep(copies)):
            self._later(self._confirm_timeout, partial(self._orphans.give_up, orphans))

    def _lost(self, reason: object, is_wanted: bool) -> None:
        """The connection is lost, and the deliveries with it.

        :param is_wanted: whether its user closed it
        """
        for channel in self._channels:
            count = self._drop(channel, replay_error(ConnectionFailedError, reason))[1]
            self._redelivered += (
                count if channel is not None else 0
            )  # None: they needed no acknowledgement
        count, self._redelivered, self._was_blocked = self._redelivered, 0, False
        self._orphans.give_up()
        if not is_wanted and (count or self._session.consumes(self._connection)):
            status = ConnectionFailedError.status
            why: Fields = {
                "status": status,
                "connection": "consume",
                "count": count,
                "cause": str(reason),
                **self._session.held(self._connection),
            }
            self._emit_of_connection(self._events.new(c.BH_EVENT_DISCONNECTED, why))
        self._pump()

    def _unopened(self, error: BaseException) -> None:
        """The channel that publishes cannot be opened."""
        self._channel = None
        if not self._is_open:
            return
        now = self._clock.now_ms()
        self._emit_unavailable(repr(error), self.pending)
        reason = str(replay_error(PublishError, repr(error)))
        for entry, copy in list(self._copies.items()):
            if c.Ledger_state(self._ledger, entry) != c.BH_STATE_DUE:
                continue
            if copy.replayed:
                self._stop_replay(entry, reason, now)
            else:
                check(c.Ledger_postpone(self._ledger, entry, now))
        self._pump()

    def _confirming(self) -> None:
        status, self._publisher_id = c.Ledger_open_publisher(self._ledger)
        check(status)
        self._is_ready = True
        self._pump()

    def _closed(self, channel: Any, reason: object, reply_code: int = 0) -> None:
        """The channel that publishes is closed.

        :param reply_code: the broker's; 0 if the broker did not close it
        """
        if channel is not self._channel:
            return
        self._channel, self._is_ready = None, False
        self._orphans.give_up()
        self._problem = str(reason)
        ending, count = c.bh_ending_of(reply_code), self.pending
        is_emitted = c.Ledger_close_publisher(
            self._ledger, self._publisher_id, ending, self._clock.now_ms()
        )
        if is_emitted and self._is_open:  # else _lost emits
            self._emit_unavailable(self._problem, count)
        if ending == c.BH_ENDING_MISSING:
            self._doubt()
        self._publisher_id = 0
        self._pump()

    def _doubt(self) -> None:
        """Forgets the declarations, because some exchanges or queues may be deleted."""
        self._session.doubt()
        forget(self._connection)
        c.Ledger_forget_rungs(self._ledger)

    # The ledger's steps

    def _pump_soon(self) -> None:
        """Pumps now. A subclass may pump a little later, for many messages at once."""
        self._pump()

    def _pump(self) -> None:
        """Executes the ledger's steps until there is none."""
        if self._is_pumping:
            return  # the outer call executes the new steps too
        self._is_pumping = True
        ledger, now = self._ledger, self._clock.now_ms()
        try:
            while (step := c.Ledger_next(ledger, now, self._is_ready))[0] != _REST:
                self._execute(step, now)
        finally:
            self._is_pumping = False
            self._hand_over()
        if self._wanted and not self._is_declaring:
            self._declare_rung(self._wanted.popleft())
        if self._channel is None and self._is_open and c.Ledger_count(ledger, c.BH_STATE_DUE):
            self._channel = self._begin_channel()
        self._set_timer()
        while self._callbacks:
            self._callbacks.popleft()()

    def _execute(self, step: c.Step, now: int) -> None:
        kind, entry, channel_id, _, tag, _, event, status, delay_ms, count = step
        if kind == _PUBLISH:
            self._publish(entry, tag)
        elif kind == _EMIT and event == _UNCONFIRMED:
            self._emit_unconfirmed(status, count)
        elif kind == _EMIT:
            self._emit_step(entry, event, status, delay_ms, now)
        elif kind == _DECLARE:
            self._wanted.append(delay_ms)
        else:
            if copy := self._copies.pop(entry, None):  # it was given back
                end_call(copy, c.BH_ACTION_NONE)
            channel = self._channels.channel(channel_id)
            if channel is not None:
                self._dismiss(channel, tag, _DISMISSALS.get(kind, "ack"))

    def _dismiss(self, channel: Any, tag: int, how: How) -> None:
        if not self._settle(channel, tag, how):
            self._session.lose_acks(channel)
        elif how != "requeue":
            self._session.settled(channel)

    def _publish(self, entry: int, tag: int) -> None:
        copy = self._copies[entry]
        copy.tag = tag
        copy.written = self._clock.looked
        try:
            self._write(copy)
        except ChannelClosingError:
            self._is_ready = False
            self._settle_entry(entry, copy)

    def _declare_rung(self, rung_ms: int) -> None:
        """Declares a rung that copies wait for. One rung at a time."""
        session = self._session
        needed = [] if session.is_declared else [0]
        if rung_ms != _BASE_MS:
            needed.append(rung_ms)
        self._is_declaring = True

        def declared(error: Error | None) -> None:
            self._is_declaring = False
            if error is None:
                session.is_declared = True
            else:
                self._problem = str(error)
            c.Ledger_rung(self._ledger, rung_ms, error.status if error else 0, self._clock.now_ms())
            self._pump()

        if needed:
            steps = declaring(session.topology, rungs=needed, connection=self._connection)
            self._declare(steps, declared)
        else:
            declared(None)

    # Time

    def _set_timer(self) -> None:
        due_ms = c.Ledger_due_ms(self._ledger)
        if due_ms != _NEVER:
            delay = self._clock.until(due_ms)
        elif self._was_blocked:
            delay = self._clock.stride  # to see when it is unblocked
        else:
            return
        at = self._clock.looked + delay
        if self._timer is None or at < self._timer:
            self._timer = at
            self._later(delay, partial(self._wake, at))

    def _wake(self, at: float) -> None:
        if self._timer == at:
            self._timer = None
        self._check_blocked()
        self._pump()

    def _check_blocked(self) -> None:
        before, self._was_blocked = self._was_blocked, self._is_blocked
        c.Ledger_block(self._ledger, self._was_blocked, self._clock.now_ms())
        if self._was_blocked != before:
            kind = c.BH_EVENT_BLOCKED if self._was_blocked else c.BH_EVENT_UNBLOCKED
            about: Fields = {"connection": "publish", "count": self.pending}
            self._emit_of_connection(self._events.new(kind, about))

    # The broker's answer

    def _answered(self, tag: int, is_multiple: bool, is_ack: bool) -> None:
        c.Ledger_confirm(
            self._ledger, self._publisher_id, tag, is_multiple, is_ack, self._clock.now_ms()
        )
        for copy in self._orphans.confirm(tag, is_multiple, is_ack):
            if copy.event is not None or self._events.counters:
                self._emit_confirmed(c.bh_event_of_copy(copy.action), copy)
        self._pump()

    def _returned(self, method: Any, headers: Mapping[Any, Any] | None) -> None:
        """The broker returned a copy. A return has no delivery tag: every copy that it may be is
        published again.

        :param method: the client's Basic.Return
        """
        self._doubt()
        self._problem = f"{method.reply_code} {method.reply_text}"
        id_ = (headers or {}).get("backhop-id", "")
        self._orphans.returned(id_)
        c.bh_ledger_return(
            self._ledger, self._publisher_id, id_, method.exchange, method.routing_key
        )

    # Events

    def _emit_step(self, entry: int, kind: int, status: int, delay_ms: int, now: int) -> None:
        copy = self._copies[entry]
        if kind in _CONFIRMED:
            del self._copies[entry]
            end_call(copy, copy.action)
            if copy.replayed:
                self._end(copy)
            elif copy.event is not None or self._events.counters:
                self._emit_confirmed(kind, copy)
            return
        text = self._text(copy.exchange, copy.routing_key)
        if kind == _REFUSED:
            del self._copies[entry]
            end_call(copy, c.BH_ACTION_NONE)
        if not copy.replayed:
            self._emit_copy(kind, copy, {"text": text, "delay_ms": delay_ms, "status": status})
        elif kind == _REFUSED:
            self._end(copy, error_of(status, text))
        else:
            self._stop_replay(entry, text, now)

    def _emit_confirmed(self, kind: int, copy: Copy) -> None:
        duration_us = int((self._clock.looked - copy.written) * 1_000_000) if copy.written else -1
        self._events.count_copy(
            kind, copy.attempts, copy.delay_ms, copy.reason, copy.error_class, duration_us
        )
        if copy.event is not None:
            if duration_us >= 0:
                c.Event_set_int(copy.event, c.BH_FIELD_DURATION, duration_us)
            self._callbacks.append(
                partial(self._events.emit_counted, copy.event, copy.error, copy.traceparent)
            )

    def _emit_unconfirmed(self, status: int, count: int) -> None:
        text = self._text("", "")
        self._emit(self._events.new(_UNCONFIRMED, {"text": text, "status": status, "count": count}))
        for channel in {
            self._channels.channel(copy.channel_id)
            for copy in self._copies.values()
            if copy.replayed
        }:
            self._drop(channel, PublishError(text))

    def _text(self, exchange: str, routing_key: str) -> str:
        """Returns the reason of the last step, as a text."""
        return in_seconds(
            c.Ledger_text(
                self._ledger, exchange, routing_key, self._problem, self._session.undeclared
            )
        )

    def _emit_copy(self, kind: int, copy: Copy, fields: Fields) -> None:
        """Emits an event of one message."""
        about: Fields = {"id": copy.id, "attempts": copy.attempts, "count": 1}
        self._emit(self._events.new(kind, {**about, **fields}), copy.error)

    def _emit_unavailable(self, cause: str, count: int) -> None:
        """Emits that there is no channel to publish on."""
        about: Fields = {
            "status": ChannelClosedError.status,
            "connection": "publish",
            "count": count,
        }
        self._emit(self._events.new(c.BH_EVENT_UNAVAILABLE, {**about, "cause": cause}))

    def _emit_of_connection(self, event: c.Event) -> None:
        """Emits an event that the consumers' health depends on."""
        self._session.observe(event)
        self._emit(event)

    def _emit(self, event: c.Event, exception: BaseException | None = None) -> None:
        self._callbacks.append(partial(self._events.emit, event, exception))

    def _stop_replay(self, entry: int, reason: str, now: int) -> None:
        """Ends the replay of a message, which stays parked."""
        c.Ledger_abandon(self._ledger, entry, now)  # fails if the ledger abandoned it
        self._end(self._copies.pop(entry), PublishError(reason))

    def _end(self, copy: Copy, error: Error | None = None) -> None:
        """Ends a copy, and calls back if it is a replay's.

        The next delivery of its message is handled, unless the copy is an orphan.
        """
        if copy not in self._orphans:
            end_call(copy, c.BH_ACTION_NONE)
        if copy.replayed:
            self._callbacks.append(partial(copy.replayed, error))
