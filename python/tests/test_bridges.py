"""The bridges to prometheus_client and to OpenTelemetry, without a broker."""

from __future__ import annotations

import time
from typing import Any

import pytest
from live import needs_worker

import backhop
from backhop import _backhop as c
from backhop.delivery import Delivery
from backhop.history import History
from backhop.message import Message
from backhop.observe.events import Events
from backhop.topology import Topology

prometheus_client = pytest.importorskip("prometheus_client")
pytest.importorskip("opentelemetry.sdk")

from opentelemetry import propagate, trace  # noqa: E402
from opentelemetry.sdk.metrics import MeterProvider  # noqa: E402
from opentelemetry.sdk.metrics.export import InMemoryMetricReader  # noqa: E402
from opentelemetry.sdk.trace import TracerProvider  # noqa: E402
from opentelemetry.sdk.trace.export import SimpleSpanProcessor  # noqa: E402
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter  # noqa: E402

import backhop.opentelemetry  # noqa: E402
import backhop.prometheus  # noqa: E402

TRACE = "0af7651916cd43dd8448eb211c80319c"
TRACEPARENT = f"00-{TRACE}-b7ad6b7169203331-01"
FAILED = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01"


class Kept(Message):
    """A message that a client has read."""

    def __init__(self, headers: dict[str, Any], routing_key: str = "order.created", **properties: Any) -> None:
        Message.__init__(self, Topology("orders"))
        self.redelivered = False
        delivery = Delivery("events", routing_key, headers=headers, properties=properties)
        self._history = History(delivery, self._topology)


def parked(events: Events) -> None:
    events.emit(events.new(c.BH_EVENT_PARKED, {"id": "m1", "attempts": 3, "reason": "exhausted"}))


# --- Prometheus -----------------------------------------------------------------------------------


def test_a_registry_takes_one_metrics_object_and_no_metric_of_the_same_name() -> None:
    registry = prometheus_client.CollectorRegistry()
    backhop.prometheus.Metrics(registry)
    with pytest.raises(ValueError, match="backhop_parked"):
        backhop.prometheus.Metrics(registry)
    for make in (prometheus_client.Counter, prometheus_client.Gauge):
        with pytest.raises(ValueError, match="backhop_parked_total"):
            make("backhop_parked_total", "somebody else's", registry=registry)


def test_one_metric_can_be_asked_for_by_its_name() -> None:
    registry = prometheus_client.CollectorRegistry()
    parked(Events("orders", backhop.prometheus.Metrics(registry)))
    text = prometheus_client.generate_latest(registry.restricted_registry(["backhop_parked_total"])).decode()
    assert 'backhop_parked_total{queue="orders",reason="exhausted"} 1.0' in text


def test_what_is_described_is_what_is_collected() -> None:
    metrics = backhop.prometheus.Metrics(None)
    events = Events("orders", metrics)
    for kind in range(c.BH_EVENT_LAST):
        fields = {"attempt": 2, "attempts": 1, "lateness_ms": 1, "duration_us": 1, "recovery_ms": 1, "delay_ms": 1}
        events.emit(events.new(kind, {**fields, "count": 1, "breaker": "api"}))
    source = Source(0, [True])
    metrics.attach(source)
    described = {each.name: (each.type, each.documentation) for each in metrics.describe()}
    assert {each.name: (each.type, each.documentation) for each in metrics.collect()} == described
    assert len(described) == c.BH_METRIC_LAST


# --- Metrics of OpenTelemetry ---------------------------------------------------------------------


class OfQueue:
    """The base of sources: their consumers are ready, or not."""

    topology = Topology("orders")

    def __init__(self, readiness: list[bool] | None = None) -> None:
        self._readiness_of_consumers = readiness or []


class Source(OfQueue):
    def __init__(self, pending: int, readiness: list[bool] | None = None) -> None:
        super().__init__(readiness)
        self.pending = pending


class WorkerSource(OfQueue):
    _copies = 5


def values(reader: InMemoryMetricReader, name: str) -> list[float]:
    data: Any = reader.get_metrics_data()
    metrics = [
        metric
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name == name
    ]
    return [point.value for metric in metrics for point in metric.data.data_points]


def test_unconfirmed_copies_of_all_retriers_and_workers_add_up() -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    one, other = backhop.opentelemetry.Metrics(provider), backhop.opentelemetry.Metrics(provider)
    sources: list[Any] = [Source(3), Source(4), WorkerSource()]
    one.attach(sources[0])
    for each in sources:
        other.attach(each)
    assert values(reader, "backhop.copies.unconfirmed") == [12]
    parked(Events("orders", one))
    parked(Events("orders", other))
    assert values(reader, "backhop.parked") == [2]


def test_T3_the_ready_consumers_of_all_retriers_and_workers_add_up() -> None:
    reader = InMemoryMetricReader()
    opentelemetry = backhop.opentelemetry.Metrics(MeterProvider([reader]))
    prometheus = backhop.prometheus.Metrics(None)
    sources: list[Any] = [Source(0, [True, False]), Source(0, [True]), Source(0), WorkerSource([True])]
    for each in sources:
        opentelemetry.attach(each)
        prometheus.attach(each)
    assert values(reader, "backhop.consumers.ready") == [3]
    assert 'backhop_consumers_ready{queue="orders"} 2\n' in prometheus.text  # a worker's core has its own


def test_the_state_of_a_breaker_is_a_gauge() -> None:
    reader, prometheus = InMemoryMetricReader(), backhop.prometheus.Metrics(None)
    events = Events("orders", [prometheus, backhop.opentelemetry.Metrics(MeterProvider([reader]))])
    kinds = {c.BH_EVENT_BREAKER_OPENED: 2, c.BH_EVENT_BREAKER_HALF_OPEN: 1, c.BH_EVENT_BREAKER_CLOSED: 0}
    for kind, state in kinds.items():
        events.emit(events.new(kind, {"breaker": "api"}))
        assert values(reader, "backhop.breaker.state") == [state]
        assert f'backhop_breaker_state{{queue="orders",breaker="api"}} {state}\n' in prometheus.text


@needs_worker
def test_a_worker_is_asked_for_its_copies_by_opentelemetry_and_counts_them_itself_for_prometheus() -> None:
    reader = InMemoryMetricReader()
    prometheus = backhop.prometheus.Metrics(None)
    given = [prometheus, backhop.opentelemetry.Metrics(MeterProvider([reader]))]
    worker = backhop.Worker("amqp://localhost", "orders", on_event=given)
    assert values(reader, "backhop.copies.unconfirmed") == [worker._copies] == [0]
    assert values(reader, "backhop.consumers.ready") == [0]
    assert not prometheus._sources


# --- Traces ---------------------------------------------------------------------------------------


class Traced:
    def __init__(self, **options: Any) -> None:
        self.spans = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.spans))
        self.tracer = self.provider.get_tracer("a test")
        self.events = Events("orders", backhop.opentelemetry.Tracing(self.provider, **options))

    def attempt(self, message: Message, raised: BaseException | None = None) -> Any:
        """The span of an attempt."""

        def handle(_: Message) -> None:
            if raised:
                raise raised

        try:
            self.events.surrounded(handle)(message)
        except BaseException as error:
            assert error is raised
        else:
            assert raised is None
        (span,) = [each for each in self.spans.get_finished_spans() if each.name == "process orders"]
        return span


def trace_of(span: Any) -> str:
    return f"{span.context.trace_id:032x}"


def test_an_attempt_is_a_child_of_the_publishers_span() -> None:
    span = Traced().attempt(Kept({"traceparent": TRACEPARENT, "backhop-traceparent": FAILED}))
    assert (trace_of(span), f"{span.parent.span_id:016x}") == (TRACE, "b7ad6b7169203331")
    assert [f"{link.context.span_id:016x}" for link in span.links] == ["00f067aa0ba902b7"]


def test_a_span_that_was_current_at_start_up_swallows_no_message_of_another_trace() -> None:
    traced = Traced()
    with traced.tracer.start_as_current_span("start-up"):
        span = traced.attempt(Kept({"traceparent": TRACEPARENT}))
    assert (trace_of(span), f"{span.parent.span_id:016x}") == (TRACE, "b7ad6b7169203331")


@pytest.mark.parametrize("headers", [{}, {"traceparent": "00-zz"}, {"traceparent": b"\xff"}, {"traceparent": 7}])
def test_a_message_without_a_trace_belongs_to_the_current_span(headers: dict[str, Any]) -> None:
    traced = Traced()
    with traced.tracer.start_as_current_span("start-up") as current:
        span = traced.attempt(Kept(headers))
    assert span.parent.span_id == current.get_span_context().span_id


def test_an_instrumentations_span_stays_the_parent() -> None:
    traced = Traced()
    outer = propagate.extract({"traceparent": TRACEPARENT})
    with traced.tracer.start_as_current_span("receive", outer) as current:
        span = traced.attempt(Kept({"traceparent": TRACEPARENT}))
    assert span.parent.span_id == current.get_span_context().span_id


def test_an_attempt_has_the_attributes_that_are_known() -> None:
    span = Traced().attempt(Kept({"backhop-attempts": 2}, message_id="m1"))
    assert dict(span.attributes) == {
        "messaging.system": "rabbitmq",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "orders",
        "messaging.message.id": "m1",
        "messaging.rabbitmq.destination.routing_key": "order.created",
        "backhop.attempt": 3,
    }
    bare = dict(Traced().attempt(Kept({}, routing_key="")).attributes)
    assert not bare.keys() & {"messaging.message.id", "messaging.rabbitmq.destination.routing_key"}


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise LookupError("no words")


@pytest.mark.parametrize(("raised", "error_type", "description"), [
    (TimeoutError("late"), "TimeoutError", "TimeoutError: late"),
    (backhop.RetryAfter(3, ConnectionError("503")), "ConnectionError", "ConnectionError: 503"),
    (backhop.RetryAfter(3), "RetryAfter", None),
    (backhop.Park(KeyError("k")), "KeyError", "KeyError: 'k'"),
    (backhop.Park("why"), "Park", "Park: why"),
    (UnprintableError(), "UnprintableError", "UnprintableError"),
])  # fmt: skip
def test_an_attempt_that_failed_has_the_error_that_events_have(
    raised: BaseException, error_type: str, description: str | None
) -> None:
    span = Traced().attempt(Kept({}), raised)
    assert span.attributes["error.type"] == error_type == backhop.outcomes.class_of(raised)
    assert span.status.status_code is trace.StatusCode.ERROR
    assert description is None or span.status.description == description
    if not isinstance(raised, UnprintableError):
        assert [event.name for event in span.events] == ["exception"]
    span = Traced(failure_is_error=False).attempt(Kept({}), raised)
    assert span.attributes["error.type"] == error_type
    assert span.status.status_code is trace.StatusCode.UNSET


def test_what_is_dropped_has_no_error() -> None:
    span = Traced().attempt(Kept({}), backhop.Drop("done"))
    assert span.status.status_code is trace.StatusCode.UNSET
    assert not span.events
    assert "error.type" not in span.attributes


def test_a_copy_is_a_span_from_its_publish_to_its_confirm() -> None:
    traced = Traced()
    make = traced.events.new
    fields: dict[str, Any] = {"attempts": 2, "duration_us": 1500}
    retried = make(c.BH_EVENT_RETRIED, {**fields, "id": "m1", "delay_ms": 250})
    for event in (retried, make(c.BH_EVENT_PARKED, {**fields, "reason": "exhausted"})):
        traced.events.emit(event, None, TRACEPARENT)
    spans: Any = traced.spans.get_finished_spans()
    retry, park = spans
    assert (retry.name, park.name) == ("retry orders", "park orders")
    common = {"messaging.system": "rabbitmq", "messaging.operation.type": "send", "backhop.attempts": 2}
    common["messaging.destination.name"] = "orders"
    assert dict(retry.attributes) == {
        **common,
        "messaging.operation.name": "retry",
        "messaging.message.id": "m1",
        "backhop.delay": 0.25,
    }
    assert dict(park.attributes) == {**common, "messaging.operation.name": "park", "backhop.reason": "exhausted"}
    assert f"{park.parent.span_id:016x}" == "b7ad6b7169203331"
    assert retry.end_time - retry.start_time == 1_500_000
    assert retry.end_time <= time.time_ns()


def test_a_message_that_cannot_be_traced_is_handled_all_the_same(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> None:
        raise LookupError("a propagator's bug")

    monkeypatch.setattr(propagate, "extract", fail)
    handled: list[Message] = []
    events = Events("an untraceable queue", backhop.opentelemetry.Tracing())
    events.surrounded(handled.append)(Kept({}))
    assert len(handled) == 1
    assert 'a listener failed at delivered of "an untraceable queue": LookupError: a propagator\'s bug' in caplog.text
