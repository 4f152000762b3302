"""How a topology is declared or verified: steps for a client to take, and what the broker's refusals mean."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

from . import _backhop as c
from ._errors import AccessError, BrokerError, ChannelClosedError, ClashError, Error, MissingError
from .topology import Declaration, Topology

Mode: TypeAlias = Literal["create", "verify", "none"]
"""How to treat the broker's topology: make what is missing, change nothing and say what is missing, ask nothing."""

MODES: dict[Mode, int] = {"create": c.BH_MODE_CREATE, "verify": c.BH_MODE_VERIFY, "none": c.BH_MODE_NONE}

_ACCESS_REFUSED = 403
NOT_FOUND = 404
_PRECONDITION_FAILED = 406
_DIFFERENCE = re.compile(
    r"inequivalent arg '(?P<name>[^']*)'.*: received (?P<needed>.*) but current is (?P<is>.*)", re.S
)


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


def creating(topology: Topology, declarations: Iterable[Declaration] | None = None) -> Steps:
    """Declares; by default all that is not for demand alone.

    A rung on demand, which comes last, is taken to be there where the user may not declare it: an administrator may
    have imported it, and where none did, the broker refuses the copy.
    """
    for declaration in topology.declarations if declarations is None else declarations:
        if declarations is None and declaration.on_demand:
            continue
        refusal = yield Step(declaration, passive=False)
        if refusal and declaration.on_demand and refusal.code == _ACCESS_REFUSED:
            return
        if refusal:
            raise _explained(topology, declaration, refusal)


def verifying(topology: Topology) -> Steps:
    """Makes nothing, and raises all that is missing or different.

    Declaring what exists changes nothing, and compares its arguments. Without the permission to declare, that it exists
    is all that can be known. A rung on demand may be missing, but not then: nobody would make it. AMQP cannot look at
    bindings.
    """
    different: list[str] = []
    missing: list[str] = []
    rungs: set[float] = set()  # on demand, and missing
    may_declare = True
    declared = [declaration for declaration in topology.declarations if declaration.what != "binding"]
    for declaration in declared:
        refusal = yield Step(declaration, passive=True)
        if refusal and refusal.code == NOT_FOUND:
            if declaration.on_demand:
                rungs.add(declaration.wait)
            else:
                missing.append(f'{declaration.what} "{declaration.name}"')
            continue
        if not refusal:
            refusal = yield Step(declaration, passive=False)
            may_declare = may_declare and not (refusal and refusal.code == _ACCESS_REFUSED)
        if refusal and refusal.code == _PRECONDITION_FAILED:
            different.append(_clash(topology, declaration, refusal))
        elif refusal and refusal.code != _ACCESS_REFUSED:
            raise _explained(topology, declaration, refusal)
    if not any(declaration.what == "queue" and declaration.name == topology.queue for declaration in declared):
        refusal = yield Step(Declaration("queue", topology.queue, ""), passive=True)
        if refusal and refusal.code == NOT_FOUND:
            missing.append(f'the work queue "{topology.queue}"')
    advice = "declare() makes what is missing, or import topology.definitions()"
    if rungs and not may_declare:
        if not missing:
            advice = "import topology.definitions(), or set max_retry_after=0, which needs none"
        missing.append(f"{len(rungs)} rung{'s' * (len(rungs) > 1)} that a handler's RetryAfter can need")
    if different or missing:
        text = "; ".join([*different, *(["missing: " + ", ".join(missing)] if missing else []), advice])
        raise ClashError(text) if different else MissingError(text)


def _explained(topology: Topology, declaration: Declaration, refusal: Refusal) -> Error:
    code, text = refusal
    if declaration.type == "x-delayed-message" and "exchange type" in text:
        return BrokerError(
            "the broker does not know the exchange type x-delayed-message: enable the plugin "
            "rabbitmq_delayed_message_exchange, or use the strategy ladder, which needs none"
        )
    if code == _PRECONDITION_FAILED:
        return ClashError(_clash(topology, declaration, refusal))
    if code == NOT_FOUND and declaration.what == "binding" and declaration.name == topology.queue:
        return MissingError(
            f'the work queue "{topology.queue}" does not exist: declare it first, or have it declared with '
            'work_queue="quorum"'
        )
    if code == NOT_FOUND:
        return MissingError(f'declaring "{declaration.name}": {text}')
    if code == _ACCESS_REFUSED:
        return AccessError(
            f'declaring "{declaration.name}": {text}; grant the permission, or import topology.definitions() and use '
            'mode="verify"'
        )
    return ChannelClosedError(f'declaring "{declaration.name}": the broker closed the channel: {code} {text}')


def _clash(topology: Topology, declaration: Declaration, refusal: Refusal) -> str:
    """RabbitMQ writes a value as 'V', as the value 'V' of type 'T', or as none. It cuts the text to 255 bytes."""
    found = _DIFFERENCE.search(refusal.text)
    if found:
        values = {key: re.sub(r"^[^']*'([^']*)'.*$", r"\1", found[key], flags=re.S) for key in ("is", "needed")}
        difference = f"exists with {found['name']} = {values['is']}, and {values['needed']} is needed"
    else:
        difference = f"exists with other arguments ({refusal.text})"
    queue = topology.queue
    choice = "name for the work queue" if declaration.name in (queue, *_own(queue)) else "namespace"
    return (
        f'{declaration.what} "{declaration.name}" {difference} (once it is empty and unused, delete it and declare '
        f"again, or choose another {choice})"
    )


def _own(queue: str) -> tuple[str, ...]:
    return tuple(f"{queue}.{suffix}" for suffix in ("parked", "wait", "retry", "return"))
