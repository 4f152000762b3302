"""Traces for OpenTelemetry, by its API. The facade backhop.opentelemetry describes the spans."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from opentelemetry import context, propagate, trace
from opentelemetry.trace import Link, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from .. import _backhop as c
from .._checks import truth
from .._exceptions import text_of
from ..message import Message
from ..outcomes import Drop, class_of, met
from .observer import Observer

_W3C = TraceContextTextMapPropagator()
_COPIES = {
    c.BH_EVENT_RETRIED: "retry",
    c.BH_EVENT_DEFERRED: "defer",
    c.BH_EVENT_PARKED: "park",
}


class Tracing(Observer):
    """Makes spans of attempts and of copies: give it as ``on_event``, alone or in a list.

    If you call a handler yourself, after ``read``, use ``with retrier.handling(message):``.

    :param tracer_provider: default: the global one.
    :param failure_is_error: whether the span of a failed attempt has the status error. It records
        the exception in any case.
    """

    def __init__(
        self, tracer_provider: trace.TracerProvider | None = None, *, failure_is_error: bool = True
    ) -> None:
        self._tracer = trace.get_tracer("backhop", c.bh_version(), tracer_provider)
        self._failure_is_error = truth("failure_is_error", failure_is_error)

    def handling(self, message: Message) -> AbstractContextManager[object]:
        """Returns the span of an attempt."""
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
            span.set_status(Status(StatusCode.ERROR, text_of(error)))
        span.record_exception(error)  # last, because it raises if the exception cannot be printed

    def observe(self, event: c.Event, exception: BaseException | None, traceparent: str) -> None:
        """Makes the span of a confirmed copy."""
        verb = _COPIES.get(c.Event_what(event))
        if verb is None:
            return
        attempt = _span_context(traceparent)
        parent = (
            trace.set_span_in_context(trace.NonRecordingSpan(attempt))
            if attempt
            else context.Context()
        )
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
        self._tracer.start_span(
            f"{verb} {queue}", parent, SpanKind.PRODUCER, attributes, start_time=start
        ).end(end)


def _parent(headers: dict[str, Any]) -> context.Context | None:
    """Returns the parent of an attempt's span, by the headers of its message.

    None: the current span.
    """
    carrier = {name: value for name, value in headers.items() if isinstance(value, str)}
    theirs = propagate.extract(carrier, context.Context())
    publisher = trace.get_current_span(theirs).get_span_context()
    current = trace.get_current_span().get_span_context()
    is_ours = current.is_valid and (
        not publisher.is_valid or current.trace_id == publisher.trace_id
    )
    return None if is_ours else theirs


def _span_context(traceparent: str) -> trace.SpanContext | None:
    """Returns the span of a traceparent in W3C's form; None for none."""
    if not traceparent:
        return None
    outer = _W3C.extract({"traceparent": traceparent}, context.Context())
    found = trace.get_current_span(outer).get_span_context()
    return found if found.is_valid else None


def _traceparent(span: trace.Span) -> str:
    """Returns a span in W3C's form; "" if it is invalid."""
    carrier: dict[str, str] = {}
    _W3C.inject(carrier, trace.set_span_in_context(span, context.Context()))
    return carrier.get("traceparent", "")
