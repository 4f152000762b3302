"""The circuit breaker over each carrier: an outage, a pause, breakers by key, and what ends them."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from live import URL, Broker, needs_broker, needs_worker, running, until
from proxy import Proxy
from support import Looks, carriers

import backhop
import backhop.adapters.gate
import backhop.breaker

pytest.importorskip("pika")
pytest.importorskip("aio_pika")

from clients import CLIENTS, break_channel, connected

pytestmark = [needs_broker, pytest.mark.filterwarnings("default")]

POLICY = backhop.Policy(initial=0.1, jitter="none", max=0.2, max_attempts=1000)
PREFETCH = 20
HOLD = 30.0  # seconds: BH_FLOW_HOLD_MS
BACK_OFF = 0.2  # seconds: a consumer that was lost once subscribes again after half of that

CONSUMERS = [*(f"{client} consume" for client in CLIENTS), "blocking threads"]
WRAPS = [f"{client} wrap" for client in CLIENTS]

each_consumer = pytest.mark.parametrize("carrier", carriers(*CONSUMERS))


def quick(**options: Any) -> backhop.Breaker:
    """A breaker with short pauses."""
    pauses = backhop.Policy(initial=0.3, kind="fixed", jitter="none")
    given: dict[str, Any] = {"row_failures": 3, "probe_successes": 1, "pauses": pauses}
    return backhop.Breaker("api", **{**given, **options})


class Downstream:
    """A handler that calls an API, which may be down."""

    def __init__(self) -> None:
        self.is_down = False
        self.calls: list[bytes] = []
        self.done: Counter[bytes] = Counter()
        self.deferrals: dict[bytes, int] = {}
        self.wrong: list[str] = []
        self._failures: Counter[bytes] = Counter()
        self._lock = threading.Lock()

    def __call__(self, message: backhop.Message) -> None:
        with self._lock:
            body = message.body
            self.calls.append(body)
            if message.attempt != self._failures[body] + 1:
                self.wrong.append(f"{message!r} after {self._failures[body]} failures")
            if self.is_down:
                self._failures[body] += 1
                raise ConnectionError("down")
            self.done[body] += 1
            self.deferrals[body] = message.deferrals


class Carried:
    """A consumer that runs, and its events."""

    def __init__(self) -> None:
        self.events: list[backhop.Event] = []
        self.consumer: Any = None
        self.client: Any = None  # of a retrier

    def names(self) -> list[str]:
        return [event.name for event in list(self.events)]

    def emitted(self, name: str) -> bool:
        return name in self.names()

    @property
    def state(self) -> str:
        return str(self.consumer.state)

    @property
    def held(self) -> int:
        """The number of messages that the consumer of a retrier holds."""
        return len(self.consumer._gate._held)


@contextlib.contextmanager
def carrying(carrier: str, queue: str, handle: Downstream, *, url: str = URL, **options: Any) -> Iterator[Carried]:
    """Consumes over a carrier."""
    carried = Carried()
    kind, _, how = carrier.rpartition(" ")
    options = {"policy": POLICY, "on_event": carried.events.append, **options}
    if kind == "worker":
        worker = backhop.Worker(url, queue, threads=4, prefetch=PREFETCH, retry_events=True, **options)
        carried.consumer = worker
        with running(worker, handle, serves=how == "serve"):
            yield carried
        return
    with connected(kind, url, queue, handle, **options) as client:
        client.consuming = {"prefetch": PREFETCH}
        if how == "wrap":
            client.declare()
            client.begin()
        else:
            if how == "threads":
                client.consuming = {"threads": 4, "prefetch": PREFETCH}
            client.begin_by_itself()
            carried.consumer, carried.client = client.consumer, client
        yield carried
        if how != "wrap":
            client.cancel()


def bodies(count: int, name: str = "m") -> list[bytes]:
    return [f"{name}{i}".encode() for i in range(count)]


# --- An outage ------------------------------------------------------------------------------------


# --- A pause that is longer than messages are held ------------------------------------------------


class Clock:
    """The clock of breakers, which only jumps until ``go_on``: no pause ends before the test has looked."""

    def __init__(self) -> None:
        self._start_ms = time.monotonic_ns() // 1_000_000
        self._by_ms = 0
        self._goes = False

    def __call__(self) -> int:
        return (time.monotonic_ns() // 1_000_000 if self._goes else self._start_ms) + self._by_ms

    def jump(self, seconds: float) -> None:
        self._by_ms += int(seconds * 1000)

    def go_on(self) -> None:
        self._goes = True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(backhop.breaker, "now_ms", clock)
    monkeypatch.setattr(backhop.adapters.gate, "now_ms", clock)
    return clock


@each_consumer
def test_a_consumer_that_is_paused_for_long_defers_its_messages_and_consumes_again(
    carrier: str,
    broker: Broker,
    namespace: str,
    clock: Clock,
) -> None:
    queue, api, breaker, sent = broker.queue(), Downstream(), quick(), bodies(5)
    breaker.open(HOLD + 1)
    with carrying(carrier, queue, api, namespace=namespace, breaker=breaker) as carried:
        for body in sent:
            broker.publish(body, queue)
        until(lambda: carried.state == "paused")
        assert "opened by hand" in carried.consumer.state_reason
        until(lambda: carried.held == 5)
        clock.jump(HOLD + 0.5)
        until(lambda: carried.names().count("deferred") == 5)
        until(lambda: broker.consumers(queue) == 0)
        broker.publish(b"later", queue)
        broker.holds(queue, 6)  # the copies are back
        assert api.calls == []
        clock.go_on()
        until(lambda: len(api.done) == 6)
        until(lambda: carried.state == "ready")
        assert broker.consumers(queue) == 1
    assert carried.names().count("connected") == 1
    assert api.wrong == []
    assert {api.deferrals[body] for body in sent} == {1}
    assert broker.is_empty(queue)
    assert broker.is_empty(f"{queue}.parked")


@pytest.mark.parametrize("carrier", carriers(*WRAPS))
def test_under_wrap_the_consumer_stays_and_its_messages_are_deferred(
    carrier: str,
    broker: Broker,
    namespace: str,
    clock: Clock,
) -> None:
    queue, api, breaker = broker.queue(), Downstream(), quick()
    breaker.open(HOLD + 1)
    with carrying(carrier, queue, api, namespace=namespace, breaker=breaker) as carried:
        broker.publish(b"held", queue)
        until(lambda: "breaker_opened" in carried.names())
        clock.jump(HOLD + 0.5)
        until(lambda: carried.emitted("deferred"))
        broker.publish(b"later", queue)
        until(lambda: carried.names().count("deferred") >= 2)
        assert (broker.consumers(queue), api.calls) == (1, [])
        clock.go_on()
        until(lambda: len(api.done) == 2)
    assert api.wrong == []


@each_consumer
def test_a_channel_that_is_lost_during_a_pause_consumes_after_it(
    carrier: str,
    broker: Broker,
    namespace: str,
    clock: Clock,
) -> None:
    queue, api, breaker = broker.queue(), Downstream(), quick()
    breaker.open(HOLD + 1)
    with carrying(carrier, queue, api, namespace=namespace, breaker=breaker) as carried:
        broker.publish(b"held", queue)
        until(lambda: carried.state == "paused")
        until(lambda: carried.held == 1)
        clock.jump(HOLD + 0.5)
        until(lambda: broker.consumers(queue) == 0)
        broker.channel.queue_delete(queue)
        broker.channel.queue_declare(queue, durable=True, arguments={"x-queue-type": "classic"})
        break_channel(carried.client, carried.consumer)
        until(lambda: carried.emitted("cancelled"))
        broker.publish(b"later", queue)
        time.sleep(BACK_OFF)  # nothing may happen: it waits for the breaker
        assert (broker.consumers(queue), api.calls) == (0, [])
        clock.go_on()
        until(lambda: b"later" in api.done)
        until(lambda: carried.state == "ready")
    assert api.wrong == []


@pytest.mark.long
def test_a_connection_that_is_lost_during_a_pause_consumes_after_it(
    broker: Broker,
    namespace: str,
    proxy: Proxy,
    clock: Clock,
) -> None:
    queue, api, breaker = broker.queue(), Downstream(), quick()
    breaker.open(HOLD + 1)
    options: dict[str, Any] = {"namespace": namespace, "breaker": breaker, "url": proxy.url}
    with carrying("aio-pika robust consume", queue, api, **options) as carried:
        broker.publish(b"held", queue)
        until(lambda: carried.state == "paused")
        until(lambda: carried.held == 1)
        clock.jump(HOLD + 0.5)
        until(lambda: broker.consumers(queue) == 0)
        until(lambda: "deferred" in carried.names())
        proxy.cut()
        until(lambda: "disconnected" in carried.names())
        broker.publish(b"later", queue)
        broker.holds(queue, 2)  # the copy is back
        until(lambda: carried.client.call(carried.client.retrier._session.wire_connection()).is_opened)
        time.sleep(BACK_OFF)  # nothing may happen: it waits for the breaker
        assert (broker.consumers(queue), api.calls) == (0, [])
        clock.go_on()
        until(lambda: len(api.done) == 2)
        until(lambda: carried.state == "ready")
        assert broker.consumers(queue) == 1
    assert api.wrong == []


# --- Closed channels and stops --------------------------------------------------------------------


@each_consumer
def test_F4_1_held_messages_survive_the_deletion_of_their_queue(
    carrier: str, clock: Clock, looks: Looks, broker: Broker, namespace: str
) -> None:
    queue, api, breaker, sent = broker.queue(), Downstream(), quick(), bodies(5)
    breaker.open(1)
    with carrying(carrier, queue, api, namespace=namespace, breaker=breaker) as carried:
        for body in sent:
            broker.publish(body, queue)
        until(lambda: carried.held == 5)
        broker.channel.queue_delete(queue)
        until(lambda: carried.names().count("deferred") == 5)
        broker.channel.queue_declare(queue, durable=True, arguments={"x-queue-type": "classic"})
        until(lambda: carried.names().count("connected") == 2)
        broker.publish(b"new", queue)
        clock.go_on()
        until(lambda: {*api.done} == {*sent, b"new"})  # by the unroutable queue, if a copy was early
        looks.end()
    assert set(api.done.values()) == {1}
    assert api.wrong == []


@each_consumer
def test_held_messages_of_a_channel_that_the_broker_closed_come_again(
    carrier: str, broker: Broker, namespace: str
) -> None:
    queue, api, breaker = broker.queue(), Downstream(), quick()
    breaker.open()
    with carrying(carrier, queue, api, namespace=namespace, breaker=breaker) as carried:
        broker.publish(b"body", queue)
        until(lambda: carried.held == 1)
        break_channel(carried.client, carried.consumer)
        until(lambda: carried.names().count("connected") == 2)
        until(lambda: carried.held == 1)
        breaker.close()
        until(lambda: b"body" in api.done)
    assert api.done == {b"body": 1}
    assert "deferred" not in carried.names()
    assert api.wrong == []


# --- Throttled, and by key ------------------------------------------------------------------------


@needs_worker
def test_retriers_and_workers_share_a_breaker(broker: Broker, namespace: str) -> None:
    queues, api, breaker = [broker.queue(), broker.queue()], Downstream(), quick()
    api.is_down = True
    with (
        carrying("worker run", queues[0], api, namespace=namespace, breaker=breaker) as worker,
        carrying("blocking consume", queues[1], api, namespace=namespace, breaker=breaker) as retrier,
    ):
        for body in bodies(20):
            broker.publish(body, queues[0])
        until(lambda: "breaker_opened" in worker.names())
        broker.publish(b"other", queues[1])
        until(lambda: "breaker_opened" in retrier.names())
        until(lambda: retrier.state == worker.state == "paused")
        api.is_down = False
        until(lambda: len(api.done) == 21)
        until(lambda: retrier.state == worker.state == "ready")
    assert api.wrong == []
