"""The calls of handlers in this process: no message that comes again gets a second call."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable

from .. import _backhop as c
from .._core import made
from .._errors import Error
from ..breaker import now_ms
from ..message import Message

_RANDOM_BYTES = 16
_PREFETCH = 100  # of a consumer of the user's
_MOST_BYTES = 1 << 20
"""Bytes of the bodies of acknowledged messages that a channel keeps at most, or one message."""

GoOn = Callable[[], None]
"""Called in any thread."""


class Calls:
    """The core's calls, and what waits for their ends. Use it in any thread."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Forgets all calls. A forked child does so, because it does not see their ends."""
        self._calls = made(c.bh_calls_new(os.urandom(_RANDOM_BYTES)))
        self._lock = threading.Lock()
        self._waiting: dict[int, list[GoOn]] = {}  # by the calls that they wait for
        self._channels: set[Deliveries] = set()  # open, or cancelled by the broker

    def open_channel(self, deliveries: Deliveries) -> int:
        """Returns the number of a channel that begins to deliver."""
        with self._lock:
            self._channels.add(deliveries)
            return c.Calls_open_channel(self._calls)

    def arrive(self, message: Message, deliveries: Deliveries, go_on: GoOn) -> tuple[int, int]:
        """Returns the kind of the arrival of a redelivery, and the action of its earlier call.

        Keeps the call in the message, if it gets one.

        :param go_on: if the message has to wait, called once it may arrive again.
        """
        with self._lock:
            for each in self._channels:
                self._keep_in_hand(each)
            kind, call, action = self._arrive(message, deliveries, message.redelivered)
            if kind == c.BH_ARRIVAL_WAIT:
                self._waiting.setdefault(call, []).append(go_on)
            elif kind == c.BH_ARRIVAL_CALL:
                message._kept_call = call
        return kind, action

    def _arrive(self, message: Message, deliveries: Deliveries, again: bool) -> c.Arrival:
        try:
            history = message.history._handle
        except Error:  # the message is malformed: the handler's error, and the plan's
            return c.BH_ARRIVAL_CALL, 0, c.BH_ACTION_NONE
        return c.Calls_arrive(
            self._calls, deliveries.number, history, message.queue, message.body, again, now_ms()
        )

    def _keep_in_hand(self, deliveries: Deliveries) -> None:
        """Keeps the calls of the messages in hand."""
        if deliveries.in_hand:
            for message in deliveries.in_hand:
                message._kept_call = self._arrive(message, deliveries, False)[1]
            deliveries.in_hand.clear()

    def keep(self, message: Message, deliveries: Deliveries | None) -> int:
        """Returns the call of a message, which its copy will end. Keeps the call from now on."""
        with self._lock:
            if deliveries is not None and message in deliveries.in_hand:
                deliveries.in_hand.discard(message)
                message._kept_call = self._arrive(message, deliveries, False)[1]
            call, message._kept_call = message._kept_call, 0
        return call

    def finish(self, message: Message, deliveries: Deliveries | None, action: int) -> None:
        """Records how a message was settled. BH_ACTION_NONE: it was given back."""
        with self._lock:
            call, message._kept_call = message._kept_call, 0
            if not call:
                if deliveries is not None and message in deliveries.in_hand:
                    deliveries.in_hand.discard(message)
                    if action != c.BH_ACTION_NONE:
                        deliveries.note_ack(message, action)
                return
        self.end(call, action)

    def end(self, call: int, action: int) -> None:
        """Records how the message of a kept call was settled."""
        with self._lock:
            c.Calls_end(self._calls, call, action, now_ms())
            waiting = self._waiting.pop(call, ())
        for go_on in waiting:
            go_on()

    def lose_channel(self, deliveries: Deliveries, prefetch: int, *, is_closed: bool) -> None:
        """Records that acknowledgements of a channel may be lost.

        :param prefetch: of the channel; or BH_CALLS_CLOSED: the broker has all acknowledgements
        """
        with self._lock:
            if is_closed:
                self._channels.discard(deliveries)
            for message, action in deliveries.take_acks() if prefetch != c.BH_CALLS_CLOSED else ():
                call = self._arrive(message, deliveries, False)[1]
                c.Calls_end(self._calls, call, action, now_ms())
            self._keep_in_hand(deliveries)
            c.Calls_lose_channel(self._calls, deliveries.number, prefetch, now_ms())


CALLS = Calls()
"""The calls of all retriers: a message can come back by another connection and retrier."""

os.register_at_fork(after_in_child=CALLS.forget)


class Deliveries:
    """A channel that delivers, and its number among the calls.

    To read the headers of each message would cost a consumer a fifth of its processor time. So
    its messages become calls only if the channel is lost, or when a redelivery arrives.

    :param subscription: of its consumer; None under ``wrap``
    :param prefetch: of its consumer; 0: unknown
    """

    __slots__ = (
        "_acks",
        "_bytes",
        "_most",
        "in_hand",
        "is_doubtful",
        "number",
        "prefetch",
        "subscription",
    )

    def __init__(self, subscription: c.Subscription | None, prefetch: int) -> None:
        self.subscription = subscription
        self.prefetch = prefetch
        self._most = c.BH_CALLS_PREFETCHES * (prefetch or _PREFETCH)  # acknowledgements to keep
        self.is_doubtful = False
        self.in_hand: set[Message] = set()
        """Messages whose calls run, and are not kept yet."""
        self._acks: deque[tuple[Message, int]] = deque()
        self._bytes = 0  # of their bodies
        self.number = CALLS.open_channel(self)

    def note_ack(self, message: Message, action: int) -> None:
        """Notes an acknowledgement that may be lost. Forgets the oldest ones."""
        acks = self._acks
        acks.append((message, action))
        self._bytes += len(message.body)
        while len(acks) > self._most or (self._bytes > _MOST_BYTES and len(acks) > 1):
            self._bytes -= len(acks.popleft()[0].body)

    def take_acks(self) -> list[tuple[Message, int]]:
        """Returns the last acknowledgements, and forgets them."""
        acks = list(self._acks)
        self._acks.clear()
        self._bytes = 0
        return acks

    def lose(self) -> None:
        """Records that the broker may not have its last acknowledgements, also of later ones."""
        self.is_doubtful = True
        CALLS.lose_channel(self, self.prefetch, is_closed=False)

    def close(self, *, is_orderly: bool) -> None:
        """Records its end.

        :param is_orderly: whether the broker has confirmed that it is closed
        """
        all_arrived = is_orderly and not self.is_doubtful
        prefetch = c.BH_CALLS_CLOSED if all_arrived else self.prefetch
        CALLS.lose_channel(self, prefetch, is_closed=True)
