"""Traces and metrics for OpenTelemetry, by its API.

    # once for the process
    seen = [backhop.opentelemetry.Tracing(), backhop.opentelemetry.Metrics()]
    retrier = backhop.pika.Retrier(channel, "cdn-purge", on_event=seen)

Each attempt is a span ``process {queue}``, which links to the failed attempt before it. Its parent
is the publisher's span. The parent is the current span if that has the same trace, as an
instrumentation's has. It is the current span too if the message has no trace.

Each copy is a span ``retry {queue}`` or ``park {queue}`` from its publish to its confirm, a child
of its attempt. The copy's ``traceparent`` header stays the publisher's.
"""

from .observe.opentelemetry_metrics import Metrics
from .observe.opentelemetry_tracing import Tracing

__all__ = ["Metrics", "Tracing"]
