"""Declares or verifies a topology: yields the core's steps for a client to execute."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

from .. import _backhop as c
from .._amqp import Text
from .._core import made
from .._errors import ChannelClosedError, Error, check, error, in_seconds
from ..topology import MODES, Declaration, Mode, Topology, declaration

CONSUME_ARGUMENTS: dict[str, Any] = {"x-priority": 0}
"""The arguments of a consumer, which a stream refuses: BH_CONSUME_ARGUMENT of declaring.h."""

CLOSED = "the connection is closed"
"""The text of the error of a call on a closed connection."""


class Step(NamedTuple):
    """Something to declare; passive: only to check that it exists; unbind: a binding to remove."""

    declaration: Declaration
    passive: bool
    unbind: bool


class Refusal(NamedTuple):
    """The broker's reply code and text, if a step closed the channel or the connection.

    The next step needs a new channel.
    """

    code: int
    text: str


Steps: TypeAlias = Generator[Step, Refusal | None, None]
"""Yields a step and takes its refusal, or None. Raises the error for the user."""


def check_broker(topology: Topology, server_properties: Mapping[str, Any] | None) -> None:
    """Checks that the broker can serve the strategy.

    :raises BrokerError: if it cannot; the text names a strategy that it can serve
    """
    found = server_properties or {}
    topology.check_broker(found.get("product") or "", found.get("version") or "")


_declared: WeakKeyDictionary[object, c.Declared] = WeakKeyDictionary()
"""The declarations that were made on each connection. The retriers of a connection share them."""


def declared_on(connection: object) -> c.Declared:
    """Returns the declarations that were made on a client's connection."""
    handle = _declared.get(connection)
    if handle is None:
        handle = _declared[connection] = made(c.bh_declared_new())
    return handle


def forget(connection: object) -> None:
    """Forgets the declarations of a connection, because some exchanges or queues may be deleted."""
    c.Declared_clear(declared_on(connection))


def declaring(
    topology: Topology,
    mode: Mode = "create",
    rungs: Iterable[int] = (0,),
    *,
    connection: object = None,
    makes_rungs: bool = True,
) -> Steps:
    """Yields the steps that declare or verify a topology.

    :param rungs: delays of rungs on demand, in ms; 0: everything that is no rung on demand
    :param connection: a client's; skips the exchanges and queues that were declared on it already
    :param makes_rungs: mode verify: whether rungs on demand may be missing, because they are made
        later
    :raises Error: if the broker refused a step
    """
    handle = made(c.bh_declaring_new(topology._handle, c.BH_DIALECT_PYTHON))
    check(c.Declaring_set_makes_rungs(handle, makes_rungs))
    if connection is not None:
        check(c.Declaring_set_declared(handle, declared_on(connection)))
    for rung_ms in rungs:
        check(c.Declaring_begin(handle, MODES[mode], rung_ms))
        yield from _steps(handle)


def looking(topology: Topology, mode: Mode, connection: object) -> Steps:
    """Yields the steps of a look at the return exchange.

    :param mode: create binds or declares again; verify only looks
    :raises Error: if the exchange is missing, also if it is declared again
    """
    handle = made(c.bh_declaring_new(topology._handle, c.BH_DIALECT_PYTHON))
    check(c.Declaring_set_declared(handle, declared_on(connection)))
    check(c.Declaring_look(handle, MODES[mode]))
    yield from _steps(handle)


def _steps(handle: c.Declaring) -> Steps:
    while (step := c.Declaring_next(handle))[0] != c.BH_DECLARE_NONE:
        refusal = yield Step(declaration(step), bool(step[7]), bool(step[8]))
        if refusal:
            c.Declaring_refuse(handle, refusal.code, refusal.text)
    if status := c.Declaring_status(handle):
        raise error(status, in_seconds(c.Declaring_error(handle)))


def diagnosis(
    topology: Topology, refusal: int, code: int = 0, text: Text = "", of: Text = ""
) -> Error | None:
    """Returns the error that explains a refusal after declaring; None if nothing explains it.

    ``bh_declaring_explain`` has the same arguments.
    """
    handle = made(c.bh_declaring_new(topology._handle, c.BH_DIALECT_PYTHON))
    c.Declaring_explain(handle, refusal, code, text, of)
    status = c.Declaring_status(handle)
    return error(status, in_seconds(c.Declaring_error(handle))) if status else None


def consumer_refused(topology: Topology, refusal: Refusal) -> Error:
    """Returns why the broker closed the channel of a consumer."""
    return diagnosis(topology, c.BH_REFUSAL_CONSUMER, *refusal) or ChannelClosedError(refusal.text)


def replay_refused(topology: Topology, queue: str, refusal: Refusal) -> Error:
    """Returns why the broker closed the channel of a replay."""
    return diagnosis(topology, c.BH_REFUSAL_REPLAY, *refusal, of=queue) or ChannelClosedError(
        refusal.text
    )
