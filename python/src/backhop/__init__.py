"""Retries for RabbitMQ consumers: later each time, only to the queue that failed, never lost.

    policy = backhop.Policy(initial=10, factor=3, max=3600, jitter=0.2, max_attempts=8)
    policy.preview()                                # prints as a table, and is data

Over the client that you have, see backhop.pika and backhop.aio_pika; or let the worker do it all:

    worker = backhop.Worker("amqp://localhost", queue="cdn-purge", policy=policy, threads=8)
    worker.run(handle)                              # returns: ack; raises: later

A handler that returns acknowledges its message; one that raises sees it again, later. It may raise

    RetryAfter(30)      not before 30 seconds
    Throttled(30)       the same, but this was no attempt
    Park("why")         never again: park it, for a person to look at
    Drop()              nobody needs it any more

Times are seconds: int, float or timedelta.
"""

from ._amqp import Typed
from ._backhop import bh_version as _version
from ._build import BuildInfo, build_info
from ._errors import (
    AccessError,
    ArgumentError,
    ArgumentTypeError,
    BrokerError,
    ChannelClosedError,
    ClashError,
    ConnectionFailedError,
    ConsumerCancelledError,
    ContentError,
    Error,
    ForeignPolicyError,
    ForkedError,
    FrameError,
    InvalidNameError,
    MissingError,
    NoLibrabbitmqError,
    OutOfMemoryError,
    PoisonError,
    PolicyError,
    PublishError,
    StateError,
    StrategyError,
    TLSError,
    URIError,
    WaitTimeoutError,
)
from .breaker import Breaker
from .delivery import Delivery
from .explanation import explain
from .history import Death, DeathPlace, History
from .message import Message
from .observe.event import Event
from .outcomes import Drop, Park, RetryAfter, Throttled
from .plan import Plan
from .policy import Policy
from .preview import Preview, PreviewRow
from .topology import Declaration, Topology
from .worker import Worker

__version__ = _version()

__all__ = [
    "AccessError",
    "ArgumentError",
    "ArgumentTypeError",
    "Breaker",
    "BrokerError",
    "BuildInfo",
    "ChannelClosedError",
    "ClashError",
    "ConnectionFailedError",
    "ConsumerCancelledError",
    "ContentError",
    "Death",
    "DeathPlace",
    "Declaration",
    "Delivery",
    "Drop",
    "Error",
    "Event",
    "ForeignPolicyError",
    "ForkedError",
    "FrameError",
    "History",
    "InvalidNameError",
    "Message",
    "MissingError",
    "NoLibrabbitmqError",
    "OutOfMemoryError",
    "Park",
    "Plan",
    "PoisonError",
    "Policy",
    "PolicyError",
    "Preview",
    "PreviewRow",
    "PublishError",
    "RetryAfter",
    "StateError",
    "StrategyError",
    "TLSError",
    "Throttled",
    "Topology",
    "Typed",
    "URIError",
    "WaitTimeoutError",
    "Worker",
    "build_info",
    "explain",
]
