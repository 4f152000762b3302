from __future__ import annotations

from typing import Any

import vectors
from vectors import Case, is_, raw, text

import backhop
from backhop import _backhop as c

NOW_MS = 1_700_000_000_000
KEYS = (
    "name delivery policy topology legacy_counter wait_queues outcome error retry_after_ms now_ms random frame_max "
    "guard replay expect"
)
COPIES = ("retry", "defer", "park", "replay")
OUTCOMES = {"failed": 1, "permanent": 2, "throttled": 5, "deferred": 6}


def _fraction(u: float) -> bytes:
    return (int(u * 2**53) << 11).to_bytes(8, "big")


def _random(given: dict[str, Any]) -> bytes:
    if "hex" in given:
        vectors.only(given, "hex")
        return raw(given)
    vectors.only(given, "u pick id")
    identity = raw(given.get("id", {"hex": "00112233445566778899aabbccddeeff"}))
    return _fraction(given.get("u", 0.5)) + _fraction(given.get("pick", 0.5)) + identity


def _plan(case: Case, history: backhop.History, topology: backhop.Topology) -> backhop.Plan:
    common: dict[str, Any] = {"random": _random(case.get("random", {}))}
    if "frame_max" in case:
        common["frame_max"] = case["frame_max"]
    if case.get("replay"):
        return backhop.Plan.replay(history, topology, **common)
    common["now"] = vectors.integer(case.get("now_ms", NOW_MS)) / 1000
    if case.get("guard"):
        return backhop.Plan.guard(history, topology, **common)
    return backhop.Plan(
        history,
        topology,
        case.get("outcome", "failed"),
        error=raw(case.get("error", "")),
        retry_after=vectors.integer(case.get("retry_after_ms", 0)) / 1000,
        **common,
    )


def _compare_kept_headers(case: Case, plan: backhop.Plan, expected: list[Any]) -> None:
    names = {raw(name) for name, _ in case["delivery"]["headers"]}
    assert names >= {raw(name) for name in expected}
    assert {name for name in names if plan.keeps_header(name)} == {raw(name) for name in expected}


def _compare_kept_properties(case: Case, plan: backhop.Plan, expected: list[str]) -> None:
    names = {name.replace("-", "_") for name in case["delivery"]["properties"]}
    assert names & set(plan.kept_properties) == {name.replace("-", "_") for name in expected}


def _header(entry: list[Any]) -> tuple[str, backhop.Typed]:
    name, value = entry
    if isinstance(value, dict) and "copy_of" in value:
        vectors.only(value, "copy_of")
        return text(name), backhop.Typed("void", text(value["copy_of"]))
    kind, content = vectors.typed(value)
    if kind == "int64":
        return text(name), backhop.Typed(kind, vectors.integer(content))
    return text(name), backhop.Typed(kind, [text(item) for item in content] if kind == "array" else text(content))


def _compare_headers_with(plan: backhop.Plan, expected: list[Any]) -> None:
    for entry in expected:
        assert _header(entry) in plan.headers


def _counts_as(case: Case, history: backhop.History, topology: backhop.Topology) -> int:
    outcome = OUTCOMES[case.get("outcome", "failed")]
    return c.bh_plan_outcome(history._handle, topology.policy._handle, topology._handle, outcome)


def _check_invariants(plan: backhop.Plan) -> None:
    assert plan.publishes == (plan.action in COPIES)
    assert plan.publishes or not plan.headers
    assert (plan.action == "park") == bool(plan.reason)
    if plan.publishes:
        assert not {"user_id", "expiration", "delivery_mode"} & set(plan.kept_properties)
        assert not any(plan.keeps_header(name) for name, _ in plan.headers)


@vectors.cases("plan")
def test_a_vector(case: Case) -> None:
    vectors.only(case, KEYS)
    delivery = vectors.delivery(case)
    topology = vectors.topology(case, vectors.policy(case))
    history = vectors.history(case, delivery, topology)
    if vectors.status(case) != "BH_OK":
        vectors.refused(case, lambda: _plan(case, history, topology))
        return
    _plan(case, history, topology)
    plan = _plan(case, history, topology)
    vectors.compare(
        case["expect"],
        {
            "action": is_(lambda: plan.action),
            "counts_as": is_(lambda: _counts_as(case, history, topology), OUTCOMES.get),
            "attempts": is_(lambda: plan.attempts, vectors.integer),
            "deferrals": is_(lambda: plan.deferrals, vectors.integer),
            "delay_ms": is_(lambda: plan.delay, lambda ms: vectors.integer(ms) / 1000),
            "retry_after_met": is_(lambda: plan.retry_after_met),
            "reason": is_(lambda: plan.reason),
            "id": is_(lambda: plan.id, text),
            "exchange": is_(lambda: plan.exchange, text),
            "routing_key": is_(lambda: plan.routing_key, text),
            "mandatory": is_(lambda: plan.mandatory),
            "on_demand": is_(lambda: plan.on_demand),
            "expiration": is_(lambda: plan.expiration, lambda digits: digits or None),
            "kept_properties": lambda expected: _compare_kept_properties(case, plan, expected),
            "kept_headers": lambda expected: _compare_kept_headers(case, plan, expected),
            "headers": is_(lambda: [*plan.headers], lambda expected: [*map(_header, expected)]),
            "headers_in_any_order": is_(lambda: dict(plan.headers), lambda expected: dict(map(_header, expected))),
            "headers_with": lambda expected: _compare_headers_with(plan, expected),
            "headers_without": is_(
                lambda: {name for name, _ in plan.headers},
                lambda names: {name for name, _ in plan.headers} - {*map(text, names)},
            ),
        },
    )
    _check_invariants(plan)


def test_a_plan_outlives_what_it_was_made_of() -> None:
    plan = backhop.Plan(
        backhop.History(backhop.Delivery(headers={"tenant": "acme"}), None), backhop.Topology("orders"), error="507"
    )
    assert plan.copy_headers({"tenant": "acme"})["backhop-error"] == "507"


def test_without_a_moment_and_random_bytes_the_clock_and_the_system_give_them() -> None:
    topology = backhop.Topology("orders")
    history = backhop.History(backhop.Delivery(), topology)
    one, two = (dict(backhop.Plan(history, topology).headers) for _ in range(2))
    assert one["backhop-id"] != two["backhop-id"]
    assert one["backhop-first-failure"].value > NOW_MS
