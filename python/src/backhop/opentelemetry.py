"""Traces and metrics for OpenTelemetry, by its API.

    seen = [backhop.opentelemetry.Tracing(), backhop.opentelemetry.Metrics()]          # once for the process
    retrier = backhop.pika.Retrier(channel, "cdn-purge", on_event=seen)

Each attempt is a span ``process {queue}``, a child of the publisher's; or of the span that is current, where that is of
the same trace, as an instrumentation's is, or the message has no trace of its own. It is linked to the attempt that
failed before it. Each copy is a span ``retry {queue}`` or ``park {queue}`` from its publish to its confirm, a child of
its attempt. The copy's ``traceparent`` stays the publisher's.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Iterable
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakSet

from opentelemetry import context, propagate, trace
from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation, get_meter, get_meter_provider
from opentelemetry.trace import Link, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from . import _backhop as c
from ._checks import truth
from ._errors import check
from .event import Observer, blank, checked_error_types, class_of, met
from .outcomes import Drop, story

if TYPE_CHECKING:
    from .message import Message

__all__ = ["Metrics", "Tracing"]

_W3C = TraceContextTextMapPropagator()
_COPIES = {c.BH_EVENT_RETRIED: "retry", c.BH_EVENT_PARKED: "park"}


class Tracing(Observer):
    """Spans of attempts and of copies: give it as ``on_event``, alone or in a list.

    A handler that you call yourself, after ``read``, runs in it by ``with retrier.handling(message):``.

    :param tracer_provider: default: the global one
    :param failure_is_error: whether the span of an attempt that failed has the status error. The exception is on it in
        any case
    """

    def __init__(self, tracer_provider: trace.TracerProvider | None = None, *, failure_is_error: bool = True) -> None:
        self._tracer = trace.get_tracer("backhop", c.bh_version(), tracer_provider)
        self._failure_is_error = truth("failure_is_error", failure_is_error)

    def handling(self, message: Message) -> AbstractContextManager[object]:
        """The span of an attempt."""
        return self._handling(message)

    @contextmanager
    def _handling(self, message: Message) -> Generator[None, None, None]:
        failed = _span_context(message.history.traceparent)
        attributes: dict[str, str | int] = {
            "messaging.system": "rabbitmq",
            "messaging.operation.type": "process",
            "messaging.operation.name": "process",
            "messaging.destination.name": message.queue,
            "backhop.attempt": message.attempt,
        }
        if message.id:
            attributes["messaging.message.id"] = message.id
        if message.routing_key:
            attributes["messaging.rabbitmq.destination.routing_key"] = message.routing_key
        with self._tracer.start_as_current_span(
            f"process {message.queue}",
            _parent(message.headers),
            SpanKind.CONSUMER,
            attributes,
            [Link(failed)] if failed else None,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            message._traceparent = _traceparent(span)
            try:
                yield
            except Drop:
                raise
            except BaseException as error:
                self._failed(span, met(error))
                raise

    def _failed(self, span: trace.Span, error: BaseException) -> None:
        span.set_attribute("error.type", class_of(error))
        if self._failure_is_error:
            span.set_status(Status(StatusCode.ERROR, story(error)))
        span.record_exception(error)  # the last, as it raises where the exception cannot be printed

    def observe(self, event: c.Event, exception: BaseException | None, traceparent: str) -> None:
        """The span of a copy that is safe."""
        verb = _COPIES.get(c.Event_what(event))
        if verb is None:
            return
        attempt = _span_context(traceparent)
        parent = trace.set_span_in_context(trace.NonRecordingSpan(attempt)) if attempt else context.Context()
        queue, end = c.Event_string(event, c.BH_FIELD_QUEUE), time.time_ns()
        attributes: dict[str, str | int | float] = {
            "messaging.system": "rabbitmq",
            "messaging.operation.type": "send",
            "messaging.operation.name": verb,
            "messaging.destination.name": queue,
            "backhop.attempts": c.bh_event_int(event, c.BH_FIELD_ATTEMPTS),
        }
        if id_ := c.Event_string(event, c.BH_FIELD_ID):
            attributes["messaging.message.id"] = id_
        if verb == "park":
            attributes["backhop.reason"] = c.Event_string(event, c.BH_FIELD_REASON)
        else:
            attributes["backhop.delay"] = c.bh_event_int(event, c.BH_FIELD_DELAY) / 1000
        start = end - 1000 * c.bh_event_int(event, c.BH_FIELD_DURATION)
        self._tracer.start_span(f"{verb} {queue}", parent, SpanKind.PRODUCER, attributes, start_time=start).end(end)


_SOURCES: WeakKeyDictionary[MeterProvider, WeakSet[Any]] = WeakKeyDictionary()
"""Retriers and workers whose unconfirmed copies a provider is told: it takes one gauge of a name."""
_GLOBAL: list[WeakSet[Any]] = []
"""Those of the global provider, which is another one before it is set than after."""
_SHARED = threading.Lock()


class Metrics(Observer):
    """What events add up to: give it as ``on_event``, alone or in a list. Names and labels are the core's. One object
    serves any number of retriers and workers; what several of one provider count adds up.

    :param meter_provider: default: the global one
    :param error_types: the classes of errors that are told apart, by their names, at most 32; default: the first 32
        that are seen. Any other is ``_OTHER``
    :raises ArgumentError: for more of these
    """

    def __init__(self, meter_provider: MeterProvider | None = None, *, error_types: Iterable[str] = ()) -> None:
        provider = get_meter_provider() if meter_provider is None else meter_provider
        meter = get_meter("backhop", c.bh_version(), provider)
        self._handle = blank(checked_error_types(error_types))
        self._lock = threading.Lock()
        self._sources, is_new = _sources_of(provider)
        self._instruments: list[Any] = []
        self._labels: list[list[str]] = []
        for metric in range(c.BH_METRIC_LAST):
            name, kind = c.bh_metric_otel_name(metric), c.bh_metric_instrument(metric)
            about = {"unit": c.bh_metric_unit(metric), "description": c.bh_metric_help(metric)}
            if kind == c.BH_INSTRUMENT_COUNTER:
                self._instruments.append(meter.create_counter(name, **about).add)
            elif kind == c.BH_INSTRUMENT_GAUGE:
                if is_new:
                    meter.create_observable_gauge(name, [partial(_unconfirmed, self._sources)], **about)
                self._instruments.append(None)  # no event tells it
            else:
                buckets = [c.bh_metric_bucket(metric, i) for i in range(c.bh_metric_bucket_count(metric))]
                histogram = meter.create_histogram(name, **about, explicit_bucket_boundaries_advisory=buckets)
                self._instruments.append(histogram.record)
            self._labels.append([c.bh_metric_otel_label(metric, i) for i in range(c.bh_metric_label_count(metric))])

    def attach(self, source: Any) -> None:
        """A retrier or a worker tells it its events from now on."""
        self._sources.add(source)

    def observe(self, event: c.Event, exception: BaseException | None, traceparent: str) -> None:
        """Counts it."""
        handle = self._handle
        with self._lock:
            check(c.Metrics_observe(handle, event))
            for i in range(c.Metrics_sample_count(handle)):
                metric = c.Metrics_sample_metric(handle, i)
                values = ((label, c.Metrics_sample_label(handle, i, j)) for j, label in enumerate(self._labels[metric]))
                attributes = {label: value for label, value in values if value}
                self._instruments[metric](c.Metrics_sample_value(handle, i), attributes)


def _sources_of(provider: MeterProvider) -> tuple[WeakSet[Any], bool]:
    """Whose copies a provider is told, and whether it has no gauge of them yet."""
    with _SHARED:
        found = _SOURCES.get(provider)
        is_global = provider is get_meter_provider()
        if found is not None:
            return found, False
        is_new = not (is_global and _GLOBAL)
        sources: WeakSet[Any] = WeakSet() if is_new else _GLOBAL[0]
        _SOURCES[provider] = sources
        if is_global and is_new:
            _GLOBAL.append(sources)
        return sources, is_new


def _unconfirmed(sources: WeakSet[Any], _: CallbackOptions) -> Iterable[Observation]:
    """The one gauge that there is: copies that are not confirmed, of retriers and of workers."""
    return [
        Observation(sum(source.pending if hasattr(source, "pending") else source._copies for source in list(sources)))
    ]


def _parent(headers: dict[str, Any]) -> context.Context | None:
    """Whose child an attempt's span is, by the headers of its message; None: the current span's."""
    carrier = {name: value for name, value in headers.items() if isinstance(value, str)}
    theirs = propagate.extract(carrier, context.Context())
    publisher = trace.get_current_span(theirs).get_span_context()
    current = trace.get_current_span().get_span_context()
    is_ours = current.is_valid and (not publisher.is_valid or current.trace_id == publisher.trace_id)
    return None if is_ours else theirs


def _span_context(traceparent: str) -> trace.SpanContext | None:
    """Of W3C's form; None for none."""
    if not traceparent:
        return None
    outer = _W3C.extract({"traceparent": traceparent}, context.Context())
    found = trace.get_current_span(outer).get_span_context()
    return found if found.is_valid else None


def _traceparent(span: trace.Span) -> str:
    """A span in W3C's form; "" where it is none."""
    carrier: dict[str, str] = {}
    _W3C.inject(carrier, trace.set_span_in_context(span, context.Context()))
    return carrier.get("traceparent", "")
