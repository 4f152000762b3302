"""Lets threads and coroutines wait until a worker is ready."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError

from .. import _backhop as c
from .._checks import wait_limit
from .._errors import Error, WaitTimeoutError
from .._times import Seconds
from ..observe.health import Health


class Readiness:
    """The health of a worker, and a future for its next readiness. For any thread.

    :param read: reads the health from the core
    """

    def __init__(self, read: Callable[[c.Health], object]) -> None:
        self._read = read
        self._lock = threading.Lock()
        self._future: Future[None] = Future()

    @property
    def health(self) -> Health:
        """The health now."""
        health = Health(is_worker=True)
        self._read(health.handle)
        return health

    def begin(self) -> None:
        """Begins the wait of a new run. Called before the core's worker starts."""
        with self._lock:
            self._renew()

    def look(self) -> None:
        """Compares the future with the health. Called after each event and at the start."""
        with self._lock:
            state = self.health.state
            if state == "ready" and not self._future.done():
                self._future.set_result(None)
            elif state in ("starting", "reconnecting"):
                self._renew()

    def end(self, error: BaseException | None) -> None:
        """Ends the wait: the worker does not become ready any more.

        :param error: why it gave up
        """
        with self._lock:
            self._renew()
            if not isinstance(error, Error):
                error = self.health.stopped()
            self._future.set_exception(error)

    def _renew(self) -> None:
        if self._future.done():
            self._future = Future()

    def wait(self, timeout: Seconds | None) -> None:
        """Waits in a thread. Errors as Worker.ready."""
        limit = wait_limit(timeout)
        try:
            self._future.result(limit)
        except FutureTimeoutError:
            raise self._late(limit) from None

    async def wait_async(self, timeout: Seconds | None) -> None:
        """Waits in an event loop. Errors as Worker.ready."""
        import asyncio

        limit = wait_limit(timeout)
        waiting = asyncio.wrap_future(self._future)
        waiting.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            await asyncio.wait_for(asyncio.shield(waiting), limit)
        except asyncio.TimeoutError:
            raise self._late(limit) from None

    def _late(self, limit: float | None) -> WaitTimeoutError:
        return self.health.late(limit)
