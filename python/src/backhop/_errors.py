"""One exception class for each status of the core, and the one place that raises them."""

from __future__ import annotations

import re

from . import _backhop as c


class Error(Exception):
    """The base class of Backhop's errors."""

    code: str = ""
    """The core's name of the status, for example ``"BH_ERR_POLICY"``."""
    status: int = 0
    """The core's number of the status."""


class OutOfMemoryError(Error, MemoryError):
    """Memory could not be allocated; nothing was changed."""


class ArgumentError(Error, ValueError):
    """An argument is missing or out of its range."""


class ArgumentTypeError(ArgumentError, TypeError):
    """An argument has a wrong type."""


class PoisonError(Error):
    """The message waits, or is parked, because its consumers were lost too often.

    See Policy's max_crashes.
    """


class StateError(Error, RuntimeError):
    """Called at the wrong time: before starting, after stopping, or twice."""


class PolicyError(Error, ValueError):
    """The policy cannot be used; the text names the field and what to do."""


class InvalidNameError(Error, ValueError):
    """A name is empty, too long (a work queue's: 247 bytes), not UTF-8, or begins with ``amq.``."""


class StrategyError(Error, ValueError):
    """The strategy cannot serve this policy; the text names one that does."""


class BrokerError(Error):
    """The broker cannot serve this strategy; the text names one that it can."""


class FrameError(Error):
    """The message's own headers do not fit the connection's frame_max.

    Publish over a larger one.
    """


class URIError(Error, ValueError):
    """The URI is not of the form ``amqp[s]://user:password@host:port/vhost?heartbeat=seconds``."""


class NoLibrabbitmqError(Error, RuntimeError):
    """This Backhop was built without librabbitmq. The worker needs it; the adapters do not."""


class ConnectionFailedError(Error, ConnectionError):
    """The broker could not be reached, or the connection was lost."""


class TLSError(Error, ConnectionError):
    """TLS failed: check the CA file, the certificate's host name and the port."""


class AccessError(Error):
    """The broker refused the user, its password, the vhost or a permission."""


class ClashError(Error):
    """An exchange or queue exists with other arguments; the text has the remedy."""


class MissingError(Error):
    """An exchange or queue does not exist; the text names it."""


class PublishError(Error):
    """A publish was returned, nacked or not confirmed in time.

    The original stays unacknowledged.
    """


class ConsumerCancelledError(Error):
    """The broker cancelled the consumer: queue deleted, or a message held too long."""


class WaitTimeoutError(Error, TimeoutError):
    """Nothing arrived in the time given."""


class ChannelClosedError(Error):
    """The broker closed the channel; the text holds its reply code and text."""


class ForkedError(Error, RuntimeError):
    """The process forked after this object was made: make a new one in the child."""


class ContentError(Error):
    """The message's own properties are malformed: it stays unacknowledged.

    Move or remove it by hand.
    """


class ForeignPolicyError(Error):
    """The topology lacks a rung of this policy: add the policy to its policies."""


CLASSES: dict[str, type[Error]] = {
    "BH_ERR_NO_MEMORY": OutOfMemoryError,
    "BH_ERR_ARGUMENT": ArgumentError,
    "BH_ERR_STATE": StateError,
    "BH_ERR_POLICY": PolicyError,
    "BH_ERR_NAME": InvalidNameError,
    "BH_ERR_STRATEGY": StrategyError,
    "BH_ERR_BROKER": BrokerError,
    "BH_ERR_FRAME": FrameError,
    "BH_ERR_URI": URIError,
    "BH_ERR_NO_LIBRABBITMQ": NoLibrabbitmqError,
    "BH_ERR_CONNECTION": ConnectionFailedError,
    "BH_ERR_TLS": TLSError,
    "BH_ERR_ACCESS": AccessError,
    "BH_ERR_CLASH": ClashError,
    "BH_ERR_MISSING": MissingError,
    "BH_ERR_PUBLISH": PublishError,
    "BH_ERR_CANCELLED": ConsumerCancelledError,
    "BH_ERR_TIMEOUT": WaitTimeoutError,
    "BH_ERR_CHANNEL": ChannelClosedError,
    "BH_ERR_FORKED": ForkedError,
    "BH_ERR_CONTENT": ContentError,
    "BH_ERR_FOREIGN_POLICY": ForeignPolicyError,
}
_status = -1
while _name := c.bh_status_name(_status):
    if _name in CLASSES:
        CLASSES[_name].code, CLASSES[_name].status = _name, _status
    _status -= 1


def error(status: int, detail: str = "", only: type[Error] = Error) -> Error:
    """Returns the exception for a failed status.

    :param detail: a text that is more precise than the core's sentence.
    :param only: the class that the detail applies to.
    """
    raised = CLASSES.get(c.bh_status_name(status), Error)
    return raised(detail if detail and issubclass(raised, only) else c.bh_status_text(status))


def check(status: int, detail: str = "", only: type[Error] = Error) -> None:
    """Raises if the status is a failure. Parameters as error's."""
    if status:
        raise error(status, detail, only)


_NAMED_MS = re.compile(r"\b([a-z_]+)_ms\b(?:( is)? (-?\d+)( ms)?)?")
_MS = re.compile(r"\b(is|within|for) (\d+) ms\b")


def in_seconds(text: str) -> str:
    """Returns a sentence of the core in seconds: ``max_ms 1500`` becomes ``max 1.5 s``."""

    def named(found: re.Match[str]) -> str:
        name, verb, ms, _ = found.groups()
        return f"{name}{verb or ''} {int(ms) / 1000:g} s" if ms else name

    return _MS.sub(
        lambda found: f"{found[1]} {int(found[2]) / 1000:g} s", _NAMED_MS.sub(named, text)
    )
