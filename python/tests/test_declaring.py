"""The steps of declaring and verifying, and what the broker's refusals mean."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import backhop
from backhop._declaring import Refusal, Step, Steps, creating, verifying

TOPOLOGY = backhop.Topology(
    "work", backhop.Policy(initial=0.1, jitter="none", max=0.1, max_retry_after=0.15), namespace="ns"
)
ON_DEMAND = [each for each in TOPOLOGY.declarations if each.on_demand]
MAY_NOT = Refusal(403, "ACCESS_REFUSED")
NOT_FOUND = Refusal(404, "NOT_FOUND")

Refuse = Callable[[Step], Refusal | None]


def take(steps: Steps, refuse: Refuse = lambda _: None) -> list[Step]:
    """Takes all the steps; returns them."""
    taken: list[Step] = []
    refusal = None
    while True:
        try:
            taken.append(steps.send(refusal))
        except StopIteration:
            return taken
        refusal = refuse(taken[-1])


def is_rung(step: Step) -> bool:
    return step.declaration.on_demand


def test_everything_is_created_but_what_is_for_demand_alone() -> None:
    names = [each for each in TOPOLOGY.declarations if not each.on_demand]
    assert take(creating(TOPOLOGY)) == [Step(each, passive=False) for each in names]


def test_a_rung_on_demand_that_may_not_be_declared_is_taken_to_be_there() -> None:
    assert take(creating(TOPOLOGY, ON_DEMAND), lambda _: MAY_NOT) == [Step(ON_DEMAND[0], passive=False)]


@pytest.mark.parametrize("code", [404, 405, 406, 541])
def test_any_other_refusal_of_a_rung_on_demand_is_an_error(code: int) -> None:
    with pytest.raises(backhop.Error):
        take(creating(TOPOLOGY, ON_DEMAND), lambda _: Refusal(code, "text"))


def test_what_is_not_on_demand_has_to_be_declared() -> None:
    with pytest.raises(backhop.AccessError, match='mode="verify"'):
        take(creating(TOPOLOGY), lambda _: MAY_NOT)
    with pytest.raises(backhop.AccessError):
        take(creating(TOPOLOGY, TOPOLOGY.declarations), lambda _: MAY_NOT)


def test_rungs_on_demand_may_be_missing() -> None:
    steps = take(verifying(TOPOLOGY), lambda step: NOT_FOUND if is_rung(step) else None)
    assert [step.declaration.name for step in steps if is_rung(step)] == [
        each.name for each in ON_DEMAND if each.what != "binding"
    ]


def test_a_rung_on_demand_that_is_different_is_a_clash_though_another_is_missing() -> None:
    def refuse(step: Step) -> Refusal | None:
        if step.passive:
            return NOT_FOUND if step.declaration.name == ON_DEMAND[0].name else None
        return Refusal(406, "cut") if step.declaration == ON_DEMAND[-2] else None

    with pytest.raises(backhop.ClashError) as raised:
        take(verifying(TOPOLOGY), refuse)
    assert str(raised.value).startswith(f'queue "{ON_DEMAND[-2].name}" exists with other arguments (cut)')
    assert "missing:" not in str(raised.value)


def may_not(step: Step, *missing: str) -> Refusal | None:
    """What a user meets who may not declare."""
    if step.passive:
        return NOT_FOUND if is_rung(step) or step.declaration.name in missing else None
    return MAY_NOT


def test_rungs_on_demand_may_not_be_missing_where_nobody_makes_them() -> None:
    with pytest.raises(backhop.MissingError) as raised:
        take(verifying(TOPOLOGY), may_not)
    assert str(raised.value) == (
        "missing: 2 rungs that a handler's RetryAfter can need; import topology.definitions(), or set "
        "max_retry_after=0, which needs none"
    )


def test_rungs_on_demand_are_a_count_in_the_list_of_what_is_missing() -> None:
    with pytest.raises(backhop.MissingError) as raised:
        take(verifying(TOPOLOGY), lambda step: may_not(step, "work", "ns.return"))
    assert str(raised.value) == (
        'missing: exchange "ns.return", the work queue "work", 2 rungs that a handler\'s RetryAfter can need; '
        "declare() makes what is missing, or import topology.definitions()"
    )


def test_who_may_not_declare_is_content_with_what_is_there() -> None:
    take(verifying(TOPOLOGY), lambda step: None if step.passive else MAY_NOT)
