"""Watch: looks for the return exchange, which no retry comes back without."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from .. import _backhop as c
from .._errors import ConnectionFailedError, Error
from .._times import seconds
from ..observe.event import Fields
from ..observe.events import Events
from ..topology import Mode
from .declaring import Steps, looking
from .retrier import BaseRetrier


class WatchedPublisher(Protocol):
    """The part of the publisher that a watch uses."""

    _connection: Any
    _events: Events
    _retrier: BaseRetrier[Any]

    @property
    def _is_open(self) -> bool: ...

    def _later(self, delay: float, callback: Callable[[], None]) -> object: ...

    def _declare(self, steps: Steps, done: Callable[[Error | None], None]) -> None: ...

    def _doubt(self) -> None: ...

    def _emit(self, event: c.Event) -> None: ...

    def _pump(self) -> None: ...


class Watch:
    """Looks once a minute, while the connection of a publisher lasts. Nothing here waits."""

    pause = seconds(c.BH_LOOK_MS)
    """Seconds between two looks."""

    def __init__(self, publisher: WatchedPublisher) -> None:
        self._publisher = publisher
        self._retrier = publisher._retrier
        self._has_begun = False
        self.is_looking = False
        """True while it looks."""

    def begin(self) -> None:
        """Begins to watch, unless the retrier declares and checks nothing."""
        if not self._has_begun and self._retrier._mode != "none":
            self._has_begun = True
            self._publisher._later(self.pause, self._look)

    def _look(self) -> None:
        publisher = self._publisher
        if not publisher._is_open:
            return
        self.is_looking = True
        mode: Mode = "create" if self._retrier._restores else "verify"
        steps = looking(self._retrier.topology, mode, publisher._connection)
        publisher._declare(steps, self._looked)

    def _looked(self, error: Error | None) -> None:
        publisher = self._publisher
        self.is_looking = False
        if error is not None and not isinstance(error, ConnectionFailedError):
            why: Fields = {"status": error.status, "text": str(error)}
            publisher._doubt()
            publisher._emit(publisher._events.new(c.BH_EVENT_UNAVAILABLE, why))
        publisher._later(self.pause, self._look)
        publisher._pump()
