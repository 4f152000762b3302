from __future__ import annotations

import asyncio
import gc
import logging
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import pytest
from live import PATIENCE, URL, Broker, control, needs_broker, needs_worker, running

import backhop

FAST = backhop.Policy(kind="fixed", initial=0.1, jitter="none", max_attempts=3)


def _worker(name: str, **options: Any) -> backhop.Worker:
    options.setdefault("policy", FAST)
    return backhop.Worker(URL, queue=name, **options)


class Inbox:
    """A handler that keeps its messages, and raises the given errors."""

    def __init__(self, *failures: BaseException) -> None:
        self._failures = list(failures)
        self._messages: queue.Queue[backhop.Message] = queue.Queue()

    def __call__(self, message: backhop.Message) -> None:
        message.history, message.body, message.redelivered  # noqa: B018  read here, while the worker runs
        self._messages.put(message)
        if self._failures:
            raise self._failures.pop(0)

    async def serve(self, message: backhop.Message) -> None:
        self(message)

    def get(self) -> backhop.Message:
        return self._messages.get(timeout=PATIENCE)

    def empty(self) -> bool:
        return self._messages.empty()


class Events:
    """The events of a worker."""

    def __init__(self) -> None:
        self._events: queue.Queue[backhop.Event] = queue.Queue()

    def __call__(self, event: backhop.Event) -> None:
        self._events.put(event)

    def get(self, name: str) -> backhop.Event:
        """The next one of this name."""
        while (event := self._events.get(timeout=PATIENCE)).name != name:
            pass
        return event

    def empty(self, name: str) -> bool:
        """Returns true if no event of this name came beyond the awaited ones."""
        return name not in [event.name for event in self._events.queue]


# --- Without a broker -----------------------------------------------------------------------------


@pytest.mark.bare
def test_without_librabbitmq_a_worker_says_what_to_install() -> None:
    with pytest.raises(backhop.NoLibrabbitmqError, match=r"librabbitmq-dev pkg-config.*pip install"):
        backhop.Worker("amqp://localhost", queue="orders")


@needs_worker
@pytest.mark.parametrize("uri", ["", "http://localhost", "amqp://localhost:99999"])
def test_a_uri_that_cannot_be_read_is_refused(uri: str) -> None:
    with pytest.raises(backhop.URIError):
        backhop.Worker(uri, queue="orders")


@needs_worker
def test_no_uri_is_refused() -> None:
    with pytest.raises(backhop.ArgumentError, match="uri is an empty list"):
        backhop.Worker([], queue="orders")


@needs_worker
def test_an_error_holds_no_password() -> None:
    with pytest.raises(backhop.URIError) as raised:
        backhop.Worker("amqp://guest:secret@localhost:x", queue="orders")
    assert "secret" not in str(raised.value)


@needs_worker
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"queue": "orders", "topology": backhop.Topology("orders")},
        {"topology": backhop.Topology("o"), "policy": FAST},
    ],
)
def test_a_worker_has_one_queue_and_one_policy(options: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="give"):
        backhop.Worker("amqp://localhost", **options)


@needs_worker
def test_a_coroutine_function_is_for_serve() -> None:
    async def handle(_: backhop.Message) -> None: ...

    with pytest.raises(TypeError, match="serve"):
        backhop.Worker("amqp://localhost", queue="orders").run(handle)  # type: ignore[arg-type]


@needs_worker
def test_a_broker_that_is_not_there_is_an_event_and_stopping_works() -> None:
    events = Events()
    worker = backhop.Worker("amqp://guest:secret@127.0.0.1:1", queue="orders", on_event=events)
    with running(worker, print):
        event = events.get("unavailable")
    assert isinstance(event.error, backhop.ConnectionFailedError)
    assert event.delay > 0
    assert (event.connection, event.host) == ("consume", "127.0.0.1:1")
    assert "consume connection to 127.0.0.1:1" in str(event)
    assert "secret" not in str(event)


@needs_worker
def test_a_worker_can_run_again() -> None:
    events = Events()
    worker = backhop.Worker("amqp://127.0.0.1:1", queue="orders", on_event=events)
    for _ in range(3):
        with running(worker, print):
            events.get("unavailable")
        events.get("drained")


@needs_worker
def test_serving_can_be_cancelled_and_begun_again() -> None:
    async def serve(events: Events) -> None:
        for _ in range(3):
            serving = asyncio.create_task(worker.serve(_nothing))
            await asyncio.to_thread(events.get, "unavailable")
            serving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await serving
            events.get("drained")

    events = Events()
    worker = backhop.Worker("amqp://127.0.0.1:1", queue="orders", on_event=events)
    asyncio.run(serve(events))


async def _nothing(_: backhop.Message) -> None: ...


@needs_worker
def test_f13_workers_that_ended_hold_no_descriptors() -> None:
    def run_all() -> None:
        for worker in workers:
            with running(worker, print):
                events.get("unavailable")
            events.get("drained")

    events = Events()
    before = _descriptors()
    workers = [backhop.Worker("amqp://127.0.0.1:1", queue="o", on_event=events) for _ in range(4)]
    run_all()
    _await_descriptors(before)
    run_all()


@needs_worker
def test_f13_workers_that_served_hold_no_descriptors() -> None:
    async def serve_all() -> None:
        for worker in workers:
            serving = asyncio.create_task(worker.serve(_nothing))
            await asyncio.to_thread(events.get, "unavailable")
            worker.stop()
            await serving
            events.get("drained")

    events = Events()
    before = _descriptors()
    workers = [backhop.Worker("amqp://127.0.0.1:1", queue="o", on_event=events) for _ in range(4)]
    asyncio.run(serve_all())
    _await_descriptors(before)
    asyncio.run(serve_all())


def _await_descriptors(most: int) -> None:
    """Waits: the core's thread closes its last descriptor after its last event."""
    deadline = time.monotonic() + PATIENCE
    while _descriptors() > most and time.monotonic() < deadline:
        time.sleep(0.01)
    assert _descriptors() <= most


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_a_drain_that_is_too_long_is_refused() -> None:
    with pytest.raises(ValueError, match="drain is 7200: give seconds, from 0 to 3600"):
        backhop.Worker("amqp://localhost", queue="orders", drain=7200)


@needs_worker
def test_in_a_forked_child_a_worker_of_the_parent_says_what_to_do() -> None:
    code = """if True:
        import os, threading, backhop
        connecting = threading.Event()
        worker = backhop.Worker("amqp://127.0.0.1:1", queue="orders", on_event=lambda _: connecting.set())
        thread = threading.Thread(target=worker.run, args=(print,))
        thread.start()
        connecting.wait()
        child = os.fork()
        if not child:
            for call in (lambda: worker.run(print), worker.stop, lambda: worker.replay(1)):
                try:
                    call()
                    os._exit(1)
                except backhop.ForkedError as error:
                    assert "make a new" in str(error), error
            assert backhop.Policy(jitter="none").delay(1) == 1, "what has no worker works on"
            backhop.Worker("amqp://127.0.0.1:1", queue="orders")
            del worker
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        worker.stop()
        thread.join()
        assert status == 0
        """
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=PATIENCE)


either_go = pytest.mark.parametrize("go", ["worker.run(print)", "asyncio.run(worker.serve(print))"])


@needs_worker
@either_go
def test_a_forked_child_gets_its_signals_back(go: str) -> None:
    code = f"""if True:
        import asyncio, os, signal, threading, time, backhop
        met = threading.Event()
        worker = backhop.Worker("amqp://127.0.0.1:1", queue="orders", on_event=lambda _: met.set())
        def fork():
            met.wait()  # the handlers are there
            reading, writing = os.pipe()
            child = os.fork()
            if not child:
                os.write(writing, b".")
                for _ in range(int(10 * {PATIENCE})):  # a signal just before a sleep does not end it
                    time.sleep(0.1)
                os._exit(0)
            os.read(reading, 1)
            os.kill(child, signal.SIGTERM)
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            worker.stop()
        threading.Thread(target=fork).start()
        {go}
        """
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(command, check=True, timeout=PATIENCE, stdout=subprocess.PIPE, text=True)
    assert done.stdout == f"{-signal.SIGTERM}\n"


@needs_worker
@either_go
def test_a_callback_may_end_the_process_at_the_last_event(go: str) -> None:
    code = f"""if True:
        import asyncio, sys, backhop
        def on_event(event):
            worker.stop()
            if event.name == "drained":
                sys.exit(7)
        worker = backhop.Worker("amqp://127.0.0.1:1", queue="orders", on_event=on_event)
        {go}
        """
    command = [sys.executable, "-c", code]
    assert subprocess.run(command, check=False, timeout=PATIENCE, stderr=subprocess.PIPE).returncode == 7


@needs_worker
def test_metrics_that_tell_other_classes_of_errors_apart_are_refused() -> None:
    prometheus = pytest.importorskip("backhop.prometheus")
    same = [prometheus.Metrics(None, error_types=types) for types in (["OSError", "KeyError"], ["KeyError", "OSError"])]
    backhop.Worker("amqp://localhost", "orders", on_event=same)
    with pytest.raises(backhop.ArgumentError, match="give each the same error types"):
        backhop.Worker("amqp://localhost", "orders", on_event=[*same, prometheus.Metrics(None)])


def test_what_is_no_class_of_exceptions_is_refused_at_once() -> None:
    never: Any = ["ValueError"]
    with pytest.raises(backhop.ArgumentError, match="give classes of exceptions"):
        backhop.Worker("amqp://localhost", queue="orders", never=never)


def python(code: str, *, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Runs a program of its own."""
    command = [sys.executable, "-W", "ignore", "-c", code]
    return subprocess.run(command, check=check, timeout=PATIENCE, stdout=subprocess.PIPE, text=True)


def test_importing_backhop_imports_no_asyncio() -> None:
    code = "import sys, backhop, backhop.testing; sys.exit('asyncio' in sys.modules)"
    assert python(code, check=False).returncode == 0


@needs_worker
def test_serving_leaves_signals_to_its_host() -> None:
    code = """if True:
        import asyncio, os, signal, backhop
        async def nothing(message): ...
        async def main():
            met, asked = asyncio.Event(), asyncio.Event()
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asked.set)
            worker = backhop.Worker("amqp://127.0.0.1:1", "orders", on_event=lambda _: met.set())
            before = [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)]
            serving = asyncio.create_task(worker.serve(nothing))
            await met.wait()
            assert before == [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)]
            os.kill(os.getpid(), signal.SIGTERM)
            await asked.wait()
            assert not serving.done()
            worker.stop()
            await serving
            print("ended")
        asyncio.run(main())
        """
    assert python(code).stdout == "ended\n"


@needs_worker
def test_run_hands_signals_on_to_who_had_them_and_gives_them_back() -> None:
    code = """if True:
        import os, signal, backhop
        def mine(number, frame):
            print("mine", flush=True)
        signal.signal(signal.SIGTERM, mine)
        interrupt = signal.getsignal(signal.SIGINT)
        def on_event(event):
            if event.name == "unavailable":
                os.kill(os.getpid(), signal.SIGTERM)
        worker = backhop.Worker("amqp://127.0.0.1:1", "orders", on_event=on_event)
        worker.run(print)
        assert signal.getsignal(signal.SIGTERM) is mine
        assert signal.getsignal(signal.SIGINT) is interrupt
        print("ended")
        """
    assert python(code).stdout.split("\n")[-2] == "ended"
    assert "mine" in python(code).stdout


@needs_worker
def test_one_signal_drains_every_worker_of_the_process() -> None:
    code = """if True:
        import asyncio, os, signal, threading, backhop
        names = ["main", "thread", "served"]
        met = {name: threading.Event() for name in names}
        workers = {
            name: backhop.Worker("amqp://127.0.0.1:1", name, on_event=lambda event, name=name: met[name].set())
            for name in names
        }
        def kill():
            for each in met.values():
                each.wait()
            os.kill(os.getpid(), signal.SIGTERM)
        async def nothing(message): ...
        threads = [
            threading.Thread(target=workers["thread"].run, args=(print,)),
            threading.Thread(target=lambda: asyncio.run(workers["served"].serve(nothing))),
            threading.Thread(target=kill),
        ]
        for thread in threads:
            thread.start()
        workers["main"].run(print)
        for thread in threads:
            thread.join()
        print("ended")
        """
    assert python(code).stdout == "ended\n"


@needs_worker
def test_a_replay_where_nothing_runs_or_where_it_would_wait_for_itself_says_so() -> None:
    asked: list[BaseException] = []

    def ask(_: backhop.Event) -> None:
        try:
            worker.replay()
        except backhop.StateError as error:
            asked.append(error)
        worker.stop()

    async def serve() -> None:
        serving = asyncio.create_task(worker.serve(_nothing))
        await asyncio.sleep(0)
        with pytest.raises(backhop.StateError, match="replay_async"):
            worker.replay()
        worker.stop()
        await serving

    worker = backhop.Worker("amqp://127.0.0.1:1", "orders", on_event=ask)
    with pytest.raises(backhop.StateError, match="does not run"):
        worker.replay()
    worker.run(print)
    assert "replay_async" in str(asked[0])
    worker = backhop.Worker("amqp://127.0.0.1:1", "orders")
    asyncio.run(serve())


@needs_worker
def test_a_replay_that_the_stop_overtakes_ends_with_an_error() -> None:
    met = threading.Event()
    worker = backhop.Worker("amqp://127.0.0.1:1", "orders", on_event=lambda _: met.set())
    ends: list[BaseException] = []

    def replay() -> None:
        try:
            worker.replay()
        except backhop.Error as error:
            ends.append(error)

    with running(worker, print):
        assert met.wait(PATIENCE)
        thread = threading.Thread(target=replay)
        thread.start()
        while worker._replays._current is None and thread.is_alive():
            pass
    thread.join(PATIENCE)
    assert [type(error) for error in ends] == [backhop.StateError]


@needs_worker
@pytest.mark.parametrize("serves", [False, True])
def test_a_second_run_is_refused_and_the_first_one_ends_as_always(serves: bool) -> None:
    met = threading.Event()
    worker = backhop.Worker("amqp://127.0.0.1:1", "orders", on_event=lambda _: met.set())
    with running(worker, _nothing if serves else print, serves=serves):
        assert met.wait(PATIENCE)
        with pytest.raises(backhop.StateError, match=r"^the worker runs already$"):
            worker.run(print)
        with pytest.raises(backhop.StateError, match=r"^the worker runs already$"):
            asyncio.run(worker.serve(_nothing))
        states = [worker.state]
    states.append(worker.state)
    assert states == ["starting", "stopped"]
    met.clear()
    with running(worker, print):
        assert met.wait(PATIENCE)  # else the stop could come before the run


@needs_worker
def test_a_stop_drains_the_first_run_that_follows_and_after_a_run_has_no_effect() -> None:
    events: queue.Queue[str] = queue.Queue()
    worker = backhop.Worker("amqp://127.0.0.1:1", "orders", on_event=lambda event: events.put(event.name))
    worker.stop()
    worker.run(print)
    assert "drained" in [events.get(timeout=PATIENCE) for _ in range(events.qsize())]
    worker.stop()
    with running(worker, print):
        assert events.get(timeout=PATIENCE) == "unavailable"


# --- Live -----------------------------------------------------------------------------------------


@needs_worker
@needs_broker
class TestLive:
    def test_as_many_handlers_as_threads_run_at_once(self, broker: Broker) -> None:
        name, together = broker.queue(), threading.Barrier(5)
        for _ in range(8):
            broker.publish(b"body", name)
        met = queue.Queue[int]()

        def handle(_: backhop.Message) -> None:
            met.put(together.wait(PATIENCE))

        with running(_worker(name, threads=4), handle):
            for _ in range(2):
                together.wait(PATIENCE)
            for _ in range(8):
                met.get(timeout=PATIENCE)

    def test_a_listener_that_takes_long_keeps_no_message_from_the_other_threads(self, broker: Broker) -> None:
        name, told, handled = broker.queue(), list[bytes](), queue.Queue[bytes]()
        is_told, may_go_on, waited = threading.Event(), threading.Event(), list[bool]()

        def on_event(event: backhop.Event) -> None:
            if event.name == "parked":
                told.append(event.id.encode())
                is_told.set()
                waited.append(may_go_on.wait(PATIENCE))

        def handle(message: backhop.Message) -> None:
            handled.put(message.body)
            if message.body.isdigit():
                raise backhop.Park

        worker = _worker(name, on_event=on_event, threads=3)
        with running(worker, handle):
            broker.publish(b"1", name, message_id="1")
            assert is_told.wait(PATIENCE)
            for body in (b"2", b"3", b"4", b"fine", b"fine"):
                broker.publish(body, name, message_id=body.decode())
            assert [handled.get(timeout=PATIENCE) for _ in range(6)].count(b"fine") == 2
            may_go_on.set()
            deadline = time.monotonic() + PATIENCE
            while len(told) < 4 and time.monotonic() < deadline:
                time.sleep(0.01)
        assert all(waited)
        assert told[0] == b"1"
        assert sorted(told) == [b"1", b"2", b"3", b"4"]

    def test_coroutines_run_at_once_up_to_prefetch(self, broker: Broker) -> None:
        name = broker.queue()
        for _ in range(6):
            broker.publish(b"body", name)
        running_now = most = done = 0
        ready = asyncio.Event()

        async def handle(_: backhop.Message) -> None:
            nonlocal running_now, most, done
            running_now += 1
            most = max(most, running_now)
            if running_now == 3:
                ready.set()
            await ready.wait()
            running_now -= 1
            done += 1
            if done == 6:
                worker.stop()

        worker = _worker(name, prefetch=3)
        asyncio.run(asyncio.wait_for(worker.serve(handle), PATIENCE))
        assert (done, most) == (6, 3)

    @pytest.mark.alone
    @pytest.mark.control
    @pytest.mark.long
    def test_f2_a_worker_connects_again_and_a_message_in_hand_has_one_call(self, broker: Broker) -> None:
        name, events, release, seen = broker.queue(), Events(), threading.Event(), queue.Queue[bool]()
        broker.publish(b"body", name, message_id="order 7")

        def handle(message: backhop.Message) -> None:
            seen.put(message.redelivered)
            release.wait(PATIENCE)

        with running(_worker(name, on_event=events, threads=1), handle):
            assert seen.get(timeout=PATIENCE) is False
            control("rabbitmqctl", "close_all_connections", "a test")
            assert isinstance(events.get("disconnected").error, backhop.Error)
            events.get("connected")
            release.set()
            broker.reconnect()
            broker.publish(b"next", name)
            assert seen.get(timeout=PATIENCE) is False  # the next message: the first one has had its call

    def test_a_queue_that_is_missing_is_an_event_that_names_it(self) -> None:
        events = Events()
        with running(_worker("test-no-such-queue", on_event=events, fail_fast=False), print):
            for _ in range(5):
                event = events.get("unavailable")
        assert isinstance(event.error, backhop.MissingError)
        assert "test-no-such-queue" in event.text
        assert events.get("drained").error is None

    def test_W8_a_worker_uses_a_new_secret_at_its_next_login(self, broker: Broker) -> None:
        events = Events()
        url = URL.replace("guest:guest", "guest:wrong")
        worker = backhop.Worker(url, queue=broker.queue(), on_event=events, fail_fast=False)
        with running(worker, print):
            assert isinstance(events.get("unavailable").error, backhop.AccessError)
            with pytest.raises(backhop.ArgumentError, match="give a user"):
                worker.set_credentials("", "guest")
            with pytest.raises(backhop.ArgumentTypeError, match=r"^password is no text: give str or bytes$"):
                worker.set_credentials("guest", 42)  # type: ignore[arg-type]
            worker.set_credentials("guest", "guest")
            events.get("connected")

    @pytest.mark.long
    @pytest.mark.parametrize("go", ["run", "serve"])
    def test_a_worker_that_can_never_be_ready_ends_with_the_reason(self, go: str, broker: Broker) -> None:
        missing = _worker("test-no-such-queue")
        refused = backhop.Worker(URL.replace("guest:guest", "guest:wrong"), queue=broker.queue())
        for worker, error in ((missing, backhop.MissingError), (refused, backhop.AccessError)):
            for _ in range(2):
                with pytest.raises(error):
                    worker.run(print) if go == "run" else asyncio.run(worker.serve(_nothing))

    def test_a_message_that_is_not_settled_in_time_goes_back(self, broker: Broker) -> None:
        name, taken, release = broker.queue(), threading.Event(), threading.Event()
        broker.publish(b"body", name)

        def handle(_: backhop.Message) -> None:
            taken.set()
            release.wait(PATIENCE)

        worker = _worker(name, drain=0)
        with running(worker, handle):
            assert taken.wait(PATIENCE)
        assert broker.get(name)[0] == b"body"
        release.set()

    def test_a_handler_that_outlives_its_run_takes_no_message_of_the_next(self, broker: Broker) -> None:
        name, taken, release = broker.queue(), threading.Event(), threading.Event()
        broker.publish(b"body", name)
        held: list[threading.Thread] = []

        def hold(_: backhop.Message) -> None:
            held.append(threading.current_thread())
            taken.set()
            release.wait(PATIENCE)

        worker, inbox = _worker(name, drain=0, threads=1), Inbox()
        with running(worker, hold):
            assert taken.wait(PATIENCE)
        with running(worker, inbox):
            assert inbox.get().redelivered
            release.set()
            held[0].join(PATIENCE)
            assert not held[0].is_alive()
            for _ in range(20):
                broker.publish(b"another", name)
            assert [inbox.get().body for _ in range(20)] == [b"another"] * 20
        assert len(held) == 1

    def test_a_failure_that_is_no_handlers_own_ends_the_run_and_loses_nothing(self, broker: Broker) -> None:
        name = broker.queue()
        broker.publish(b"body", name)
        worker = _worker(name, drain=0)
        with pytest.raises(SystemExit):
            worker.run(Inbox(SystemExit()))
        assert broker.get(name)[0] == b"body"

    def test_a_message_outlives_its_worker(self, broker: Broker) -> None:
        name, inbox = broker.queue(), queue.Queue[backhop.Message]()
        broker.publish(b"body", name)
        worker = _worker(name)
        with running(worker, inbox.put):
            message = inbox.get(timeout=PATIENCE)
        del worker
        gc.collect()
        assert message.body == b"body"
        assert message.attempt == 1

    @pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.long), signal.SIGTERM])
    @pytest.mark.parametrize("go", ["worker.run(handle)", "asyncio.run(serve_until_signalled())"])
    def test_a_signal_drains(self, broker: Broker, number: signal.Signals, go: str) -> None:
        name = broker.queue()
        broker.publish(b"body", name)
        code = f"""if True:
            import asyncio, os, signal, sys, backhop
            def say(word):
                os.write(1, (word + "\\n").encode())  # in one piece: two threads speak
            def handle(message):
                say("begun")
                sys.stdin.readline()
                say("ended")
            async def serve(message):
                await asyncio.to_thread(handle, message)
            async def serve_until_signalled():
                for one in (signal.SIGINT, signal.SIGTERM):
                    asyncio.get_running_loop().add_signal_handler(one, worker.stop)
                await worker.serve(serve)
            worker = backhop.Worker({URL!r}, queue={name!r}, on_event=lambda event: say(event.name))
            {go}
            say("returned")
            """
        process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        with process:
            assert process.stdin
            assert process.stdout
            try:
                lines = iter(process.stdout.readline, "")
                assert next(line for line in lines if line == "begun\n")
                process.send_signal(number)
                process.stdin.write("go on\n")
                process.stdin.flush()
                said = [line for line in lines if line not in ("connected\n", "succeeded\n")]
                assert said == ["ended\n", "drained\n", "returned\n"]
                assert process.wait(PATIENCE) == 0
            finally:
                process.kill()
        assert broker.is_empty(name)

    @pytest.mark.rabbitmq  # the model has no TLS
    @pytest.mark.skipif("BACKHOP_CA_FILE" not in os.environ, reason="there is no broker with TLS")
    def test_tls_verifies_the_broker(self, broker: Broker) -> None:
        uri, name, events = os.environ["AMQPS_URL"], broker.queue(), Events()
        with running(backhop.Worker(uri, queue=name, on_event=events, fail_fast=False), print):
            assert isinstance(events.get("unavailable").error, backhop.TLSError)
        events = Events()
        with running(
            backhop.Worker(
                uri,
                queue=name,
                on_event=events,
                ca_file=os.environ["BACKHOP_CA_FILE"],
                mode="verify",
                fail_fast=False,
            ),
            print,
        ):
            assert isinstance(events.get("unavailable").error, backhop.MissingError), (
                "TLS is there, the topology is not"
            )

    def test_events_are_logged(self, broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
        name, events = broker.queue(), Events()
        with caplog.at_level(logging.INFO, "backhop"), running(_worker(name, on_event=events), print):
            events.get("connected")
        levels = {record.getMessage().split(":")[0]: record.levelno for record in caplog.records}
        assert levels == {"connected": logging.INFO, "drained": logging.INFO}

    def test_a_callback_that_fails_stops_nothing(self, broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
        def fail(_: backhop.Event) -> None:
            raise LookupError

        name, inbox = broker.queue(), Inbox()
        broker.publish(b"body", name)
        with running(_worker(name, on_event=fail), inbox):
            assert inbox.get().body == b"body"
        assert "a listener failed at connected" in caplog.text

    def test_the_event_and_the_log_of_a_parked_message_have_what_the_handler_raised(
        self, broker: Broker, caplog: pytest.LogCaptureFixture
    ) -> None:
        name, events, failure = broker.queue(), Events(), ValueError("no such page")
        broker.publish(b"body", name, message_id="m1")
        with running(_worker(name, on_event=events, never=ValueError), Inbox(failure)):
            event = events.get("parked")
        assert event.exception is failure
        assert (event.queue, event.id, event.attempts, event.error_class) == (name, "m1", 1, "ValueError")
        (record,) = [each for each in caplog.records if each.levelno == logging.WARNING]
        assert record.getMessage().startswith(
            f'parked: message "m1" of "{name}", failed once, permanent: ValueError: no'
        )
        assert record.exc_info
        assert record.exc_info[1] is failure
        assert (record.__dict__["backhop_queue"], record.__dict__["backhop_id"]) == (name, "m1")

    def test_the_last_failure_of_a_message_without_an_id_is_logged_with_its_error(
        self, broker: Broker, caplog: pytest.LogCaptureFixture
    ) -> None:
        name, events = broker.queue(), Events()
        broker.publish(b"body", name)
        with running(_worker(name, on_event=events), Inbox(backhop.Park(OSError("no such page")))):
            events.get("parked")
        records = [each for each in caplog.records if each.exc_info]
        assert ["OSError: no such page" in each.getMessage() for each in records] == [True]

    def test_the_log_of_a_retry_tells_how_long_the_message_waits(
        self, broker: Broker, caplog: pytest.LogCaptureFixture
    ) -> None:
        name, inbox, events = broker.queue(), Inbox(OSError("507")), Events()
        broker.publish(b"body", name, message_id="m1")
        with caplog.at_level(logging.INFO, "backhop"), running(_worker(name, on_event=events), inbox):
            inbox.get(), inbox.get()
        text = caplog.text
        assert f'retried: message "m1" of "{name}", failed once, again in 0.1 s: OSError: 507' in text
        assert events.empty("retried")

    def test_a_handler_that_ends_after_the_drain_is_told_in_its_own_words(
        self, broker: Broker, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        name, taken, release = broker.queue(), threading.Event(), threading.Event()
        broker.publish(b"body", name, message_id="m1")
        threads: list[threading.Thread] = []

        def handle(_: backhop.Message) -> None:
            threads.append(threading.current_thread())
            taken.set()
            release.wait(PATIENCE)

        with running(_worker(name, drain=0), handle):
            assert taken.wait(PATIENCE)
        release.set()
        threads[0].join(PATIENCE)
        assert "its handler ended after the worker had stopped: the broker delivers it again" in caplog.text
        assert "wrong time" not in caplog.text

    def test_a_handler_that_exits_ends_the_run_once_the_others_are_done(self, broker: Broker) -> None:
        name, both, done = broker.queue(), threading.Barrier(2), threading.Event()
        for body in (b"exits", b"works"):
            broker.publish(body, name)
        worker = _worker(name, drain=3600, threads=2, prefetch=2)

        def handle(message: backhop.Message) -> None:
            both.wait(PATIENCE)
            if message.body == b"exits":
                sys.exit(7)
            done.set()

        with pytest.raises(SystemExit) as raised:
            worker.run(handle)
        assert raised.value.code == 7
        assert done.is_set()
        assert broker.get(name)[0] == b"exits"
        assert broker.is_empty(name)
        assert broker.is_empty(f"{name}.parked")

    def test_a_worker_declares_its_work_queue_or_says_how(self, broker: Broker) -> None:
        name, inbox, events = f"{broker.queue()}.own", Inbox(), Events()
        with running(_worker(name, on_event=events), print):
            event = events.get("unavailable")
        assert "declare it first, or have it declared too, by work_queue" in event.text
        with running(_worker(name, work_queue="classic", on_event=events), inbox):
            events.get("connected")
            broker.publish(b"body", name)
            assert inbox.get().queue == name
        for one in (name, f"{name}.parked"):
            broker.channel.queue_delete(one)

    def test_a_replay_can_be_awaited(self, broker: Broker) -> None:
        inbox, events = Inbox(), Events()
        worker = _worker(broker.queue(), on_event=events)

        async def serve() -> int:
            serving = asyncio.create_task(worker.serve(inbox.serve))
            await asyncio.to_thread(events.get, "connected")
            count = await worker.replay_async()
            worker.stop()
            await serving
            return count

        assert asyncio.run(serve()) == 0
