"""Metrics for OpenTelemetry, by its API."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from opentelemetry.metrics import (
    CallbackOptions,
    MeterProvider,
    Observation,
    get_meter,
    get_meter_provider,
)

from .. import _backhop as c
from .._errors import check
from .metrics import add_consumers, blank, checked_error_types
from .observer import Observer

_SOURCES: WeakKeyDictionary[MeterProvider, WeakSet[Any]] = WeakKeyDictionary()
"""Retriers and workers of the gauges of a provider. It accepts one gauge of a name."""
_GLOBAL: list[WeakSet[Any]] = []
"""The sources of the global provider, which changes when it is set."""
_SHARED = threading.Lock()


class Metrics(Observer):
    """Counts events for OpenTelemetry: give it as ``on_event``, alone or in a list.

    Names and labels are the core's. One object serves any number of retriers and workers. If
    several objects have one provider, their counts add up.

    :param meter_provider: default: the global one.
    :param error_types: names of error classes to count apart, at most 32; default: the first 32
        that occur. All others are ``_OTHER``.
    :raises ArgumentError: if there are more than 32 names.
    """

    def __init__(
        self, meter_provider: MeterProvider | None = None, *, error_types: Iterable[str] = ()
    ) -> None:
        provider = get_meter_provider() if meter_provider is None else meter_provider
        meter = get_meter("backhop", c.bh_version(), provider)
        self._handle = blank(checked_error_types(error_types))
        self._lock = threading.Lock()
        self._sources, is_new = _sources_of(provider)
        self._instruments: list[Any] = []
        self._labels: list[tuple[str, ...]] = []
        for metric in range(c.BH_METRIC_LAST):
            _, name, unit, help_, kind, _, labels, buckets = c.bh_metric_describe(metric)
            about = {"unit": unit, "description": help_}
            if kind == c.BH_INSTRUMENT_COUNTER:
                self._instruments.append(meter.create_counter(name, **about).add)
            elif metric == c.BH_METRIC_BREAKER_STATE:
                self._instruments.append(meter.create_gauge(name, **about).set)
            elif kind == c.BH_INSTRUMENT_GAUGE:
                if is_new:
                    value = partial(_GAUGES[metric], self._sources)
                    meter.create_observable_gauge(name, [value], **about)
                self._instruments.append(None)  # no event has it
            else:
                histogram = meter.create_histogram(
                    name, **about, explicit_bucket_boundaries_advisory=list(buckets)
                )
                self._instruments.append(histogram.record)
            self._labels.append(labels)

    def attach(self, source: Any) -> None:
        """Connects it to a retrier or a worker that emits events from now on."""
        self._sources.add(source)

    def observe(self, event: c.Event, exception: BaseException | None, traceparent: str) -> None:
        """Counts an event."""
        handle = self._handle
        with self._lock:
            check(c.Metrics_observe(handle, event))
            for i in range(c.Metrics_sample_count(handle)):
                metric, value, *values = c.Metrics_sample(handle, i)
                self._instruments[metric](value, _attributes(self._labels[metric], values))


def _attributes(labels: tuple[str, ...], values: Iterable[str]) -> dict[str, str]:
    return {label: each for label, each in zip(labels, values, strict=False) if each}


def _sources_of(provider: MeterProvider) -> tuple[WeakSet[Any], bool]:
    """Returns the sources of a provider, and whether it has no gauges of them yet."""
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
    """Returns the gauge of copies that are not confirmed, of retriers and of workers."""
    return [
        Observation(
            sum(
                source.pending if hasattr(source, "pending") else source._copies
                for source in list(sources)
            )
        )
    ]


def _ready(sources: WeakSet[Any], _: CallbackOptions) -> Iterable[Observation]:
    """Returns the gauge of ready consumers, for each queue."""
    counts = blank(())
    labels = c.bh_metric_describe(c.BH_METRIC_CONSUMERS_READY)[6]
    found: dict[str, Observation] = {}
    for source in list(sources):
        add_consumers(counts, source)
        for i in range(c.Metrics_sample_count(counts)):  # the last one has the sum
            value, *values = c.Metrics_sample(counts, i)[1:]
            found[values[0]] = Observation(int(value), _attributes(labels, values))
    return list(found.values())


_GAUGES = {c.BH_METRIC_COPIES_UNCONFIRMED: _unconfirmed, c.BH_METRIC_CONSUMERS_READY: _ready}
