"""Health: the state of a worker or consumer, which events lead to."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from .. import _backhop as c
from .._core import made
from .._errors import StateError, WaitTimeoutError, in_seconds
from .._times import milliseconds

State: TypeAlias = Literal["starting", "ready", "reconnecting", "paused", "stopped"]
"""The state of a worker or consumer.

``"paused"``: the broker blocks its connection, or its breaker is open.
"""


class Health:
    """The core's health of one worker or consumer."""

    __slots__ = ("_is_worker", "handle")

    def __init__(self, *, is_worker: bool = False) -> None:
        self.handle = made(c.bh_health_new())
        self._is_worker = is_worker

    def observe(self, event: c.Event) -> None:
        """Applies an event."""
        c.Health_observe(self.handle, event)

    @property
    def state(self) -> State:
        """The state."""
        name: Any = c.bh_health_name(c.Health_state(self.handle))
        return name  # type: ignore[no-any-return]

    @property
    def reason(self) -> str:
        """The text of the event that led to the state; "" for none."""
        return in_seconds(c.Health_reason(self.handle))

    def stopped(self) -> StateError:
        """Returns the error of a wait for a worker or consumer that has stopped."""
        return StateError(self._wait_error(-1))

    def late(self, limit: float | None) -> WaitTimeoutError:
        """Returns the error of a wait that was longer than ``limit`` seconds."""
        return WaitTimeoutError(self._wait_error(milliseconds(limit or 0)))

    def _wait_error(self, limit_ms: int) -> str:
        return in_seconds(c.Health_wait_error(self.handle, self._is_worker, limit_ms))
