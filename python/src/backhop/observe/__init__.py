"""Events, metrics and traces. Internal: import backhop.prometheus or backhop.opentelemetry."""
