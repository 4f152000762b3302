"""Watch: looks for the return exchange, which no retry comes back without.

It also replays this work queue's messages in the unroutable queue.
"""

from __future__ import annotations

import time

from .. import _backhop as c
from .._errors import ConnectionFailedError, Error
from .._times import seconds
from ..observe.event import Fields
from ..topology import MODES, Mode
from .client import ClientPublisher
from .declaring import looking
from .session import Session


class Watch:
    """Looks once a minute, while the connection of a publisher lasts. Nothing here waits."""

    pause = seconds(c.BH_LOOK_MS)
    """Seconds between two looks."""

    def __init__(self, publisher: ClientPublisher, session: Session) -> None:
        self._publisher = publisher
        self._session = session
        self._has_begun = False
        self._reread = 0.0  # monotonic: when to read the unroutable queue again
        self.is_looking = False
        """True while it looks, or replays."""

    def begin(self) -> None:
        """Begins to watch, unless the session declares and checks nothing."""
        is_on = self._session.mode != "none" and self._publisher._is_open
        if is_on and not self._has_begun:
            self._has_begun = True
            self._publisher._later(self.pause, self._look)

    def _look(self) -> None:
        publisher = self._publisher
        if not publisher._is_open:
            self._session.follow()
            return
        self.is_looking = True
        steps = looking(self._session.topology, self._look_mode, publisher._connection)
        publisher._declare(steps, self._looked)

    def _look_again(self) -> None:
        if self.is_looking:  # a long replay
            self._publisher._later(self.pause, self._look_again)
        else:
            self._look()

    @property
    def _look_mode(self) -> Mode:
        return "create" if self._session.restores else "verify"

    def _looked(self, error: Error | None) -> None:
        publisher = self._publisher
        if error is not None and not isinstance(error, ConnectionFailedError):
            why: Fields = {"status": error.status, "text": str(error)}
            publisher._doubt()
            publisher._emit(self._session.events.new(c.BH_EVENT_UNAVAILABLE, why))
            self._reread = 0  # some retries may have missed the exchange
        publisher._later(self.pause, self._look_again)
        is_back = c.bh_replay_after_look(MODES[self._look_mode], error.status if error else 0)
        if is_back and self._session.topology.unroutable_queue and time.monotonic() >= self._reread:
            self._session.replay_unroutable(publisher._connection, self._replayed)
        else:
            self.is_looking = False
        publisher._pump()

    def _replayed(self, count: int, foreign: int) -> None:
        """Emits the number of messages that came back to the work queue.

        :param foreign: messages of other work queues that stay
        """
        publisher = self._publisher
        self.is_looking = False
        self._reread = time.monotonic() + seconds(c.bh_replay_pause_ms(foreign))
        if count:
            text = c.bh_replay_unroutable_text(MODES[self._look_mode])
            why: Fields = {"count": count, "text": text}
            publisher._emit(self._session.events.new(c.BH_EVENT_REPLAYED, why))
            publisher._pump()
