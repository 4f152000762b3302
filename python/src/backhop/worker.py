"""Worker: consumes, asks for the plan and carries it out, on connections of its own that a background thread keeps."""

from __future__ import annotations

import logging
import os
import select
import signal
import threading
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from . import _backhop as c
from ._amqp import Text
from ._checks import HOUR_MS, instance, legacy_header, queues, shortened, span_ms, truth, whole
from ._core import made, number
from ._declaring import MODES, Mode
from ._errors import (
    ArgumentError,
    ArgumentTypeError,
    Error,
    ForkedError,
    NoLibrabbitmqError,
    StateError,
    WaitTimeoutError,
    check,
    error,
    in_seconds,
)
from ._time import Seconds, milliseconds
from .decider import check_served
from .delivery import Delivery
from .event import Event, Events, Listeners, class_of, event_of
from .history import History
from .message import Message
from .outcomes import OK, Choice, Conditions, Policies, Result, awaited, called, check_handler, checked_policies
from .plan import OUTCOMES
from .policy import Policy
from .topology import QueueType, Strategy, Topology, chosen

if TYPE_CHECKING:
    import asyncio  # serve imports it: who has no use for it does not wait for it

Handler: TypeAlias = Callable[[Message], object]
AsyncHandler: TypeAlias = Callable[[Message], Awaitable[object]]

_Failure: TypeAlias = tuple[BaseException | None, str, str]
"""What a handler raised, the attempt's span, and the error's text."""

_MOST_REPLAYED = 2**53 - 1
_MOST_TAKEN = 1000  # events that wait for a listener; then the core keeps the next ones, and counts what it cannot
_SHORT_WHILE = 0.01  # seconds
_LOOK_AFTER = 1.0  # seconds: how often events are looked for while every thread has a message
_NO_LIBRABBITMQ = (
    "this Backhop was built without librabbitmq, which its Worker needs (backhop.pika and backhop.aio_pika do not): "
    "install librabbitmq 0.11 or newer and pkg-config (Debian and Ubuntu: librabbitmq-dev pkg-config, Fedora: "
    "librabbitmq-devel pkgconf, Homebrew: rabbitmq-c pkgconf), then: "
    "pip install --force-reinstall --no-cache-dir --no-binary backhop backhop"
)

LOGGER = logging.getLogger("backhop")


class Worker:
    """Consumes a queue and handles its messages; what fails comes back later, and is parked after its last attempt.

    The core's background thread keeps two connections, makes them again where they are lost, publishes copies, awaits
    their confirms and acknowledges: heartbeats go on while a handler runs for an hour.

        worker = backhop.Worker("amqp://localhost", queue="cdn-purge", policy=policy, threads=8)
        worker.run(handle)                    # or: await worker.serve(async_handle)

    A handler that returns acknowledges its message; one that raises sees it again later, unless it raises Park or Drop.
    Under ``run`` Ctrl-C and SIGTERM drain every worker of the process: no more messages are taken, and handlers have
    ``drain`` seconds to finish. A message that they do not settle in time goes back to the queue. ``serve`` leaves
    signals to its host: call ``stop``.

    Events are logged to the logger ``backhop``, and told to ``on_event``: delivered, succeeded, failed, dropped,
    retried, parked, replayed, returned, nacked, unconfirmed, refused, stale, connected, unavailable, disconnected,
    blocked, unblocked, cancelled, missed, drained.

    After os.fork() a worker of the parent refuses to work in the child with a ForkedError: make a new one there.

    :param uri: ``amqp://user:password@host:port/vhost?heartbeat=seconds``, ``amqps://`` for TLS; or a list of them, to
        try in turn
    :param queue: the work queue
    :param policy: how long, how often, how random, when to give up; default: Policy()
    :param topology: instead of queue, policy, and the options from strategy to work_queue_arguments
    :param strategy: where a message waits: ``"ladder"``, ``"message-ttl"``, ``"reject"``, ``"delayed-exchange"`` or
        ``"native"``
    :param queue_type: as Topology's, as are namespace, series, stripes, work_queue, work_queue_arguments
    :param threads: how many handlers run at once under ``run``
    :param prefetch: messages that the broker sends ahead, and so the most coroutines at once under ``serve``; 0
        consumes nothing: for a worker that only replays
    :param never: exceptions that park a message at once: a class, a predicate, or a list of these. A predicate is
        called with the exception, and answers True or False, or a delay: try again, not before so many seconds
    :param only: the exceptions that are tried again, likewise; any other parks at once. Default: all are
    :param policies: by which other policies some exceptions are tried again, as ``{RateLimited: slow}``: the first
        whose class or predicate meets the exception. Attempts are counted once for all. A topology that you give has to
        have them among its own ``policies``
    :param mode: how to treat the broker's topology at each connect: ``"create"`` what is missing, ``"verify"`` that all
        is there and change nothing, ``"none"``. Rungs that only a handler's RetryAfter can need are made on demand
        under ``"create"`` alone: verifying asks for them too
    :param ca_file: PEM file of the CAs to trust with amqps:// instead of the system's; the peer is always verified
    :param connect_timeout: for a connection
    :param confirm_timeout: for the broker's confirm of a copy
    :param back_off: delays between attempts to connect and to publish; its limits are ignored; default: 100 ms, doubled
        up to 10 s
    :param drain: how long handlers may take to finish once the worker is told to stop; an hour at most
    :param fail_fast: whether ``run`` and ``serve`` end with the error where the worker was never ready and that cannot
        mend itself: a refused password, vhost or permission, a missing work queue, a clash, a strategy that the broker
        cannot serve, a certificate that does not match. A broker that is not up yet is waited for; once the worker was
        ready, everything is tried again without end
    :param on_event: called with each Event, from whichever thread meets it, under ``serve`` in the event loop; or a
        bridge, as backhop.prometheus and backhop.opentelemetry have them; or a list of these. Those of the connections
        and of copies come one after the other, and while one is told the other threads go on
    :param retry_events: whether each retry is an event too
    :param legacy_counter: as History's
    :param wait_queues: as History's
    :raises NoLibrabbitmqError: where this Backhop was built without librabbitmq; the text says what to install
    :raises URIError: for a URI that cannot be read
    :raises ArgumentError: for an option that cannot be used, and for Metrics with different error_types, as the core
        counts once for all; also InvalidNameError, PolicyError and StrategyError
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
        connect_timeout: Seconds = 10,
        confirm_timeout: Seconds = 30,
        back_off: Policy | None = None,
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
        self._stream = Events(self.topology.queue, on_event)
        self._choice = Choice(never, only, policies)
        check_served(self.topology, policies)
        self._drained = threading.Event()
        self._end: Error | None = None  # why it gave up
        self._leader = threading.Lock()
        self._readable = select.poll()  # for the leader alone
        self._taking = threading.Lock()
        self._taken: deque[c.Event] = deque()  # to be told, in this order
        self._telling = threading.Lock()
        self._teller = 0  # the thread that calls on_event
        self._server = 0  # the thread of the event loop that serves
        self._asking = threading.Lock()
        self._replay: _Replay | None = None
        self._failures: OrderedDict[int, _Failure] = OrderedDict()  # by the numbers of their messages
        self._wants_retries = self._tells_retries = truth("retry_events", retry_events)
        self._stream.attach(self)
        self._counters = self._stream.leave_to_core()
        result = c.bh_worker_new(self.topology.policy._handle, self.topology._handle)
        handle = self._handle = made(result, _NO_LIBRABBITMQ, NoLibrabbitmqError)
        for one in _uris(uri):
            self._check(c.Worker_add_uri(handle, one))
        if ca_file is not None:
            self._check(c.Worker_set_ca_file(handle, _path("ca_file", ca_file)))
        self._check(c.Worker_set_mode(handle, number(MODES, mode, "mode")))
        self._check(c.Worker_set_fail_fast(handle, int(truth("fail_fast", fail_fast))))
        self._check(c.Worker_set_prefetch(handle, whole("prefetch", prefetch, 0, 65535)))
        self._most_failures = prefetch + c.BH_WORKER_MOST_EVENTS
        connect_ms = span_ms("connect_timeout", connect_timeout, 1, HOUR_MS)
        self._check(c.Worker_set_connect_timeout_ms(handle, connect_ms))
        confirm_ms = span_ms("confirm_timeout", confirm_timeout, 1, HOUR_MS)
        self._check(c.Worker_set_confirm_timeout_ms(handle, confirm_ms))
        if back_off is not None:
            instance("back_off", back_off, Policy, "give a backhop.Policy")
            self._check(c.Worker_set_back_off(handle, back_off._handle))
        if legacy_counter is not None:
            self._check(c.Worker_set_legacy_counter(handle, legacy_header(legacy_counter)))
        for wait_queue in queues("wait_queues", wait_queues):
            self._check(c.Worker_add_wait_queue(handle, wait_queue))
        for counter in self._counters:
            self._check(c.Worker_set_metrics(handle, counter.blank()))
        self._readable.register(c.Worker_fd(handle), select.POLLIN)

    def _check(self, status: int) -> None:
        if status:
            raise error(status, in_seconds(c.Worker_error(self._handle)))

    @property
    def policy(self) -> Policy:
        """How long, how often, how random, when to give up."""
        return self.topology.policy

    @property
    def _copies(self) -> int:
        """How many copies are not confirmed yet."""
        return c.Worker_copies(self._handle)

    # --- Running -----------------------------------------------------------------------------------------------------

    def run(self, handle: Handler) -> None:
        """Handles messages in threads of its own until the worker is stopped and drained: by Ctrl-C, SIGTERM or stop.

        In the main thread it takes these two signals while it runs. They drain every worker of the process that runs or
        serves, and are handed on to the handlers that were there before, which it puts back in the end. A handler of
        messages that takes longer to finish than ``drain`` runs on in its thread, which takes no message any more. One
        that exits (SystemExit) ends the run once the others are done; its message goes back.

        :param handle: called with each Message
        :raises ArgumentTypeError: for what is not callable, and for a coroutine function
        :raises Error: with ``fail_fast``: why the worker can never be ready: an AccessError, MissingError, ClashError,
            BrokerError or TLSError
        """
        check_handler(handle, instead="call serve")
        run = _Run(self._stream.surrounded(handle), self._start())
        with self._running(), self._signals():
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
        if self._end:
            raise self._end

    def _until(self, drained: threading.Event) -> None:
        while not drained.wait(_LOOK_AFTER):
            self._take_events()

    async def serve(self, handle: Callable[[Message], object]) -> None:
        """Handles messages as tasks of the running event loop, up to ``prefetch`` at once, until the worker is drained.

        It takes no signals, so that it fits into uvicorn and the like. On its own:
        ``loop.add_signal_handler(signal.SIGTERM, worker.stop)``. Cancelling it stops at once: handlers are cancelled,
        and their messages go back to the queue.

        :param handle: awaited with each Message. A plain function is a handler too; nothing else happens in the event
            loop while it runs
        :raises ArgumentTypeError: for what is not callable
        :raises Error: with ``fail_fast``, as run
        """
        import asyncio

        check_handler(handle)
        handle = self._stream.surrounded_async(handle)
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
        self._server = threading.get_ident()
        try:
            with self._running():
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
                self._server = 0
                loop.remove_reader(descriptor)
        if failures:
            raise failures[0]
        if self._end:
            raise self._end

    def stop(self, drain: Seconds | None = None) -> None:
        """Stops, draining; from any thread, a handler or a signal handler. Stopping again sets the limit anew.

        :param drain: how long handlers may take to finish; default: the worker's
        """
        ms = span_ms("drain", self.drain if drain is None else drain, 0, HOUR_MS)
        check(c.Worker_stop(self._handle, ms))

    def replay(self, most: int | None = None) -> int:
        """Sends parked messages back to the work queue while the worker runs, and waits for the end of that.

        It ends with the messages that were parked when it began. Under ``serve``: ``await worker.replay_async()``.

        :param most: how many at most; default: all
        :returns: how many went
        :raises StateError: the worker does not run, or stopped before the end; a replay is under way already; or it was
            called where it would wait for itself
        :raises Error: what stopped it; those that did not go are parked still
        """
        if threading.get_ident() in (self._server, self._teller):
            raise StateError("here replay would wait for itself: await replay_async(), or call it in another thread")
        replay = self._begin_replay(most)
        replay.ended.wait()
        return replay.result()

    async def replay_async(self, most: int | None = None) -> int:
        """The same in an event loop."""
        import asyncio

        loop, told = asyncio.get_running_loop(), asyncio.Event()
        replay = self._begin_replay(most, lambda: loop.call_soon_threadsafe(told.set))
        await told.wait()
        return replay.result()

    def _begin_replay(self, most: int | None, tell: Callable[[], object] = lambda: None) -> _Replay:
        count = _MOST_REPLAYED if most is None else whole("most", most, 0, _MOST_REPLAYED)
        replay = _Replay(tell)
        if count == 0:
            replay.end(None)
            return replay
        detail = "the worker does not run, or a replay is under way already"
        with self._asking:
            if self._replay is not None:
                raise StateError(detail)
            self._replay = replay  # before its event can come
            status = c.Worker_replay(self._handle, count)
            if status:
                self._replay = None
        check(status, detail, StateError)
        return replay

    def _start(self) -> threading.Event:
        """Returns what is set once it has drained."""
        before, self._drained = self._drained, threading.Event()
        self._failures.clear()
        is_heard = bool(self._stream.observers) or LOGGER.isEnabledFor(logging.INFO)
        self._tells_retries = self._wants_retries or is_heard
        self._check(c.Worker_set_event(self._handle, c.BH_EVENT_RETRIED, int(self._tells_retries)))
        if self._counters:
            self._check(c.Worker_set_metrics(self._handle, self._counters[0].blank()))
        try:
            self._check(c.Worker_start(self._handle))
        except Error:
            self._drained = before
            raise
        for counter in self._counters:
            counter.join(self._handle)
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
        while not drained.is_set():
            with self._leader:
                if (message := self._take()) is not None:
                    return message
                if not self._queue_events() and not drained.is_set():
                    self._readable.poll(1000 * _LOOK_AFTER)  # another thread may have taken the last event
            self._tell_events()  # without the others waiting for a listener
        return None

    def _work(self, run: _Run) -> None:
        thread, handle, drained = threading.current_thread(), run.handle, run.drained
        try:
            while not drained.is_set() and (message := self._take() or self._wait(drained)) is not None:
                run.handling.add(thread)
                self._handle_sync(handle, message)
                run.handling.discard(thread)
                if run.failures:
                    self._leave(run)
        except BaseException as failure:  # of no handler's own: it ends the run
            run.failures.append(failure)
            run.handling.discard(thread)
            if not drained.is_set():
                self.stop()
                self._leave(run)

    def _leave(self, run: _Run) -> None:
        """Nothing is waited for that no handler settles any more."""
        if not run.handling and not run.drained.is_set():
            self.stop(drain=0)

    def _take_events(self) -> None:
        self._queue_events()
        self._tell_events()

    def _queue_events(self) -> bool:
        """Takes what the core has to tell: whether there is anything for this thread to tell."""
        with self._taking:
            while len(self._taken) < _MOST_TAKEN:
                status, taken = c.Worker_take_event(self._handle)
                if status:
                    break
                self._taken.append(taken)
        return bool(self._taken) and not self._telling.locked()

    def _tell_events(self) -> None:
        """Tells what was taken, one thread at a time: so in order, and no other thread waits for a listener."""
        while self._taken and self._telling.acquire(blocking=len(self._taken) >= _MOST_TAKEN):
            self._teller = threading.get_ident()
            try:
                while self._taken:
                    self._tell(self._taken.popleft())
            finally:
                self._teller = 0
                self._telling.release()

    def _tell(self, taken: c.Event) -> None:
        kind = c.Event_what(taken)
        exception, traceparent = None, ""
        if kind in _OF_COPIES:
            exception, traceparent, text = self._failures.pop(c.Event_message(taken), _NO_FAILURE)
            if exception is not None and not c.Event_has(taken, c.BH_FIELD_ERROR):
                c.Event_set_string(taken, c.BH_FIELD_ERROR, text)
        is_for_all = kind != c.BH_EVENT_RETRIED or self._wants_retries
        try:
            self._stream.tell(taken, exception, traceparent, is_for_all=is_for_all)
        finally:
            if kind in (c.BH_EVENT_REPLAYED, c.BH_EVENT_DRAINED):
                self._ended(event_of(taken))

    def _ended(self, event: Event) -> None:
        if self._replay is not None:
            replay, self._replay = self._replay, None
            replay.end(event)
        if event.name == "drained":  # whatever on_event does, nobody takes this event again
            for counter in self._counters:
                counter.part(self._handle)
            self._end = event.error if not isinstance(event.error, WaitTimeoutError) else None
            self._drained.set()

    # --- Handling ----------------------------------------------------------------------------------------------------

    def _handle_sync(self, handle: Handler, message: Message) -> None:
        events = self._stream
        events.delivered(message)
        try:
            called(handle, message)
        except Exception as exception:
            self._fail(message, exception)
        else:
            self._settle(message, OK)
            events.succeeded(message)

    async def _handle_async(self, handle: Handler, message: Message, is_leaving: Callable[[], bool]) -> None:
        import asyncio

        self._stream.delivered(message)
        try:
            await awaited(handle, message)
        except asyncio.CancelledError as exception:
            if is_leaving():
                raise
            self._fail(message, exception)  # what it awaited was cancelled, not the handler
        except Exception as exception:
            self._fail(message, exception)
        else:
            self._settle(message, OK)
            self._stream.succeeded(message)

    def _fail(self, message: Message, exception: BaseException) -> None:
        result = self._choice.result(exception)
        self._stream.failed(message, result, exception)
        assert isinstance(message, _TakenMessage)
        if result.outcome != "dropped":
            taken = message.taken
            c.Worker_set_error_class(self._handle, taken, class_of(exception))
            if message._traceparent:
                c.Worker_set_traceparent(self._handle, taken, message._traceparent)
            if self._tells_retries or self._may_park(taken, result):
                self._failures[c.Message_number(taken)] = exception, message._traceparent, result.error
                while len(self._failures) > self._most_failures:
                    self._failures.popitem(last=False)  # the oldest are of events that nobody took
        self._settle(message, result)

    def _may_park(self, taken: c.Message, result: Result) -> bool:
        policy = result.policy._handle if result.policy else None
        outcome = OUTCOMES[result.outcome]
        return bool(c.Worker_may_park(self._handle, taken, policy, outcome, _asked_ms(result)))

    def _settle(self, message: Message, result: Result) -> None:
        assert isinstance(message, _TakenMessage)
        policy = result.policy
        status = c.Worker_settle_by(
            self._handle,
            message.taken,
            policy._handle if policy else None,
            OUTCOMES[result.outcome],
            result.error,
            _asked_ms(result),
        )
        if status:
            self._tell_stale(message, status)

    def _tell_stale(self, message: Message, status: int) -> None:
        """It was not settled: the broker delivers it again."""
        try:
            id_ = message.id
        except Error:  # it cannot be read
            id_ = ""
        cause = "" if status == StateError.status else str(error(status))
        self._stream.tell(self._stream.make(c.BH_EVENT_STALE, {"id": id_, "status": status, "cause": cause}))

    @contextmanager
    def _running(self) -> Iterator[None]:
        """So that a signal drains it too."""
        _RUNNING.append(self)
        try:
            yield
        finally:
            _RUNNING.remove(self)

    # --- Signals -----------------------------------------------------------------------------------------------------

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """In the main thread, SIGINT and SIGTERM drain all workers; once more, they stop at once. Who had the signals
        before is called too, unless that is what Python or the system does by itself."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before: dict[int, Any] = {one: signal.getsignal(one) for one in _SIGNALS}
        asked = False

        def stop(number: int, frame: Any) -> None:
            nonlocal asked
            try:
                for worker in tuple(_RUNNING):
                    worker.stop(drain=0 if asked else None)
            except ForkedError:  # in a child, which has this handler from its parent
                signal.signal(number, before[number] or signal.SIG_DFL)
                signal.raise_signal(number)
                return
            asked = True
            if callable(before[number]) and before[number] is not signal.default_int_handler:
                before[number](number, frame)

        for one in _SIGNALS:  # not the event loop's handlers, which in a child would tell the parent
            signal.signal(one, stop)
        try:
            yield
        finally:
            for one in _SIGNALS:
                if signal.getsignal(one) is stop:  # else somebody took it meanwhile
                    signal.signal(one, before[one] or signal.SIG_DFL)

    def __repr__(self) -> str:
        return f"<Worker for {self.topology.queue!r}>"


def _asked_ms(result: Result) -> int:
    """The delay that the handler asks for at least, in milliseconds; 0: none."""
    return milliseconds(result.retry_after) if result.retry_after else 0


_OF_COPIES = (c.BH_EVENT_RETRIED, c.BH_EVENT_PARKED, c.BH_EVENT_REFUSED)
_NO_FAILURE: _Failure = (None, "", "")
_NOTHING = (WaitTimeoutError.status, StateError.status)
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_RUNNING: list[Worker] = []


def _uris(given: Text | Iterable[Text]) -> tuple[Text, ...]:
    many = (given,) if isinstance(given, str | bytes) else given
    if isinstance(many, Mapping) or not isinstance(many, Iterable):
        raise ArgumentTypeError(
            f"uri is {shortened(given)}: give amqp://user:password@host:port/vhost, or a list of such"
        )
    uris = tuple(many)
    for each in uris:
        if not isinstance(each, str | bytes):
            raise ArgumentTypeError(f"a URI is {shortened(each)}: give amqp://user:password@host:port/vhost")
    if not uris:
        raise ArgumentError("uri is an empty list: give amqp://user:password@host:port/vhost")
    return uris


def _path(name: str, given: object) -> Text:
    try:
        path: Text = os.fspath(given)  # type: ignore[call-overload]
    except TypeError:
        raise ArgumentTypeError(f"{name} is {shortened(given)}: give a path") from None
    if not path:
        raise ArgumentError(f"{name} is {given!r}: give a path, or leave it out")
    return path


class _Replay:
    """A replay under way, and its end."""

    def __init__(self, tell: Callable[[], object]) -> None:
        self.ended = threading.Event()
        self._event: Event | None = None
        self._tell = tell

    def end(self, event: Event | None) -> None:
        self._event = event
        self.ended.set()
        self._tell()

    def result(self) -> int:
        event = self._event
        if event is None:
            return 0
        if event.name == "drained":
            raise StateError("the worker stopped before the replay ended: what did not go is parked still")
        if event.error:
            raise event.error
        return event.count


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
        Message.__init__(self, worker.topology)
        self._worker = worker
        self.taken = taken

    def __getattr__(self, name: str) -> Any:
        """Reads what is not read yet."""
        if name == "body":
            self.body = c.Message_body(self.taken)
        elif name == "redelivered":
            self.redelivered = bool(c.Message_redelivered(self.taken))
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
