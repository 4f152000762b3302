"""Health: the state of a worker or consumer, which events lead to."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from .. import _backhop as c
from .._core import made
from .._errors import StateError, WaitTimeoutError, in_seconds
from .._times import duration

State: TypeAlias = Literal["starting", "ready", "reconnecting", "paused", "stopped"]
"""The state of a worker or consumer.

``"paused"``: the broker blocks its connection, or its breaker is open.
"""


def stopped(reason: str) -> StateError:
    """Returns the error of a wait for a worker or consumer that has stopped."""
    return StateError(f"it has stopped, and is not ready any more{f': {reason}' if reason else ''}")


def late(state: str, limit: float | None, reason: str) -> WaitTimeoutError:
    """Returns the error of a wait that was too long."""
    why = f": {reason}" if reason else ""
    return WaitTimeoutError(f"it is {state} after {duration(limit or 0)}, not ready{why}")


class Health:
    """The core's health of one worker or consumer."""

    __slots__ = ("handle",)

    def __init__(self) -> None:
        self.handle = made(c.bh_health_new())

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
