"""When a consumer declares, consumes and waits: the core's subscription and its events."""

from __future__ import annotations

import os

from .. import _backhop as c
from .._core import made
from .._errors import ChannelClosedError, Error
from ..breaker import now_ms

_RANDOM_BYTES = 8

REST = c.BH_SUBSCRIPTION_REST
EMIT = c.BH_SUBSCRIPTION_EMIT
DECLARE = c.BH_SUBSCRIPTION_DECLARE
CONSUME = c.BH_SUBSCRIPTION_CONSUME
NEVER = -1
"""The due time of a REST: no step becomes due by time alone."""


class Subscription:
    """The core's subscription of one consumer.

    :param back_off: the policy of the delays
    """

    def __init__(self, back_off: c.Policy) -> None:
        self.handle = made(c.bh_subscription_new(back_off, os.urandom(_RANDOM_BYTES)))
        self._cause: object = None  # of the next event; None: there is none
        self.error: BaseException | None = None
        """Why its first attempt failed."""
        self.was_consuming = False
        """True after it has consumed once."""

    @property
    def is_consuming(self) -> bool:
        """Returns whether it consumes, or its breaker has cancelled its consumer."""
        return bool(c.Subscription_is_consuming(self.handle))

    def next(self, may_subscribe: bool) -> c.SubscriptionStep:
        """Returns the next step.

        :param may_subscribe: whether the connection is open, and the breaker permits
        """
        step = c.Subscription_next(self.handle, may_subscribe, now_ms())
        if step[0] == DECLARE:
            self._cause = None
        return step

    def cause(self) -> str:
        """Returns why it does not consume, for the event. "": the broker cancelled the consumer."""
        cause, self._cause = self._cause, None
        return "" if cause is None else str(cause)

    def declared(self) -> None:
        """Records that the topology is declared."""
        c.Subscription_declared(self.handle)

    def subscribed(self) -> None:
        """Records that it consumes."""
        self.was_consuming = True
        c.Subscription_subscribed(self.handle)

    def lost(self, loss: int, cause: object = "", error: BaseException | None = None) -> None:
        """Records the end of its consumer, channel or connection."""
        self._keep(cause, error)
        c.Subscription_lost(self.handle, loss, now_ms())

    def failed(self, error: BaseException, cause: object) -> None:
        """Records that it could not declare or consume."""
        self._keep(cause, error)
        status = error.status if isinstance(error, Error) else ChannelClosedError.status
        c.Subscription_failed(self.handle, status, now_ms())

    def _keep(self, cause: object, error: BaseException | None) -> None:
        self.error = self.error or error
        if self._cause is None:  # else it was lost already
            self._cause = cause

    def stop(self) -> None:
        """Records that it is cancelled, or cannot come back."""
        c.Subscription_stop(self.handle)
