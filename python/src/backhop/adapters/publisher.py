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
from .calls import CALLS
from .channels import DeliveryChannels
from .client import ClientPublisher
from .clock import LedgerClock
from .copies import ChannelClosingError, Copy, Original
from .declaring import declaring, forget
from .frames import How
from .replay import unreadable
from .session import Session
from .watch import Watch

_REST, _PUBLISH, _EMIT, _OPEN, _DECLARE = (
    c.BH_STEP_REST,
    c.BH_STEP_PUBLISH,
    c.BH_STEP_EMIT,
    c.BH_STEP_OPEN,
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
_REFUSED, _STALE = c.BH_EVENT_REFUSED, c.BH_EVENT_STALE
_UNCONFIRMED, _UNAVAILABLE = c.BH_EVENT_UNCONFIRMED, c.BH_EVENT_UNAVAILABLE
_HAVE_COPIES = {c.BH_STATE_DUE, c.BH_STATE_SENT, c.BH_STATE_WAITING, c.BH_STATE_CONFIRMED}
_NEVER = -1  # of Ledger_due_ms
_RANDOM_BYTES = 8
_LONGEST_STRIDE = 1.0  # seconds


class Publisher(ClientPublisher):
    """Settles messages, and publishes copies on a confirm channel of its own, while a connection
    lasts.

    Any number of copies is in flight at a time.
    """

    def __init__(self, session: Session, confirm_timeout: float) -> None:
        ledger = made(c.bh_ledger_new(session.back_off, os.urandom(_RANDOM_BYTES)))
        check(c.Ledger_set_confirm_timeout_ms(ledger, milliseconds(confirm_timeout)))
        c.Ledger_set_restores(ledger, session.restores)
        self._session = session
        self._events = session.events
        self._ledger = ledger
        self._copies: dict[int, Copy] = {}  # by their entries
        self._channels = DeliveryChannels(ledger)
        self._channel: Any = None  # publishes
        self._publisher_id = 0  # of that channel, in the ledger; 0: it is not open
        self._may_write = True  # False: the channel closes, and _closed follows
        self._must_open = False  # a step wants the channel
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
        check(self._settle_entry(entry, copy))
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

    def declared(self) -> None:
        """Records that declare() made the topology, and may make it again."""
        c.Ledger_set_restores(self._ledger, True)
        c.Ledger_rung(self._ledger, 0, 0, self._clock.now_ms())
        self._pump()

    def _arrive(self, original: Original) -> tuple[int, int]:
        """Adds a delivery to the ledger, and returns its entry and its channel's id."""
        channel, tag = original.channel, original.tag
        if tag and channel not in self._channels:
            self._channels.open(channel)
            self._watch_channel(channel)
        return self._channels.arrive(channel, tag)

    def _settle_entry(self, entry: int, copy: Copy) -> int:
        """Enters what becomes of the message into the ledger, and returns the status."""
        rung_ms = copy.rung_ms if self._session.makes_rungs else 0
        names = copy.id, copy.exchange, copy.routing_key
        return c.Ledger_settle(self._ledger, entry, copy.action, rung_ms, *names)

    # Channels

    def _ended(self, channel: Any, reason: object, is_refused: bool) -> None:
        """A channel that delivers is closed: the broker redelivers the messages in hand.

        :param is_refused: whether the broker closed it, and not its user or the end of the
            connection
        """
        error = replay_error(ConnectionFailedError, reason)
        if self._is_open:
            self._lose(channel, error, is_refused)
        else:
            self._redelivered += self._drop(channel, error)
        self._pump()

    def _lose(self, channel: Any, error: Error, is_refused: bool) -> None:
        """Ends the messages in hand from a channel, while the broker can still confirm copies.

        The ledger ends those with copies. If a copy is confirmed, the next delivery of its original
        is acknowledged, and until then that delivery waits.
        """
        id_ = self._channels.id_of(channel)
        of_channel = [each for each, copy in self._copies.items() if copy.channel_id == id_]
        for entry in of_channel:
            copy = self._copies[entry]
            copy.emits_stale = is_refused
            if copy.replayed or c.Ledger_state(self._ledger, entry) not in _HAVE_COPIES:
                del self._copies[entry]
                self._end(copy, error)
        self._channels.close(channel, c.Ledger_lose_channel)

    def _drop(self, channel: Any, error: Error) -> int:
        """Drops the messages in hand from a channel, and returns their number."""
        id_, count = self._channels.close(channel, c.Ledger_close_channel)
        of_channel = [each for each, copy in self._copies.items() if copy.channel_id == id_]
        for entry in of_channel:
            self._end(self._copies.pop(entry), error)
        return count

    def _lost(self, reason: object, is_wanted: bool) -> None:
        """The connection is lost, and the deliveries with it.

        :param is_wanted: whether its user closed it
        """
        for channel in self._channels:
            count = self._drop(channel, replay_error(ConnectionFailedError, reason))
            self._redelivered += (
                count if channel is not None else 0
            )  # None: they needed no acknowledgement
        count, self._redelivered, self._was_blocked = self._redelivered, 0, False
        self._publisher_id = 0
        c.Ledger_disconnect(self._ledger, c.BH_ENDING_ORDERLY, self._clock.now_ms())
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

    def _unopened(self, reason: str) -> None:
        """The channel that publishes cannot be opened."""
        self._channel = None
        self._problem = reason
        if self._is_open:
            status = ChannelClosedError.status
            c.Ledger_publisher_failed(self._ledger, status, self._clock.now_ms())
        self._pump()

    def _confirming(self) -> None:
        status, self._publisher_id = c.Ledger_open_publisher(self._ledger)
        check(status)
        self._pump()

    def _closed(self, channel: Any, reason: object, reply_code: int = 0) -> None:
        """The channel that publishes is closed.

        :param reply_code: the broker's; 0 if the broker did not close it
        """
        if channel is not self._channel:
            return
        self._may_write = True
        if not self._publisher_id:
            self._unopened(str(reason))
            return
        self._channel = None
        self._problem = str(reason)
        ending, count = c.bh_ending_of(reply_code), self.pending
        is_emitted = c.Ledger_close_publisher(
            self._ledger, self._publisher_id, ending, self._clock.now_ms()
        )
        self._publisher_id = 0
        if is_emitted and self._is_open:  # else _lost emits
            self._emit_unavailable({"status": ChannelClosedError.status, "count": count})
        if ending == c.BH_ENDING_MISSING:
            self._doubt()
        self._pump()

    def _doubt(self) -> None:
        """Forgets the declarations, because some exchanges or queues may be deleted."""
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
        ledger, now, is_open = self._ledger, self._clock.now_ms(), self._is_open
        try:
            while (step := c.Ledger_next(ledger, now, is_open and self._may_write))[0] != _REST:
                self._execute(step, now)
        finally:
            self._is_pumping = False
            self._hand_over()
        if self._wanted and not self._is_declaring:
            self._declare_rung(self._wanted.popleft())
        if self._must_open:
            self._must_open = False
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
        elif kind == _EMIT and event == _UNAVAILABLE:
            self._emit_unavailable({"status": status, "count": count, "delay_ms": delay_ms})
            self._stop_due_replays(now)
        elif kind == _EMIT:
            self._emit_step(entry, event, status, delay_ms, now)
        elif kind == _OPEN:
            self._must_open = True
        elif kind == _DECLARE:
            self._wanted.append(delay_ms)
        else:
            if copy := self._copies.pop(entry, None):  # it was given back
                _end_call(copy, c.BH_ACTION_NONE)
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
            self._may_write = False
            self._settle_entry(entry, copy)  # fails if the original's channel was lost too

    def _declare_rung(self, rung_ms: int) -> None:
        """Declares a rung that copies wait for; 0: the topology. One at a time."""
        self._is_declaring = True

        def declared(error: Error | None) -> None:
            self._is_declaring = False
            if error is not None:
                self._problem = str(error)
            if self._is_open:  # else _lost reports that
                status = error.status if error else 0
                c.Ledger_rung(self._ledger, rung_ms, status, self._clock.now_ms())
            self._pump()

        rungs = [rung_ms]
        steps = declaring(self._session.topology, rungs=rungs, connection=self._connection)
        self._declare(steps, declared)

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
        self._pump()

    def _returned(self, method: Any, headers: Mapping[Any, Any] | None) -> None:
        """The broker returned a copy. A return has no delivery tag: every copy that it may be is
        published again.

        :param method: the client's Basic.Return
        """
        forget(self._connection)
        self._problem = f"{method.reply_code} {method.reply_text}"
        id_ = (headers or {}).get("backhop-id", "")
        c.bh_ledger_return(
            self._ledger, self._publisher_id, id_, method.exchange, method.routing_key
        )

    # Events

    def _emit_step(self, entry: int, kind: int, status: int, delay_ms: int, now: int) -> None:
        copy = self._copies.get(entry)
        if copy is None:
            return  # a replay whose channel closed
        if kind in _CONFIRMED:
            del self._copies[entry]
            _end_call(copy, copy.action)
            if copy.replayed:
                self._end(copy)
            elif copy.event is not None or self._events.counters:
                self._emit_confirmed(kind, copy)
            return
        if kind == _STALE:
            self._end(self._copies.pop(entry))
            return
        text = self._text(copy.exchange, copy.routing_key)
        if kind == _REFUSED:
            del self._copies[entry]
            _end_call(copy, c.BH_ACTION_NONE)
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

    def _emit_unavailable(self, fields: Fields) -> None:
        """Emits that copies wait, because there is no channel to publish on, or no topology."""
        about: Fields = {**fields, "connection": "publish", "cause": self._problem}
        self._emit(self._events.new(_UNAVAILABLE, about))

    def _emit_of_connection(self, event: c.Event) -> None:
        """Emits an event that the consumers' health depends on."""
        self._session.observe(event)
        self._emit(event)

    def _emit(self, event: c.Event, exception: BaseException | None = None) -> None:
        self._callbacks.append(partial(self._events.emit, event, exception))

    def _stop_due_replays(self, now: int) -> None:
        """Ends the replays of messages whose copies cannot be published now."""
        reason = str(replay_error(PublishError, self._problem))
        for entry, copy in list(self._copies.items()):
            if copy.replayed and c.Ledger_state(self._ledger, entry) == c.BH_STATE_DUE:
                self._stop_replay(entry, reason, now)

    def _stop_replay(self, entry: int, reason: str, now: int) -> None:
        """Ends the replay of a message, which stays parked."""
        c.Ledger_abandon(self._ledger, entry, now)  # fails if the ledger abandoned it
        self._end(self._copies.pop(entry), PublishError(reason))

    def _end(self, copy: Copy, error: Error | None = None) -> None:
        """Ends a copy, and calls back if it is a replay's. The next delivery is handled."""
        _end_call(copy, c.BH_ACTION_NONE)
        if copy.replayed:
            self._callbacks.append(partial(copy.replayed, error))
        elif copy.emits_stale:
            self._emit_copy(_STALE, copy, {})


def _end_call(copy: Copy, action: int) -> None:
    """Records what became of the message of a copy. Without effect the second time."""
    call, copy.call = copy.call, 0
    if call:
        CALLS.end(call, action)
