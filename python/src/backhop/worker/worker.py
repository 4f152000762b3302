"""Worker: consumes, decides and retries on connections that a background thread keeps."""

from __future__ import annotations

import os
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Literal, TypeAlias

from .. import _backhop as c
from .._amqp import Text
from .._checks import HOUR_MS, span_ms, text, truth, whole
from .._errors import ArgumentTypeError, Error, StateError, WaitTimeoutError, check
from .._handlers import check_handler
from .._times import Seconds
from ..breaker import Breaker, checked_breaker
from ..decider import check_served
from ..message import Message
from ..observe.event import Event, event_of
from ..observe.events import Events, Listeners
from ..observe.health import State
from ..observe.limit import TimeLimit
from ..outcomes import Choice, Conditions, Policies, checked_policies
from ..policy import Policy
from ..topology import Mode, QueueType, Strategy, Topology, chosen
from .events import EventQueue
from .intake import Intake
from .options import check_worker, new_worker
from .readiness import Readiness
from .replay import Replays
from .settling import Settler
from .signals import draining_at_signals, running
from .threads import Threads

Handler: TypeAlias = Callable[[Message], None]
AsyncHandler: TypeAlias = Callable[[Message], Awaitable[None]]

_RETRIES = (c.BH_EVENT_RETRIED, c.BH_EVENT_DEFERRED)
_OF_COPIES = (*_RETRIES, c.BH_EVENT_PARKED, c.BH_EVENT_REFUSED)


class Worker:
    """Consumes a queue and handles its messages. A failed message is retried later, and parked
    after its last attempt.

    The core's background thread keeps two connections and makes lost ones again. It publishes
    copies, waits for their confirms and acknowledges originals. Heartbeats go on while a handler
    runs for an hour.

        worker = backhop.Worker("amqp://localhost", queue="cdn-purge", policy=policy, threads=8)
        worker.run(handle)                    # or: await worker.serve(async_handle)

    If the handler returns, its message is acknowledged. If it raises, the message is retried later,
    unless it raises Park or Drop.

    Under ``run`` Ctrl-C and SIGTERM drain every worker of the process: it takes no more messages,
    and handlers have ``drain`` seconds to finish. A message that is not settled in time goes back
    to the queue. ``serve`` handles no signals: its host calls ``stop``.

    Events go to the logger ``backhop`` and to ``on_event``. Events of messages are delivered,
    succeeded, failed, dropped, retried, deferred, parked, replayed, returned, nacked, unconfirmed,
    refused and stale. Events of connections are connected, unavailable, disconnected, blocked,
    unblocked, cancelled, busy, missed and drained. Events of a breaker are breaker_opened,
    breaker_half_open and breaker_closed.

    After os.fork() a worker of the parent raises a ForkedError in the child. Make a new one there.

    :param uri: ``amqp://user:password@host:port/vhost?heartbeat=seconds``, or ``amqps://`` for TLS.
        A list is tried in turn.
    :param queue: the work queue, at most 247 bytes.
    :param policy: the delays of retries and their limits; default: Policy().
    :param topology: replaces queue, policy, and the options from strategy to work_queue_arguments.
    :param strategy: as Topology's: ``"ladder"``, ``"message-ttl"``, ``"reject"``,
        ``"delayed-exchange"`` or ``"native"``.
    :param queue_type: as Topology's; likewise namespace, series, stripes, work_queue and
        work_queue_arguments.
    :param threads: number of handlers that run at once under ``run``, 1 to 10,000.
    :param prefetch: number of unacknowledged messages that the broker delivers, 0 to 65,535. It
        limits the coroutines under ``serve``. 0 consumes nothing: for a worker that only replays.
    :param never: exceptions that park a message at once: a class, a predicate, or a list of these.
        A predicate gets the exception and returns True, False, or seconds: the shortest delay of a
        retry.
    :param only: the exceptions that are retried, likewise; all others park at once. Default: all
        are retried.
    :param policies: other policies for the retries of some exceptions, for example ``{RateLimited:
        slow}``. The first matching class or predicate counts. All policies share the count of
        attempts. A topology that you give needs them in its ``policies``.
    :param mode: what each connect does with the topology. ``"create"`` declares missing things,
        ``"verify"`` checks that all exist, ``"none"`` does nothing. A rung that only a handler's
        RetryAfter can need is made on demand under ``"create"``, and must exist under ``"verify"``.
    :param ca_file: PEM file of the trusted CAs for amqps://, default: the system's. The server's
        certificate is always verified.
    :param cert: PEM file of a client certificate and its chain, for amqps://. If the URI has no
        user, RabbitMQ reads the user from the certificate (SASL EXTERNAL).
    :param key: PEM file of its private key, without a passphrase; default: the file of ``cert``.
    :param connect_timeout: seconds for a connection, 1 ms to an hour.
    :param confirm_timeout: seconds for the broker's confirm of a copy, 1 ms to an hour.
    :param back_off: delays between attempts to connect and to publish, without limits; default: 100
        ms, doubled up to 10 s.
    :param breaker: holds the messages while a downstream is down; then they wait without an
        attempt.
    :param timeout: seconds that a handler may run, 1 ms to a day; None: no limit. Under ``serve``
        the task of a coroutine function is cancelled at the limit. Any other handler fails when it
        returns, even if it succeeded. The exception is a TimeoutError.
    :param drain: seconds that handlers may take to finish after ``stop``; an hour at most.
    :param fail_fast: whether ``run`` and ``serve`` raise an error that no retry can solve, if the
        worker was never ready. Such errors are: refused password, vhost or permission, missing work
        queue, or queue with other arguments. Likewise a strategy that the broker cannot serve, and
        a certificate that does not match. A broker that is not reachable yet is retried. After the
        worker was ready once, it retries all errors.
    :param on_event: called with each Event in any thread, under ``serve`` in the event loop. Or a
        bridge of backhop.prometheus or backhop.opentelemetry. Or a list of these. Events of
        connections and copies are emitted one after the other.
    :param retry_events: whether each retry is an event for listeners.
    :param legacy_counter: as History's.
    :param wait_queues: as History's.
    :raises NoLibrabbitmqError: if this Backhop was built without librabbitmq; the text has what to
        install.
    :raises URIError: if a URI is malformed.
    :raises ArgumentError: if an option is wrong, or several Metrics have different error_types,
        because the core counts once for all.
    :raises InvalidNameError: if a name of a queue cannot be used.
    :raises PolicyError: if a policy cannot be used.
    :raises StrategyError: if the strategy cannot serve the policies, or the breaker has a key and
        the strategy cannot defer a message.
    """

    def __init__(
        self,
        uri: Text | Iterable[Text],
        queue: Text | None = None,
        policy: Policy | None = None,
        *,
        topology: Topology | None = None,
        strategy: Strategy = "ladder",
        queue_type: QueueType = "quorum",
        namespace: Text | None = None,
        series: Literal[5, 10, 20, 40] = 10,
        stripes: int = 1,
        work_queue: QueueType | None = None,
        work_queue_arguments: Mapping[str, str | int] | None = None,
        threads: int = 8,
        prefetch: int = 100,
        never: Conditions = (),
        only: Conditions | None = None,
        policies: Policies | None = None,
        mode: Mode = "create",
        ca_file: str | os.PathLike[str] | None = None,
        cert: str | os.PathLike[str] | None = None,
        key: str | os.PathLike[str] | None = None,
        connect_timeout: Seconds = 10,
        confirm_timeout: Seconds = 30,
        back_off: Policy | None = None,
        breaker: Breaker | None = None,
        timeout: Seconds | None = None,
        drain: Seconds = 20,
        fail_fast: bool = True,
        on_event: Listeners = None,
        retry_events: bool = False,
        legacy_counter: Text | None = None,
        wait_queues: Iterable[Text] = (),
    ) -> None:
        self.topology = chosen(
            queue,
            policy,
            topology,
            checked_policies(policies).values(),
            strategy=strategy,
            queue_type=queue_type,
            namespace=namespace,
            series=series,
            stripes=stripes,
            work_queue=work_queue,
            work_queue_arguments=work_queue_arguments,
        )
        self.threads = whole("threads", threads, 1, 10_000)
        self.drain = drain
        span_ms("drain", drain, 0, HOUR_MS)
        self._limit = TimeLimit(timeout)
        self._events = Events(self.topology.queue, on_event)
        choice = Choice(never, only, policies)
        self._breaker = checked_breaker(breaker, self.topology)
        given = self._breaker
        of_queue = None if given is None or given._has_keys else given._handle
        check_served(self.topology, policies)
        self._wants_retries = truth("retry_events", retry_events)
        self._events.attach(self)
        self._counters = self._events.count_in_core()
        handle, self._configure = new_worker(
            self.topology,
            uri,
            prefetch=prefetch,
            mode=mode,
            ca_file=ca_file,
            cert=cert,
            key=key,
            connect_timeout=connect_timeout,
            confirm_timeout=confirm_timeout,
            back_off=back_off,
            fail_fast=fail_fast,
            breaker=of_queue,
            limit_ms=self._limit.ms,
            legacy_counter=legacy_counter,
            wait_queues=wait_queues,
        )
        self._handle = handle
        for counter in self._counters:
            check_worker(handle, c.Worker_set_metrics(handle, counter.blank()))
        self._settler = Settler(
            handle, self._events, choice, prefetch, self._wants_retries, self._breaker
        )
        self._event_queue = EventQueue(handle, self._emit)
        self._intake = Intake(self.topology, handle, self._event_queue, self._settler, self.stop)
        self._replays = Replays(handle)
        self._readiness = Readiness(partial(c.Worker_state, handle))
        self._drained = threading.Event()
        self._starting = threading.Lock()
        self._end: Error | None = None  # why it gave up
        self._server = 0  # the thread of the event loop that serves

    @property
    def policy(self) -> Policy:
        """The policy of its topology."""
        return self.topology.policy

    @property
    def _copies(self) -> int:
        """The number of copies that are not confirmed yet."""
        return c.Worker_copies(self._handle)

    @property
    def _readiness_of_consumers(self) -> list[bool]:
        """One value, as of a retrier with one consumer: True if it is ready."""
        return [self.state == "ready"]

    # --- Running ---------------------------------------------------------------------------------

    def run(self, handle: Handler) -> None:
        """Handles messages in threads of its own until the worker is stopped and drained.

        In the main thread it handles SIGINT (Ctrl-C) and SIGTERM while it runs. They drain every
        worker of the process that runs or serves. Then it calls the handlers that were installed
        before, which it restores at the end.

        A thread whose handler takes longer to finish than ``drain`` runs on, and takes no more
        messages. If a handler exits (SystemExit), the run ends when the others are done; its
        message goes back to the queue.

        :param handle: called with each Message.
        :raises ArgumentTypeError: if it is not callable, or is a coroutine or generator function.
        :raises StateError: if the worker runs already.
        :raises Error: with ``fail_fast``: why the worker can never be ready: an AccessError,
            MissingError, ClashError, BrokerError or TLSError.
        """
        check_handler(handle, instead="call serve")
        run = self._events.surrounded(handle)
        threads = Threads(self._intake, run, self._start(), self._limit)
        with running(self), draining_at_signals():
            threads.start(self.threads, f"backhop-{self.topology.queue}")
            try:
                threads.wait_until_drained()
            except BaseException:
                self.stop(drain=0)
                threads.wait_until_drained()
                raise
            finally:
                self._intake.close()
        threads.join()
        self._raise_end(threads.failures)

    async def serve(self, handle: Handler | AsyncHandler) -> None:
        """Handles messages as tasks of the running event loop until the worker is stopped and
        drained.

        Up to ``prefetch`` tasks run at once. It handles no signals, so that it fits into uvicorn
        and other hosts. Without a host: ``loop.add_signal_handler(signal.SIGTERM, worker.stop)``.
        If you cancel it, it cancels its handlers at once. Their messages go back to the queue, and
        that is no attempt. The broker has ``drain`` seconds to confirm copies that are in flight.

        :param handle: called with each Message; an awaitable result is awaited. A plain function
            blocks the event loop while it runs.
        :raises ArgumentTypeError: if it is not callable, or is a generator function.
        :raises StateError: if the worker runs already.
        :raises Error: with ``fail_fast``, as run.
        """
        import asyncio

        from .tasks import Tasks

        check_handler(handle)
        run = self._events.surrounded_async(handle)
        loop = asyncio.get_running_loop()
        tasks = Tasks(self._intake, run, self._start(), self._limit)
        descriptor = c.Worker_fd(self._handle)
        loop.add_reader(descriptor, tasks.look)
        self._server = threading.get_ident()
        try:
            with running(self):
                await tasks.wait_until_ended()
        finally:
            try:
                await tasks.leave()
            finally:
                self._server = 0
                loop.remove_reader(descriptor)
                self._intake.close()
        self._raise_end(tasks.failures)

    def stop(self, drain: Seconds | None = None) -> None:
        """Drains the worker and stops it. Call it from any thread, a handler or a signal handler.

        A second call sets the time limit anew. If you call it before the first run, that run drains
        at once. After the worker drained, a call has no effect on the next run.

        :param drain: seconds that handlers may take to finish; default: the worker's.
        :raises ArgumentError: if ``drain`` is not from 0 to an hour.
        """
        ms = span_ms("drain", self.drain if drain is None else drain, 0, HOUR_MS)
        check(c.Worker_stop(self._handle, ms))

    def set_credentials(self, user: Text, password: Text) -> None:
        """Sets user and password for a secret that changes. Call it at any time, from any thread.

        All URIs have them from the next login on. An open connection stays. If the
        broker refuses the login, the worker tries again, with its back-off.

        :param user: as it is, without percent-escapes.
        :param password: as it is. RabbitMQ takes an OAuth 2 token as the password.
        :raises ArgumentTypeError: if one is no text.
        :raises ArgumentError: if the user is empty, or one has a zero byte.
        """
        if not isinstance(password, str | bytes):  # an error must not show it
            raise ArgumentTypeError("password is no text: give str or bytes")
        status = c.Worker_set_credentials(self._handle, text("user", user, "a name"), password)
        check(status, "give a user, and no zero byte in user or password")

    # --- Health ----------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """Its state: starting, ready, reconnecting, paused or stopped. For any thread.

        Before ``run`` or ``serve`` it is stopped. While the broker blocks its connection, or its
        breaker is open, it is paused.
        """
        return self._readiness.health.state

    @property
    def state_reason(self) -> str:
        """The text of the event that led to the state; "" for none."""
        return self._readiness.health.reason

    def ready(self, timeout: Seconds | None = None) -> None:
        """Waits until the worker consumes. Call it in another thread than ``run``.

        You can call it before ``run`` or ``serve``. In an event loop: ``await
        worker.ready_async()``.

        :param timeout: seconds; default: no limit.
        :raises WaitTimeoutError: if it is not ready in that time; the text has the state and its
            reason.
        :raises StateError: if the worker stops before, or if it has stopped.
        :raises Error: with ``fail_fast``: the error that ``run`` or ``serve`` raises.
        """
        self._readiness.wait(timeout)

    async def ready_async(self, timeout: Seconds | None = None) -> None:
        """Waits in an event loop until the worker consumes. Parameters and errors as ``ready``."""
        await self._readiness.wait_async(timeout)

    def replay(self, most: int | None = None) -> int:
        """Replays parked messages while the worker runs, and waits for the end.

        The replay ends with the messages that were parked when it began. Under ``serve``: ``await
        worker.replay_async()``.

        :param most: the largest number of messages; default: all.
        :returns: the number of replayed messages.
        :raises StateError: if the worker does not run, stops before the end, or replays already. Or
            if the call would wait for itself, as in a listener.
        :raises Error: the error that stopped the replay; the remaining messages stay parked.
        """
        if threading.get_ident() in (self._server, self._event_queue.emitter):
            raise StateError(
                "here replay would wait for itself: await replay_async(), or call it in another "
                "thread"
            )
        replay = self._replays.begin(most)
        replay.ended.wait()
        return replay.result()

    async def replay_async(self, most: int | None = None) -> int:
        """Replays parked messages in an event loop. Parameters, result and errors as ``replay``."""
        import asyncio

        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        replay = self._replays.begin(most, lambda: loop.call_soon_threadsafe(ended.set))
        await ended.wait()
        return replay.result()

    def _start(self) -> threading.Event:
        """Starts the core's worker, and returns an event that is set when it has drained."""
        handle = self._handle
        with self._starting:
            emits_retries = self._settler.emits_now
            status = self._configure(int(emits_retries))
            if status == StateError.status:
                raise StateError("the worker runs already")
            check_worker(handle, status)
            self._settler.begin_run(emits_retries)
            before, self._drained = self._drained, threading.Event()
            self._readiness.begin()
            try:
                if self._counters:
                    check_worker(handle, c.Worker_set_metrics(handle, self._counters[0].blank()))
                check_worker(handle, c.Worker_start(handle))
            except Error as error:
                self._drained = before
                self._readiness.end(error)
                raise
            self._intake.open()
            self._readiness.look()
            for counter in self._counters:
                counter.join(handle)
            return self._drained

    def _raise_end(self, failures: list[BaseException]) -> None:
        if failures:
            raise failures[0]
        if self._end:
            raise self._end

    # --- Events ----------------------------------------------------------------------------------

    def _emit(self, taken: c.Event) -> None:
        kind = c.Event_what(taken)
        exception, traceparent = None, ""
        if kind in _OF_COPIES:
            exception, traceparent, text = self._settler.failure_of(taken)
            if exception is not None and not c.Event_has(taken, c.BH_FIELD_ERROR):
                c.Event_set_string(taken, c.BH_FIELD_ERROR, text)
        to_listeners = kind not in _RETRIES or self._wants_retries
        try:
            self._events.emit(taken, exception, traceparent, to_listeners=to_listeners)
        finally:
            if kind in (c.BH_EVENT_REPLAYED, c.BH_EVENT_DRAINED):
                self._ended(event_of(taken))
            elif kind not in _OF_COPIES:
                self._readiness.look()

    def _ended(self, event: Event) -> None:
        self._replays.end(event)
        if event.name == "drained":  # also if a listener raised: the core emits it once
            for counter in self._counters:
                counter.part(self._handle)
            self._end = event.error if not isinstance(event.error, WaitTimeoutError) else None
            self._readiness.end(self._end)
            self._drained.set()

    def __repr__(self) -> str:
        return f"<Worker for {self.topology.queue!r}>"
