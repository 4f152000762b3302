"""Gate: holds the messages of a consumer while its breaker is not closed.

The core's flow decides.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from functools import partial
from typing import Any, Generic, TypeVar

from .. import _backhop as c
from .._core import made
from ..breaker import Breaker, Call, now_ms
from ..message import Message
from .copies import Original
from .session import OwnConsumer, Session

MessageT = TypeVar("MessageT", bound=Message)


class Gate(ABC, Generic[MessageT]):
    """Holds the messages of one consumer until its breaker permits their handlers.

    Use it in the thread or the event loop of the connection. A client's subclass starts handlers.
    """

    def __init__(self, session: Session, breaker: Breaker) -> None:
        self._session = session
        self._breaker = breaker
        self._flow = made(c.bh_flow_new(breaker._handle, session.topology._handle))
        self._held: deque[MessageT] = deque()  # the oldest first
        self._is_looking = False
        self._is_limited = False  # the breaker did not permit a message
        self._is_over = False
        session.gates.add(self)
        self._due_ms: int | None = None  # when the next timer ends; None: there is none
        self._latest: Original | None = None  # the delivery that arrived last
        self.consumer: OwnConsumer | None = None
        """The retrier's own consumer. None under ``wrap``: that consumer is the user's."""

    @property
    def is_cancelled(self) -> bool:
        """Returns whether the breaker cancelled the consumer."""
        return bool(c.Flow_is_cancelled(self._flow))

    def hold(self, message: MessageT) -> None:
        """Takes a message that arrived, and starts its handler as soon as the breaker permits."""
        if self._is_over:
            self._session.give_back(message)
            self._dropped(message)
            return
        delivered: Any = message
        self._latest = delivered._original
        if self._may_start(message):
            self._start(message)
            self._look_if_due()
        else:
            self._held.append(message)
            self.look()

    def forget(self, message: MessageT) -> None:
        """Forgets a held message."""
        if message in self._held:
            self._held.remove(message)

    def ended(self, message: MessageT) -> None:
        """Notes the end of a handler. Its call counts as nothing if it was not recorded."""
        self._session.ignore_call(message)
        self._look_if_due()

    def close(self) -> None:
        """Gives the held messages back to the queue. Holds no more."""
        self._is_over = True
        while self._held:
            message = self._held.popleft()
            if self._session.can_settle(message):
                self._session.give_back(message)
            else:
                self._session.forget_call(message)
            self._dropped(message)

    def leave(self) -> None:
        """Lets the held messages wait, because the broker cancelled their consumer.

        If their queue was deleted, the broker does not deliver them again. With a strategy that
        cannot defer they stay here.
        """
        if not self._session.topology._view.defers:
            return
        while self._held:
            message = self._held.popleft()
            call, wait_ms = self._breaker._permit(message)
            if call is not None:
                call.ignore()
            if self._session.can_settle(message):
                self._session.defer(message, wait_ms)
            else:
                self._session.forget_call(message)
            self._dropped(message)

    def look(self) -> None:
        """Executes the flow's steps until none is due."""
        if self._is_looking:
            return  # the outer call executes the new steps too
        self._is_looking = True
        try:
            while not self._is_over and self._execute():
                pass
        finally:
            self._is_looking = False

    def _may_start(self, message: MessageT) -> bool:
        """Returns whether the handler of a message may run before the flow's next step."""
        if self._held or self._is_looking or self._due_ms is None or not self._has_room:
            return False
        generation, number, _ = c.Flow_permit(self._flow, now_ms())
        if generation:
            message._call = Call(self._breaker, "", generation, number)
        return bool(generation)

    def _look_if_due(self) -> None:
        if self._due_ms is None or c.Flow_is_due(self._flow, len(self._held), now_ms()):
            self.look()

    def _execute(self) -> bool:
        """Executes one step. Returns False if no other step is due now."""
        step = self._next()
        if self._perform(step):
            return True
        if step[0] != c.BH_FLOW_CALL:
            self._is_limited = bool(step[4])
        elif self._call():
            return True
        self._set_timer(step[3])
        return False

    def _next(self) -> c.FlowStep:
        self.forget_lost()
        return c.Flow_next(self._flow, len(self._held), now_ms())

    def _perform(self, step: c.FlowStep) -> bool:
        """Executes a step that starts no handler. Returns False if it is no such step."""
        kind, event, delay_ms, _, _ = step
        if kind == c.BH_FLOW_EMIT:
            self._emit(event)
        elif kind == c.BH_FLOW_DEFER:
            message = self._held.popleft()
            self._session.defer(message, delay_ms)
            self._dropped(message)
        elif kind == c.BH_FLOW_CANCEL:
            if self.consumer is not None:
                self.consumer._pause()
        elif kind == c.BH_FLOW_CONSUME:
            if self.consumer is not None:
                self.consumer._resume()
        else:
            return False
        return True

    def _call(self) -> bool:
        if not self._has_room:
            return False  # the end of a handler looks again
        call, _ = self._breaker._permit(self._held[0])
        if call is None:  # another consumer got the permit
            return True
        message = self._held.popleft()
        message._call = call
        if self._is_limited:  # emits that a probe begins, before the handler runs
            while self._perform(self._next()):
                pass
        self._start(message)
        return True

    def forget_lost(self) -> None:
        """Forgets messages whose channel is closed: the broker delivers them again."""
        while self._held and not self._session.can_settle(self._held[0]):
            message = self._held.popleft()
            self._session.forget_call(message)
            self._dropped(message)

    def _emit(self, kind: int) -> None:
        event = self._session.events.new(kind, {})
        c.Flow_describe(self._flow, event)
        if self.consumer is not None:
            self.consumer._health.observe(event)
        self._session.events.emit(event)

    def _set_timer(self, due_ms: int) -> None:
        if self._is_gone or (self._due_ms is not None and self._due_ms <= due_ms):
            return
        self._due_ms = due_ms
        self._session.later(max(0, due_ms - now_ms()) / 1000, partial(self._due, due_ms))

    def _due(self, due_ms: int) -> None:
        """A timer ended."""
        if due_ms == self._due_ms:  # no later one was set for an earlier time
            self._due_ms = None
            self.look()

    @property
    def _is_gone(self) -> bool:
        """Returns whether no message can come: the channel of an own consumer is closed."""
        if self.consumer is not None or self._held:
            return False
        return self._latest is None or not self._latest.is_here

    @property
    def _has_room(self) -> bool:
        """Returns whether a handler is free."""
        return True

    @abstractmethod
    def _start(self, message: MessageT) -> None:
        """Starts the handler of a message. Calls ``ended`` when that ends."""

    def _dropped(self, message: MessageT) -> None:
        """A held message was settled, given back or forgotten."""
