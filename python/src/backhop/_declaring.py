"""How a topology is declared or verified: the core's steps, for a client to take."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

from . import _backhop as c
from ._core import made
from ._errors import ChannelClosedError, Error, check, error, in_seconds
from .topology import WHATS, Declaration, Topology

Mode: TypeAlias = Literal["create", "verify", "none"]
"""How to treat the broker's topology: make what is missing, change nothing and say what is missing, ask nothing."""

MODES: dict[Mode, int] = {"create": c.BH_MODE_CREATE, "verify": c.BH_MODE_VERIFY, "none": c.BH_MODE_NONE}


class Step(NamedTuple):
    """Something to declare; passive: only to look whether it is there."""

    declaration: Declaration
    passive: bool


class Refusal(NamedTuple):
    """How the broker closed the channel at a step, so that the next one needs a new channel; or the connection."""

    code: int
    text: str


Steps: TypeAlias = Generator[Step, Refusal | None, None]
"""Yields what to do, and takes the refusal, None for none; raises what the user has to know."""


def check_broker(topology: Topology, server_properties: Mapping[str, Any] | None) -> None:
    """Refuses a broker that cannot serve the strategy."""
    found = server_properties or {}
    topology.check_broker(found.get("product") or "", found.get("version") or "")


_declared: WeakKeyDictionary[object, c.Declared] = WeakKeyDictionary()
"""What is known to be there, by the connection on which it was declared: its retriers share it."""


def declared_on(connection: object) -> c.Declared:
    """What is known to be there, on a client's connection."""
    handle = _declared.get(connection)
    if handle is None:
        handle = _declared[connection] = made(c.bh_declared_new())
    return handle


def forget(connection: object) -> None:
    """Something that was declared on a connection may be gone."""
    c.Declared_forget(declared_on(connection))


def declaring(
    topology: Topology,
    mode: Mode = "create",
    rungs: Iterable[int] = (0,),
    *,
    connection: object = None,
    makes_rungs: bool = True,
) -> Steps:
    """Makes or verifies.

    :param rungs: delays of rungs on demand, in ms; 0: all that is none
    :param makes_rungs: whether who verifies makes rungs on demand, so that these may be missing
    :param connection: a client's, on which it is: what is known to be there is left out
    """
    handle = made(c.bh_declaring_new(topology._handle, c.BH_DIALECT_PYTHON))
    check(c.Declaring_set_makes_rungs(handle, makes_rungs))
    if connection is not None:
        check(c.Declaring_set_declared(handle, declared_on(connection)))
    for rung_ms in rungs:
        check(c.Declaring_begin(handle, MODES[mode], rung_ms))
        while c.Declaring_next(handle):
            refusal = yield Step(_declaration(handle), bool(c.Declaring_passive(handle)))
            if refusal:
                c.Declaring_refuse(handle, refusal.code, refusal.text)
        if status := c.Declaring_status(handle):
            raise error(status, in_seconds(c.Declaring_error(handle)))


def diagnosis(topology: Topology, asks: Callable[..., None], *arguments: object) -> Error | None:
    """What is wrong with how the topology is used, once all was declared, in the core's words; None for nothing.

    :param asks: of the binding, as ``Declaring_refuse_consumer``, which is called with the arguments
    """
    handle = made(c.bh_declaring_new(topology._handle, c.BH_DIALECT_PYTHON))
    asks(handle, *arguments)
    status = c.Declaring_status(handle)
    return error(status, in_seconds(c.Declaring_error(handle))) if status else None


def consumer_refused(topology: Topology, refusal: Refusal) -> Error:
    """Why the broker closed a channel that was to consume the work queue."""
    return diagnosis(topology, c.Declaring_refuse_consumer, *refusal) or ChannelClosedError(refusal.text)


def replay_refused(topology: Topology, queue: str, refusal: Refusal) -> Error:
    """Why the broker closed a channel that was to replay a queue."""
    return diagnosis(topology, c.Declaring_refuse_replay, queue, *refusal) or ChannelClosedError(refusal.text)


def _declaration(handle: c.Declaring) -> Declaration:
    return Declaration(
        what=WHATS[c.Declaring_what(handle)],
        name=c.Declaring_name(handle),
        type=c.Declaring_type(handle),
        source=c.Declaring_source(handle),
        routing_key=c.Declaring_routing_key(handle),
        arguments={
            c.Declaring_argument_name(handle, i): (
                c.Declaring_argument_int(handle, i)
                if c.Declaring_argument_type(handle, i) == c.BH_TYPE_INT64
                else c.Declaring_argument_string(handle, i)
            )
            for i in range(c.Declaring_argument_count(handle))
        },
    )
