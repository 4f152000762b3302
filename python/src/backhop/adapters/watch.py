"""Watch: looks for the return exchange, which no retry comes back without.

It also replays this work queue's messages in the unroutable queue, and reports a broker that does
not answer.
"""

from __future__ import annotations

import time

from .. import _backhop as c
from .._core import made
from .._errors import ConnectionFailedError, Error, WaitTimeoutError, in_seconds
from .._times import milliseconds, seconds
from ..observe.event import Fields
from ..topology import MODES, Mode
from .client import ClientPublisher
from .declaring import looking
from .session import Session

_NEVER = -1  # of Silence_due_ms


def _now_ms() -> int:
    return int(time.monotonic() * 1000)


class Watch:
    """Looks once a minute, while the connection of a publisher lasts. Nothing here waits."""

    pause = seconds(c.BH_LOOK_MS)
    """Seconds between two looks."""

    def __init__(self, publisher: ClientPublisher, session: Session) -> None:
        self._publisher = publisher
        self._session = session
        self._has_begun = False
        self._silence = made(c.bh_silence_new(milliseconds(session.confirm_timeout)))
        self._checks = False  # a check of the silence is scheduled
        self._reread = 0.0  # monotonic: when to read the unroutable queue again
        self._is_asking = False  # a look has no answer yet
        self._is_replaying = False

    @property
    def is_looking(self) -> bool:
        """True while it looks, or replays."""
        return self._is_asking or self._is_replaying

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
        self._is_asking = True
        c.Silence_begin(self._silence, _now_ms())
        self._check_later()
        steps = looking(self._session.topology, self._look_mode, publisher._connection)
        publisher._declare(steps, self._looked)

    def _look_again(self) -> None:
        if self._is_asking:
            self._publisher._later(self.pause, self._look_again)
        else:
            self._look()

    @property
    def _look_mode(self) -> Mode:
        return "create" if self._session.restores else "verify"

    def _check_later(self) -> None:
        due_ms = c.Silence_due_ms(self._silence)
        if due_ms != _NEVER and not self._checks:
            self._checks = True
            self._publisher._later(seconds(max(due_ms - _now_ms(), 0)), self._check)

    def _check(self) -> None:
        self._checks = False
        publisher = self._publisher
        if publisher._is_open:
            self._emit(c.Silence_check(self._silence, publisher._is_blocked, _now_ms()))
            self._check_later()
            publisher._pump()

    def _emit(self, kind: int) -> None:
        """Emits that the connection is silent, or that the broker answers again."""
        if kind == c.BH_EVENT_LAST:
            return
        is_silent = kind == c.BH_EVENT_UNAVAILABLE
        text = in_seconds(c.Silence_text(self._silence))
        about: Fields = {"connection": "consume", "text": text}
        why: Fields = {**about, "status": WaitTimeoutError.status} if is_silent else about
        event = self._session.events.new(kind, why)
        self._session.observe(event, are_consuming=not is_silent)
        self._publisher._emit(event)

    def _looked(self, error: Error | None) -> None:
        publisher = self._publisher
        self._is_asking = False
        self._emit(c.Silence_end(self._silence, error.status if error else 0))
        if error is not None and not isinstance(error, ConnectionFailedError):
            why: Fields = {"status": error.status, "text": str(error)}
            publisher._doubt()
            publisher._emit(self._session.events.new(c.BH_EVENT_UNAVAILABLE, why))
            self._reread = 0  # some retries may have missed the exchange
        pause = min(self.pause, seconds(c.Silence_pause_ms(self._silence)))
        publisher._later(pause, self._look_again)
        is_due = time.monotonic() >= self._reread and not self._is_replaying
        is_back = c.bh_replay_after_look(MODES[self._look_mode], error.status if error else 0)
        if is_due and is_back and self._session.topology.unroutable_queue:
            # The next look does not wait for its end: the broker may become silent.
            self._is_replaying = True
            self._session.replay_unroutable(publisher._connection, self._replayed)
        publisher._pump()

    def _replayed(self, count: int, foreign: int) -> None:
        """Emits the number of messages that came back to the work queue.

        :param foreign: messages of other work queues that stay
        """
        publisher = self._publisher
        self._is_replaying = False
        self._reread = time.monotonic() + seconds(c.bh_replay_pause_ms(foreign))
        if count:
            text = c.bh_replay_unroutable_text(MODES[self._look_mode])
            why: Fields = {"count": count, "text": text}
            publisher._emit(self._session.events.new(c.BH_EVENT_REPLAYED, why))
            publisher._pump()
