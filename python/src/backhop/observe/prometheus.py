"""Metrics for Prometheus, by prometheus_client.

    metrics = backhop.prometheus.Metrics()     # once for the process, in the default registry
    retrier = backhop.pika.Retrier(channel, "cdn-purge", on_event=metrics)

One object serves any number of retriers and workers, also one after the other, for example after
each reconnect. Metrics have the core's names and buckets. Their labels are bounded, whatever
messages and handlers contain.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from weakref import WeakSet

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from .. import _backhop as c
from .._core import names
from .._errors import check
from .metrics import Counter, add_consumers

__all__ = ["Metrics"]

_TYPES = names("BH_INSTRUMENT_")


class Metrics(Counter, Collector):
    """Counts events for Prometheus: give it as ``on_event``, alone or in a list.

    It counts in this process alone: prometheus_client's multiprocess mode does not collect it.

    :param registry: collects it; None: no registry, until you register it
    :param error_types: names of error classes to count apart, at most 32; default: the first 32
        that occur. All others have the label ``_OTHER``
    :raises ArgumentError: if there are more than 32 names
    :raises ValueError: if the registry has such metrics already: use one object for all
    """

    def __init__(
        self, registry: CollectorRegistry | None = REGISTRY, *, error_types: Iterable[str] = ()
    ) -> None:
        super().__init__(error_types)
        self._sources: WeakSet[Any] = WeakSet()
        if registry is not None:
            registry.register(self)

    def attach(self, source: Any) -> None:
        """Connects it to a retrier or a worker that emits events from now on."""
        if hasattr(source, "pending"):  # a retrier: a worker's core has its own gauges
            self._sources.add(source)

    @property
    def text(self) -> str:
        """All metrics in Prometheus' text format."""
        sources = list(self._sources)
        pending = sum(source.pending for source in sources)
        check(c.Metrics_set(self.counts, c.BH_METRIC_COPIES_UNCONFIRMED, pending))
        total = self.total()
        for source in sources:
            add_consumers(total, source)
        return c.Metrics_text(total)

    def collect(self) -> Iterable[Metric]:
        """Returns all metrics, for prometheus_client."""
        return text_string_to_metric_families(self.text)

    def describe(self) -> Iterable[Metric]:
        """Returns the names that it collects, so that prometheus_client keeps them unique."""
        for metric in range(c.BH_METRIC_LAST):
            name, _, _, help_, instrument, *_ = c.bh_metric_describe(metric)
            kind = _TYPES[instrument]
            name = name.removesuffix("_total") if kind == "counter" else name
            yield Metric(name, help_, kind)
