"""Checks the options of a worker and gives them to the core."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from .. import _backhop as c
from .._amqp import Text
from .._checks import HOUR_MS, instance, queues, shortened, span_ms, truth, whole
from .._core import made, number
from .._errors import ArgumentError, ArgumentTypeError, NoLibrabbitmqError, error, in_seconds
from .._times import Seconds
from ..history import new_history
from ..policy import Policy
from ..topology import MODES, Mode, Topology

_NO_LIBRABBITMQ = (
    "this Backhop was built without librabbitmq, which its Worker needs (backhop.pika and "
    "backhop.aio_pika do not): "
    "install librabbitmq 0.11 or newer and pkg-config (Debian and Ubuntu: librabbitmq-dev "
    "pkg-config, Fedora: "
    "librabbitmq-devel pkgconf, Homebrew: rabbitmq-c pkgconf), then: "
    "pip install --force-reinstall --no-cache-dir --no-binary backhop backhop"
)


def check_worker(worker: c.Worker, status: int) -> None:
    """Raises the worker's error if the status is a failure."""
    if status:
        raise error(status, in_seconds(c.Worker_error(worker)))


def new_worker(
    topology: Topology,
    uri: Text | Iterable[Text],
    *,
    prefetch: int,
    mode: Mode,
    ca_file: str | os.PathLike[str] | None,
    cert: str | os.PathLike[str] | None,
    key: str | os.PathLike[str] | None,
    connect_timeout: Seconds,
    confirm_timeout: Seconds,
    back_off: Policy | None,
    fail_fast: bool,
    breaker: c.Breaker | None,
    limit_ms: int,
    legacy_counter: Text | None,
    wait_queues: Iterable[Text],
) -> tuple[c.Worker, Callable[[int], int]]:
    """Returns a worker of the core, and a function that sets it again before a run.

    Options and errors as Worker's. The function's argument: 1 if the worker emits an event for each
    retry.
    """
    result = c.bh_worker_new(topology.policy._handle, topology._handle)
    handle = made(result, _NO_LIBRABBITMQ, NoLibrabbitmqError)
    for one in _uris(uri):
        check_worker(handle, c.Worker_add_uri(handle, one))
    if back_off is not None:
        instance("back_off", back_off, Policy, "give a backhop.Policy")
    configure = partial(
        c.Worker_set,
        handle,
        number(MODES, mode, "mode"),
        whole("prefetch", prefetch, 0, 65535),
        span_ms("connect_timeout", connect_timeout, 1, HOUR_MS),
        span_ms("confirm_timeout", confirm_timeout, 1, HOUR_MS),
        limit_ms,
        None if back_off is None else back_off._handle,
        new_history(legacy_counter, queues("wait_queues", wait_queues)),
        "" if ca_file is None else _path("ca_file", ca_file),
        "" if cert is None else _path("cert", cert),
        "" if key is None else _path("key", key),
        breaker,
        int(truth("fail_fast", fail_fast)),
    )
    check_worker(handle, configure(0))
    return handle, configure


def _uris(given: Text | Iterable[Text]) -> tuple[Text, ...]:
    many = (given,) if isinstance(given, str | bytes) else given
    if isinstance(many, Mapping) or not isinstance(many, Iterable):
        raise ArgumentTypeError(
            f"uri is {shortened(given)}: give amqp://user:password@host:port/vhost, or a list of "
            "such"
        )
    uris = tuple(many)
    for each in uris:
        if not isinstance(each, str | bytes):
            raise ArgumentTypeError(
                f"a URI is {shortened(each)}: give amqp://user:password@host:port/vhost"
            )
    if not uris:
        raise ArgumentError("uri is an empty list: give amqp://user:password@host:port/vhost")
    return uris


def _path(name: str, given: object) -> Text:
    try:
        path: Text = os.fspath(given)  # type: ignore[call-overload]
    except TypeError:
        raise ArgumentTypeError(f"{name} is {shortened(given)}: give a path") from None
    if not path:
        raise ArgumentError(f"{name} is {given!r}: give a path, or leave it out")
    return path
