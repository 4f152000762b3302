"""Events, metrics and spans of a message that fails, is late, and is parked, over each client."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from queue import Queue
from typing import Any

import pytest
from live import PATIENCE, URL, Broker, needs_broker, needs_worker, running, until
from support import QUICK, Handler, carriers

import backhop

pytest.importorskip("pika")
pytest.importorskip("aio_pika")
prometheus_client = pytest.importorskip("prometheus_client")
pytest.importorskip("opentelemetry.sdk")

from clients import connected, consuming, each_client  # noqa: E402
from opentelemetry import trace  # noqa: E402
from opentelemetry.sdk.metrics import MeterProvider  # noqa: E402
from opentelemetry.sdk.metrics.export import InMemoryMetricReader  # noqa: E402
from opentelemetry.sdk.trace import TracerProvider  # noqa: E402
from opentelemetry.sdk.trace.export import SimpleSpanProcessor  # noqa: E402
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter  # noqa: E402
from proxy import Proxy  # noqa: E402

import backhop.opentelemetry  # noqa: E402
import backhop.prometheus  # noqa: E402

pytestmark = [needs_broker, pytest.mark.filterwarnings("default")]

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
PROVIDER = TracerProvider()
SPANS = InMemorySpanExporter()
PROVIDER.add_span_processor(SimpleSpanProcessor(SPANS))


@pytest.fixture(params=[False, True], ids=["alone", "instrumented"])
def instrumented(request: pytest.FixtureRequest) -> Iterator[bool]:
    """With and without the clients' own instrumentation."""
    SPANS.clear()
    with ExitStack() as stack:
        if request.param:
            instrumentation = pytest.importorskip("opentelemetry.instrumentation.pika")
            aio = pytest.importorskip("opentelemetry.instrumentation.aio_pika")
            for each in (instrumentation.PikaInstrumentor(), aio.AioPikaInstrumentor()):
                each.instrument(tracer_provider=PROVIDER)
                stack.callback(each.uninstrument)
        yield request.param


class Seen:
    """All who listen."""

    def __init__(self) -> None:
        self.events: Queue[backhop.Event] = Queue()
        self.registry = prometheus_client.CollectorRegistry()
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider([self.reader])

    @property
    def on_event(self) -> list[Any]:
        return [
            self.events.put,
            backhop.prometheus.Metrics(self.registry),
            backhop.opentelemetry.Metrics(self.meters),
            backhop.opentelemetry.Tracing(PROVIDER),
        ]

    def until_parked(self) -> list[backhop.Event]:
        told: list[backhop.Event] = []
        while not told or told[-1].name != "parked":
            told.append(self.events.get(timeout=PATIENCE))
        return told

    def sample(self, name: str, **labels: str) -> float | None:
        value: float | None = self.registry.get_sample_value(name, labels)
        return value


def check(seen: Seen, queue: str, told: list[backhop.Event]) -> None:
    """Checks a message that failed twice with a TimeoutError, and was parked."""
    about = [event for event in told if event.id == "m1"]
    assert [(event.name, event.attempt) for event in about] == [
        ("delivered", 1),
        ("failed", 1),
        ("retried", 0),
        ("delivered", 2),
        ("failed", 2),
        ("parked", 0),
    ]
    assert {event.queue for event in about} == {queue}
    assert [event.error_class for event in about if event.name != "delivered"] == ["TimeoutError"] * 4
    assert about[1].error_text == "TimeoutError: late"
    assert about[1].duration is not None
    assert about[2].delay == 0.1
    assert about[3].lateness is not None
    assert 0 <= about[3].lateness < PATIENCE
    assert (about[5].reason, about[5].attempts) == ("exhausted", 2)
    assert isinstance(about[5].exception, TimeoutError)

    assert seen.sample("backhop_retries_total", queue=queue, error_type="TimeoutError") == 1
    assert seen.sample("backhop_parked_total", queue=queue, reason="exhausted") == 1
    assert seen.sample("messaging_process_duration_seconds_count", queue=queue, error_type="TimeoutError") == 2
    assert seen.sample("backhop_retry_lateness_seconds_count", queue=queue) == 1
    data: Any = seen.reader.get_metrics_data()
    names = {
        metric.name
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }
    assert names >= {"messaging.process.duration", "backhop.retries", "backhop.parked", "backhop.retry.lateness"}

    until(lambda: len(spans_of("park", queue)) == 1)
    first, second = spans_of("process", queue)
    assert f"{first.context.trace_id:032x}" == TRACEPARENT.split("-")[1]
    assert [event.name for event in first.events] == ["exception"]
    assert first.status.status_code is trace.StatusCode.ERROR
    (retried,), (parked,) = spans_of("retry", queue), spans_of("park", queue)
    assert (retried.parent.span_id, parked.parent.span_id) == (first.context.span_id, second.context.span_id)
    assert [link.context.span_id for link in second.links] == [first.context.span_id]


def spans_of(verb: str, queue: str) -> list[Any]:
    return [span for span in SPANS.get_finished_spans() if span.name == f"{verb} {queue}"]


POLICY = backhop.Policy(initial=0.1, jitter="none", max=0.1, max_attempts=2, max_retry_after=0)


@pytest.mark.parametrize("client", carriers("blocking", "select", "aio-pika"))
def test_a_message_that_fails_is_late_and_is_parked_is_seen(
    client: str,
    broker: Broker,
    namespace: str,
    instrumented: bool,
) -> None:
    queue, seen = broker.queue(), Seen()
    broker.publish(b"body", queue, message_id="m1", headers={"traceparent": TRACEPARENT})
    handler = Handler(TimeoutError("late"), TimeoutError("late"))
    with consuming(client, URL, queue, handler, policy=POLICY, namespace=namespace, on_event=seen.on_event):
        told = seen.until_parked()
    check(seen, queue, told)
    _, properties = broker.get(f"{queue}.parked")
    assert properties.headers["traceparent"] == TRACEPARENT
    assert properties.headers["backhop-traceparent"] != TRACEPARENT


ABOUT_CONNECTIONS = {"disconnected", "unavailable", "cancelled", "stale"}


def about_connections(events: list[backhop.Event]) -> list[tuple[str, str, int]]:
    return [(each.name, each.connection, each.count) for each in list(events) if each.name in ABOUT_CONNECTIONS]


@each_client
@pytest.mark.parametrize("consumes", ["by itself", "by its client"])
def test_a_connection_that_is_lost_with_copies_in_hand_is_told_once_with_their_number(
    client: str,
    consumes: str,
    broker: Broker,
    namespace: str,
    proxy: Proxy,
) -> None:
    queue, events = broker.queue(), list[backhop.Event]()

    def handle(message: backhop.Message) -> None:
        if not message.redelivered:
            until(lambda: broker.count(queue) == 0)  # the other one is on its way too
            proxy.hold()
            raise backhop.Park("why")

    options = {"policy": QUICK, "namespace": namespace, "on_event": events.append}
    with connected(client, proxy.url, queue, handle, **options) as consumer:
        consumer.declare()
        for _ in range(2):
            broker.publish(b"body", queue)
        consumer.begin_by_itself() if consumes == "by itself" else consumer.begin()
        until(lambda: consumer.retrier.pending == 2)
        proxy.cut()
        until(lambda: "disconnected" in [event.name for event in list(events)])
        proxy.release()
    told = [each for each in about_connections(events) if each[0] != "unavailable"]  # as aio-pika connects again
    assert told == [("disconnected", "consume", 2)]


@pytest.mark.parametrize("client", ["blocking", "aio-pika"])
def test_a_handler_that_a_program_calls_itself_is_timed_and_traced(
    client: str,
    broker: Broker,
    namespace: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    SPANS.clear()
    queue, seen = broker.queue(), Seen()
    broker.publish(b"body", queue, message_id="m1", headers={"traceparent": TRACEPARENT})

    def handle(message: backhop.Message) -> None:
        with monkeypatch.context() as patch:  # it waited for an hour, takes 8 s, and waits to be settled
            now = time.perf_counter() + 3600
            patch.setattr(time, "perf_counter", lambda: now)
            with consumer.retrier.handling(message):
                now += 8
                raise TimeoutError("late")

    options = {"policy": POLICY, "namespace": namespace, "on_event": seen.on_event}
    with connected(client, URL, queue, handle, **options) as consumer:
        consumer.declare()
        consumer.begin_together(1)
        told = [seen.events.get(timeout=PATIENCE) for _ in range(3)]
    assert [event.name for event in told] == ["delivered", "failed", "retried"]
    assert told[1].duration == 8
    (attempt,), (copy,) = spans_of("process", queue), spans_of("retry", queue)
    assert f"{attempt.context.trace_id:032x}" == TRACEPARENT.split("-")[1]
    assert copy.parent.span_id == attempt.context.span_id
    with pytest.raises(backhop.ArgumentTypeError, match="message is None: give a message of read"):
        consumer.retrier.handling(None)


@needs_worker
def test_what_a_worker_meets_is_seen(broker: Broker, namespace: str) -> None:
    SPANS.clear()
    queue, seen = broker.queue(), Seen()
    broker.publish(b"body", queue, message_id="m1", headers={"traceparent": TRACEPARENT})
    worker = backhop.Worker(
        URL, queue, POLICY, namespace=namespace, on_event=seen.on_event, retry_events=True, threads=1
    )
    with running(worker, Handler(TimeoutError("late"), TimeoutError("late"))):
        told = seen.until_parked()
    check(seen, queue, told)


AGEING = backhop.Policy(initial=60, max_age=1)


@needs_worker
@pytest.mark.parametrize(
    ("why", "error", "policy"),
    [
        ("exhausted", KeyError("mine"), QUICK),
        ("permanent", backhop.Park("mine"), QUICK),
        ("too-old", KeyError("mine"), AGEING),
    ],
)
def test_a_worker_that_hears_of_no_retry_tells_of_what_it_parks_with_the_exception(
    broker: Broker,
    namespace: str,
    why: str,
    error: Exception,
    policy: backhop.Policy,
) -> None:
    queue, told = broker.queue(), Queue[backhop.Event]()

    def handle(_: backhop.Message) -> None:
        raise error

    worker = backhop.Worker(URL, queue, policy, namespace=namespace, on_event=told.put)
    broker.publish(b"body", queue)
    with running(worker, handle):
        while (event := told.get(timeout=PATIENCE)).name != "parked":
            assert event.name != "retried"
        assert (event.reason, event.exception) == (why, error)
    assert not worker._settler.failures


@needs_worker
def test_a_worker_counts_once_for_all_metrics_from_start_to_start(broker: Broker, namespace: str) -> None:
    queue, parked = broker.queue(), threading.Semaphore(0)

    def on_event(event: backhop.Event) -> None:
        if event.name == "parked":
            parked.release()

    metrics, others = backhop.prometheus.Metrics(None), backhop.prometheus.Metrics(None)
    worker = backhop.Worker(URL, queue, POLICY, namespace=namespace, on_event=[metrics, on_event, others])
    handled = f'messaging_process_duration_seconds_count{{queue="{queue}",error_type="TimeoutError"}}'
    for times in (1, 2):
        broker.publish(b"body", queue)
        with running(worker, Handler(TimeoutError("late"), TimeoutError("late"))):
            assert parked.acquire(timeout=PATIENCE)
            for each in (metrics, others):  # while it runs
                assert f'backhop_consumers_ready{{queue="{queue}"}} 1\n' in each.text
                assert f"{handled} {2 * times}\n" in each.text
                assert f'backhop_parked_total{{queue="{queue}",reason="exhausted"}} {times}\n' in each.text
        assert f"{handled} {2 * times}\n" in metrics.text  # once it has stopped
        assert "backhop_copies_unconfirmed 0\n" in metrics.text
        assert f'backhop_consumers_ready{{queue="{queue}"}} 0\n' in metrics.text
        assert not worker._settler.failures


@needs_worker
def test_a_workers_metrics_count_what_succeeds_is_dropped_and_is_replayed(broker: Broker, namespace: str) -> None:
    queue, ended = broker.queue(), threading.Semaphore(0)
    metrics = backhop.prometheus.Metrics(None)

    def handle(message: backhop.Message) -> None:
        ended.release()
        if message.body == b"drop":
            raise backhop.Drop
        if message.body == b"park" and message.history.replays == 0:
            raise backhop.Park("for good")

    worker = backhop.Worker(URL, queue, POLICY, namespace=namespace, on_event=metrics)
    with running(worker, handle):
        for body in (b"park", b"drop", b"succeed"):
            broker.publish(body, queue)
            assert ended.acquire(timeout=PATIENCE)
        until(lambda: f'backhop_parked_total{{queue="{queue}",reason="permanent"}} 1\n' in metrics.text)
        assert worker.replay() == 1
        assert ended.acquire(timeout=PATIENCE)
        until(lambda: f'backhop_attempts_count{{queue="{queue}",outcome="succeeded"}} 2\n' in metrics.text)
    text = metrics.text
    assert f'backhop_attempts_count{{queue="{queue}",outcome="dropped"}} 1\n' in text
    assert f'backhop_replayed_total{{queue="{queue}"}} 1\n' in text
    assert f'messaging_process_duration_seconds_count{{queue="{queue}",error_type="Park"}} 1\n' in text


@needs_worker
def test_a_workers_events_and_spans_are_those_of_their_own_messages(broker: Broker, namespace: str) -> None:
    """Two messages may have one id, and some have none."""
    SPANS.clear()
    queue, seen = broker.queue(), Seen()
    for text, id_ in (("one", "twin"), ("two", "twin"), ("three", None)):
        broker.publish(text.encode(), queue, message_id=id_)

    def handle(message: backhop.Message) -> None:
        with gathered:
            waiting.append(message)
            gathered.notify_all()
            assert gathered.wait_for(lambda: len(waiting) >= 3, PATIENCE)
        raise LookupError(message.body.decode())

    gathered, waiting = threading.Condition(), list[backhop.Message]()
    policy = backhop.Policy(initial=600, max=600, jitter="none", max_retry_after=0)
    worker = backhop.Worker(URL, queue, policy, namespace=namespace, on_event=seen.on_event, retry_events=True)
    with running(worker, handle):
        retried: list[backhop.Event] = []
        while len(retried) < 3:
            event = seen.events.get(timeout=PATIENCE)
            retried += [event] if event.name == "retried" else []
    assert {str(event.exception) for event in retried} == {"one", "two", "three"}
    assert all(event.error_text == f"LookupError: {event.exception}" for event in retried)
    broker.delete([f"{namespace}.wait.600000"], [f"{namespace}.wait.600000"])
    attempts = {span.context.span_id for span in spans_of("process", queue)}
    assert {span.parent.span_id for span in spans_of("retry", queue)} == attempts
    assert len(attempts) == 3
