"""Worker: consumes, asks for the plan and carries it out, on connections of its own that a background thread keeps."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import select
import signal
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, TypeAlias

from . import _backhop as c
from ._amqp import Text
from ._core import made, number
from ._errors import Error, ForkedError, NoLibrabbitmqError, StateError, WaitTimeoutError, check, error
from ._time import Seconds, milliseconds
from .delivery import Delivery
from .event import Event, event_of
from .history import History
from .message import Message
from .outcomes import OK, Result, called, parking, result_of
from .plan import OUTCOMES
from .policy import Policy
from .topology import Topology

Mode: TypeAlias = Literal["create", "verify", "none"]
Handler: TypeAlias = Callable[[Message], object]
AsyncHandler: TypeAlias = Callable[[Message], Awaitable[object]]

_MODES: dict[Mode, int] = {"create": c.BH_MODE_CREATE, "verify": c.BH_MODE_VERIFY, "none": c.BH_MODE_NONE}
_LONGEST_DRAIN_MS = 3_600_000
_SHORT_WHILE = 0.01  # seconds
_LOOK_AFTER = 1.0  # seconds: how often events are looked for while every thread has a message
_NO_LIBRABBITMQ = (
    "this Backhop was built without librabbitmq, which its Worker needs (backhop.pika and backhop.aio_pika do not): "
    "install librabbitmq 0.11 or newer and pkg-config (Debian and Ubuntu: librabbitmq-dev pkg-config, Fedora: "
    "librabbitmq-devel pkgconf, Homebrew: rabbitmq-c pkgconf), then: "
    "pip install --force-reinstall --no-cache-dir --no-binary backhop backhop"
)

log = logging.getLogger("backhop")


class Worker:
    """Consumes a queue and handles its messages; what fails comes back later, and is parked after its last attempt.

    The core's background thread keeps two connections, makes them again where they are lost, publishes copies, awaits
    their confirms and acknowledges: heartbeats go on while a handler runs for an hour.

        worker = backhop.Worker("amqp://localhost", queue="cdn-purge", policy=policy, threads=8)
        worker.run(handle)                    # or: await worker.serve(async_handle)

    A handler that returns acknowledges its message; one that raises sees it again later, unless it raises Park or Drop.
    Ctrl-C and SIGTERM drain: no more messages are taken, and handlers have ``drain`` seconds to finish. A message that
    they do not settle in time goes back to the queue.

    Events are logged to the logger ``backhop``: connected, failed, disconnected, blocked, unblocked, cancelled,
    returned, nacked, unconfirmed, refused, retried, parked, stale, replayed, missed, drained.

    After os.fork() a worker of the parent refuses to work in the child with a ForkedError: make a new one there.

    :param uri: ``amqp://user:password@host:port/vhost?heartbeat=seconds``, ``amqps://`` for TLS; or a list of them, to
        try in turn
    :param queue: the work queue, which has to be there; or give ``topology``, to choose a strategy or to declare it too
    :param policy: of the queue; default: Policy()
    :param topology: instead of queue and policy
    :param threads: how many handlers run at once under ``run``
    :param prefetch: messages that the broker sends ahead, and so the most coroutines at once under ``serve``; 0
        consumes nothing: for a worker that only replays
    :param never: classes of exceptions that park a message at once
    :param mode: how to treat the broker's topology at each connect: ``"create"`` what is missing, ``"verify"`` that all
        is there and change nothing, ``"none"``. Rungs that only a handler's RetryAfter can need are made on demand
        under ``"create"`` alone: verifying asks for them too
    :param ca_file: PEM file of the CAs to trust with amqps:// instead of the system's; the peer is always verified
    :param connect_timeout: for a connection
    :param confirm_timeout: for the broker's confirm of a copy
    :param back_off: delays between attempts to connect and to publish; its limits are ignored; default: 100 ms, doubled
        up to 10 s
    :param drain: how long handlers may take to finish once the worker is told to stop; an hour at most
    :param on_event: called with each Event, from whichever thread meets it; under ``serve`` in the event loop
    :param retry_events: whether each retry is an event too
    :param legacy_counter: as History's
    :param wait_queues: as History's
    :raises NoLibrabbitmqError: where this Backhop was built without librabbitmq; the text says what to install
    :raises URIError: for a URI that cannot be read
    """

    def __init__(
        self,
        uri: Text | Iterable[Text],
        *,
        queue: Text | None = None,
        policy: Policy | None = None,
        topology: Topology | None = None,
        threads: int = 8,
        prefetch: int = 100,
        never: Iterable[type[BaseException]] = (),
        mode: Mode = "create",
        ca_file: str | os.PathLike[str] | None = None,
        connect_timeout: Seconds = 10,
        confirm_timeout: Seconds = 30,
        back_off: Policy | None = None,
        drain: Seconds = 20,
        on_event: Callable[[Event], object] | None = None,
        retry_events: bool = False,
        legacy_counter: Text | None = None,
        wait_queues: Iterable[Text] = (),
    ) -> None:
        if (topology is None) == (queue is None):
            raise TypeError("give a queue and its policy, or a topology")
        if topology is not None and policy is not None:
            raise TypeError("a topology has its policy: give no other")
        if threads < 1:
            raise ValueError(f"threads is {threads}: give 1 or more")
        if milliseconds(drain) > _LONGEST_DRAIN_MS:
            raise ValueError(f"drain is {drain}: give an hour at most")
        self.topology = topology or Topology(queue or "", policy)
        self.threads = threads
        self.never = parking(never)
        self.drain = drain
        self.on_event = on_event
        self._drained = threading.Event()
        self._leader = threading.Lock()
        self._readable = select.poll()  # for the leader alone
        self._events = threading.Lock()
        result = c.bh_worker_new(self.topology.policy._handle, self.topology._handle)
        handle = self._handle = made(result, _NO_LIBRABBITMQ, NoLibrabbitmqError)
        for one in [uri] if isinstance(uri, str | bytes) else uri:
            self._check(c.Worker_add_uri(handle, one))
        if ca_file:
            self._check(c.Worker_set_ca_file(handle, os.fspath(ca_file)))
        self._check(c.Worker_set_mode(handle, number(_MODES, mode, "mode")))
        self._check(c.Worker_set_prefetch(handle, prefetch))
        self._check(c.Worker_set_connect_timeout_ms(handle, milliseconds(connect_timeout)))
        self._check(c.Worker_set_confirm_timeout_ms(handle, milliseconds(confirm_timeout)))
        if back_off is not None:
            self._check(c.Worker_set_back_off(handle, back_off._handle))
        if legacy_counter:
            self._check(c.Worker_set_legacy_counter(handle, legacy_counter))
        for wait_queue in wait_queues:
            self._check(c.Worker_add_wait_queue(handle, wait_queue))
        self._check(c.Worker_set_retry_events(handle, int(retry_events)))
        self._readable.register(c.Worker_fd(handle), select.POLLIN)

    def _check(self, status: int) -> None:
        if status:
            raise error(status, c.Worker_error(self._handle))

    # --- Running -----------------------------------------------------------------------------------------------------

    def run(self, handle: Handler) -> None:
        """Handles messages in threads of its own until the worker is stopped and drained: by Ctrl-C, SIGTERM or stop.

        A handler that takes longer to finish than ``drain`` runs on in its thread, which takes no message any more.

        :param handle: called with each Message
        """
        if inspect.iscoroutinefunction(handle):
            raise TypeError("run takes a function: for a coroutine function there is serve")
        run = _Run(handle, self._start())
        with self._signals():
            for i in range(self.threads):
                name = f"backhop-{self.topology.queue}-{i + 1}"
                thread = threading.Thread(target=self._work, args=(run,), name=name, daemon=True)
                run.threads.append(thread)
                thread.start()
            try:
                self._until(run.drained)
            except BaseException:
                self.stop(drain=0)
                self._until(run.drained)
                raise
        for thread in run.threads:  # one whose handler did not end in time takes no message any more
            while thread.is_alive() and thread not in run.handling:
                thread.join(_SHORT_WHILE)
        if run.failures:
            raise run.failures[0]

    def _until(self, drained: threading.Event) -> None:
        while not drained.wait(_LOOK_AFTER):
            self._take_events()

    async def serve(self, handle: AsyncHandler) -> None:
        """Handles messages as tasks of the running event loop, up to ``prefetch`` at once, until the worker is drained.

        Cancelling it stops at once: handlers are cancelled, and their messages go back to the queue.

        :param handle: awaited with each Message
        """
        loop = asyncio.get_running_loop()
        ended, drained = asyncio.Event(), asyncio.Event()
        is_leaving = False
        tasks: set[asyncio.Task[None]] = set()
        failures: list[BaseException] = []

        def look() -> None:
            try:
                self._take_events()
                while (message := self._take()) is not None:
                    task = loop.create_task(self._handle_async(handle, message, lambda: is_leaving))
                    tasks.add(task)
                    task.add_done_callback(finish)
            finally:
                if has_drained.is_set():
                    drained.set()
                    ended.set()

        def finish(task: asyncio.Task[None]) -> None:
            tasks.discard(task)
            failure = None if task.cancelled() else task.exception()
            if failure:
                failures.append(failure)
                ended.set()

        has_drained = self._start()
        descriptor = c.Worker_fd(self._handle)
        loop.add_reader(descriptor, look)
        try:
            with self._signals():
                await ended.wait()
        finally:
            is_leaving = True
            if not drained.is_set():
                self.stop(drain=0)  # first: nothing more is taken
            for task in tasks:
                task.cancel()
            try:
                await asyncio.gather(*tasks, return_exceptions=True)
                await drained.wait()
            finally:
                loop.remove_reader(descriptor)
        if failures:
            raise failures[0]

    def stop(self, drain: Seconds | None = None) -> None:
        """Stops, draining; from any thread, a handler or a signal handler. Stopping again sets the limit anew.

        :param drain: how long handlers may take to finish; default: the worker's
        """
        check(c.Worker_stop(self._handle, milliseconds(self.drain if drain is None else drain)))

    def replay(self, most: int) -> None:
        """Sends parked messages back to the work queue, while the worker runs: up to ``most``, and none that is parked
        after this. The event ``replayed`` tells how many went."""
        detail = "the worker does not run, or a replay is under way already"
        check(c.Worker_replay(self._handle, most), detail, StateError)

    def _start(self) -> threading.Event:
        """Returns what is set once it has drained."""
        before, self._drained = self._drained, threading.Event()
        try:
            self._check(c.Worker_start(self._handle))
        except Error:
            self._drained = before
            raise
        return self._drained

    # --- Taking ------------------------------------------------------------------------------------------------------

    def _take(self) -> Message | None:
        status, taken = c.Worker_take(self._handle)
        if not status:
            return _TakenMessage(self, taken)
        if status not in _NOTHING:
            raise error(status)
        return None

    def _wait(self, drained: threading.Event) -> Message | None:
        """The next message; one thread waits for all. None once the worker has drained."""
        with self._leader:
            while not drained.is_set():
                if (message := self._take()) is not None:
                    return message
                self._take_events()
                if not drained.is_set():
                    self._readable.poll(1000 * _LOOK_AFTER)  # another thread may have taken the last event
        return None

    def _work(self, run: _Run) -> None:
        thread, handle, drained = threading.current_thread(), run.handle, run.drained
        try:
            while not drained.is_set() and (message := self._take() or self._wait(drained)) is not None:
                run.handling.add(thread)
                self._handle_sync(handle, message)
                run.handling.discard(thread)
        except BaseException as failure:  # of no handler's own: it ends the run
            run.failures.append(failure)
            if not drained.is_set():
                self.stop()

    def _take_events(self) -> None:
        with self._events:
            while True:
                status, taken = c.Worker_take_event(self._handle)
                if status:
                    return
                self._tell(event_of(taken))

    def _tell(self, event: Event) -> None:
        try:
            log.log(event.level, "%s", event)
            if self.on_event:
                self.on_event(event)
        except Exception:
            log.exception("on_event failed at %s", event.name)
        finally:
            if event.name == "drained":  # whatever on_event does, nobody takes this event again
                self._drained.set()

    # --- Handling ----------------------------------------------------------------------------------------------------

    def _handle_sync(self, handle: Handler, message: Message) -> None:
        try:
            called(handle, message)
        except Exception as exception:
            self._fail(message, exception)
        else:
            self._settle(message, OK)

    async def _handle_async(self, handle: AsyncHandler, message: Message, is_leaving: Callable[[], bool]) -> None:
        try:
            await handle(message)
        except asyncio.CancelledError as exception:
            if is_leaving():
                raise
            self._fail(message, exception)  # what it awaited was cancelled, not the handler
        except Exception as exception:
            self._fail(message, exception)
        else:
            self._settle(message, OK)

    def _fail(self, message: Message, exception: BaseException) -> None:
        result = result_of(exception, self.never)
        if log.isEnabledFor(logging.INFO):
            log.info("%s: attempt %d %s: %s", message.id, message.attempt, result.outcome, result.error)
            log.debug("%s", message.id, exc_info=exception)
        self._settle(message, result)

    def _settle(self, message: Message, result: Result) -> None:
        assert isinstance(message, _TakenMessage)
        status = c.Worker_settle(
            self._handle,
            message.taken,
            OUTCOMES[result.outcome],
            result.error,
            milliseconds(result.retry_after) if result.retry_after else 0,
        )
        if status:
            log.warning("%s comes again: %s", message.id, error(status))

    # --- Signals -----------------------------------------------------------------------------------------------------

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """In the main thread, SIGINT and SIGTERM drain; once more, they stop at once."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before: dict[int, Any] = {one: signal.getsignal(one) or signal.SIG_DFL for one in _SIGNALS}
        asked = False

        def stop(number: int, _: object) -> None:
            nonlocal asked
            try:
                self.stop(drain=0 if asked else None)
            except ForkedError:  # in a child, which has this handler from its parent
                signal.signal(number, before[number])
                signal.raise_signal(number)
            asked = True

        for one in _SIGNALS:  # not the event loop's handlers, which in a child would tell the parent
            signal.signal(one, stop)
        try:
            yield
        finally:
            for one in _SIGNALS:
                signal.signal(one, before[one])

    def __repr__(self) -> str:
        return f"<Worker for {self.topology.queue!r}>"


_NOTHING = (WaitTimeoutError.status, StateError.status)
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class _Run:
    """What the threads of one ``run`` share; one whose handler did not end in time outlives it."""

    __slots__ = ("drained", "failures", "handle", "handling", "threads")

    def __init__(self, handle: Handler, drained: threading.Event) -> None:
        self.handle = handle
        self.drained = drained
        self.failures: list[BaseException] = []
        self.threads: list[threading.Thread] = []
        self.handling: set[threading.Thread] = set()


class _TakenMessage(Message):
    """A message that a worker took: what is not asked for is not read."""

    __slots__ = ("_worker", "taken")

    def __init__(self, worker: Worker, taken: c.Message) -> None:
        self._worker = worker
        self.taken = taken

    def __getattr__(self, name: str) -> Any:
        """Reads what is not read yet."""
        if name == "body":
            self.body = c.Message_body(self.taken)
        elif name == "redelivered":
            self.redelivered = bool(c.Message_redelivered(self.taken))
        elif name == "history":
            self.history = self._read()
        else:
            raise AttributeError(f"a message has no {name}")
        return getattr(self, name)

    def _read(self) -> History:
        delivery, history = Delivery.__new__(Delivery), History.__new__(History)
        delivery._handle = made(c.bh_delivery_new())
        history._handle = made(c.bh_history_new())
        history.delivery = delivery
        check(c.Worker_read(self._worker._handle, self.taken, delivery._handle, history._handle))
        return history
