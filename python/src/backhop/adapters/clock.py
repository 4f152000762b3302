"""The clock of a ledger, which does not run while the event loop stands still."""

from __future__ import annotations

import time


class LedgerClock:
    """Counts the time that passes while the event loop runs.

    If the event loop stands still, the clock advances by one stride at most. So confirms that
    arrived meanwhile are processed before their timeout.

    :param stride: seconds
    """

    __slots__ = ("_now", "looked", "stride")

    def __init__(self, stride: float) -> None:
        self.stride = stride
        self._now = 0.0
        self.looked = time.monotonic()
        """When it was last read, by time.monotonic."""

    def now_ms(self) -> int:
        """Reads it: ms since it was made."""
        now = time.monotonic()
        self._now += min(now - self.looked, self.stride)
        self.looked = now
        # A sum of floats may be a little less than the due time that it reached.
        return int(self._now * 1000 + 1e-6)

    def until(self, due_ms: int) -> float:
        """Returns the seconds until a time of this clock, from 0 to one stride."""
        return min(max(due_ms / 1000 - self._now, 0), self.stride)
