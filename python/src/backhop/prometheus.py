"""Metrics for Prometheus, by prometheus_client.

    metrics = backhop.prometheus.Metrics()                    # once for the process, in the default registry
    retrier = backhop.pika.Retrier(channel, "cdn-purge", on_event=metrics)

One object serves any number of retriers and workers, also one after the other, as after each reconnect. What it counts
has the core's names and buckets, and its labels are bounded, whatever messages and handlers say.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from weakref import WeakSet

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from . import _backhop as c
from ._errors import check
from .event import Counter

__all__ = ["Metrics"]

_TYPES = {
    c.BH_INSTRUMENT_COUNTER: "counter",
    c.BH_INSTRUMENT_GAUGE: "gauge",
    c.BH_INSTRUMENT_HISTOGRAM: "histogram",
}


class Metrics(Counter, Collector):
    """What events add up to: give it as ``on_event``, alone or in a list. It counts in this process alone:
    prometheus_client's multiprocess mode does not collect it.

    :param registry: where it is collected; None: nowhere, until you register it
    :param error_types: the classes of errors that are told apart, by their names, at most 32; default: the first 32
        that are seen. Any other is ``_OTHER``
    :raises ArgumentError: for more of these
    :raises ValueError: the registry has such metrics already: one object serves all
    """

    def __init__(self, registry: CollectorRegistry | None = REGISTRY, *, error_types: Iterable[str] = ()) -> None:
        super().__init__(error_types)
        self._sources: WeakSet[Any] = WeakSet()
        if registry is not None:
            registry.register(self)

    def attach(self, source: Any) -> None:
        """A retrier or a worker tells it its events from now on."""
        if hasattr(source, "pending"):  # a retrier: the core of a worker counts its own
            self._sources.add(source)

    @property
    def text(self) -> str:
        """All of it in Prometheus' text format."""
        pending = sum(source.pending for source in list(self._sources))
        check(c.Metrics_set(self.counts, c.BH_METRIC_COPIES_UNCONFIRMED, pending))
        return c.Metrics_text(self.total())

    def collect(self) -> Iterable[Metric]:
        """For prometheus_client."""
        return text_string_to_metric_families(self.text)

    def describe(self) -> Iterable[Metric]:
        """For prometheus_client: what it is going to collect, so that nothing else has these names."""
        for metric in range(c.BH_METRIC_LAST):
            kind = _TYPES[c.bh_metric_instrument(metric)]
            name = c.bh_metric_name(metric)
            name = name.removesuffix("_total") if kind == "counter" else name
            yield Metric(name, c.bh_metric_help(metric), kind)
