"""Metrics for Prometheus, by prometheus_client.

    metrics = backhop.prometheus.Metrics()     # once for the process, in the default registry
    retrier = backhop.pika.Retrier(channel, "cdn-purge", on_event=metrics)

One object serves any number of retriers and workers, also one after the other, for example after
each reconnect. Metrics have the core's names and buckets. Their labels are bounded, whatever
messages and handlers contain.
"""

from .observe.prometheus import Metrics

__all__ = ["Metrics"]
