"""Checks the options of a worker and gives them to the core."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from .. import _backhop as c
from .._amqp import Text
from .._checks import HOUR_MS, instance, legacy_header, queues, shortened, span_ms, truth, whole
from .._core import made, number
from .._errors import ArgumentError, ArgumentTypeError, NoLibrabbitmqError, error, in_seconds
from .._times import Seconds
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
) -> c.Worker:
    """Returns a worker of the core. Options and errors as Worker's."""
    result = c.bh_worker_new(topology.policy._handle, topology._handle)
    handle = made(result, _NO_LIBRABBITMQ, NoLibrabbitmqError)
    for one in _uris(uri):
        check_worker(handle, c.Worker_add_uri(handle, one))
    if ca_file is not None:
        check_worker(handle, c.Worker_set_ca_file(handle, _path("ca_file", ca_file)))
    if cert is not None or key is not None:
        certificate = "" if cert is None else _path("cert", cert)
        its_key = "" if key is None else _path("key", key)
        check_worker(handle, c.Worker_set_client_certificate(handle, certificate, its_key))
    check_worker(handle, c.Worker_set_mode(handle, number(MODES, mode, "mode")))
    check_worker(handle, c.Worker_set_fail_fast(handle, int(truth("fail_fast", fail_fast))))
    check_worker(handle, c.Worker_set_prefetch(handle, whole("prefetch", prefetch, 0, 65535)))
    check_worker(handle, c.Worker_set_handler_timeout_ms(handle, limit_ms))
    connect_ms = span_ms("connect_timeout", connect_timeout, 1, HOUR_MS)
    confirm_ms = span_ms("confirm_timeout", confirm_timeout, 1, HOUR_MS)
    check_worker(handle, c.Worker_set_timeouts_ms(handle, connect_ms, confirm_ms))
    if back_off is not None:
        instance("back_off", back_off, Policy, "give a backhop.Policy")
        check_worker(handle, c.Worker_set_back_off(handle, back_off._handle))
    if breaker is not None:
        check_worker(handle, c.Worker_set_breaker(handle, breaker))
    if legacy_counter is not None:
        header = legacy_header(legacy_counter)
        check_worker(handle, c.Worker_set_legacy_counter(handle, header))
    for wait_queue in queues("wait_queues", wait_queues):
        check_worker(handle, c.Worker_add_wait_queue(handle, wait_queue))
    return handle


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
