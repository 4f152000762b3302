from __future__ import annotations

import json
from typing import Any

import pytest
import vectors
from vectors import Case, is_, raw, text

import backhop
from backhop._errors import in_seconds


def _declaration(given: dict[str, Any]) -> backhop.Declaration:
    vectors.only(given, "exchange queue binding type source routing_key arguments wait_ms on_demand")
    what: Any
    (what,) = given.keys() & {"exchange", "queue", "binding"}
    return backhop.Declaration(
        what=what,
        name=text(given[what]),
        type=given["type"],
        source=text(given.get("source", "")),
        routing_key=text(given.get("routing_key", "")),
        arguments={
            text(name): value if isinstance(value, int) else text(value) for name, value in given.get("arguments", ())
        },
        wait=given.get("wait_ms", 0) / 1000,
        on_demand=given.get("on_demand", False),
    )


def _compare_declarations(topology: backhop.Topology, expected: list[dict[str, Any]]) -> None:
    assert [*topology.declarations] == [_declaration(given) for given in expected]
    for declaration, given in zip(topology.declarations, expected, strict=True):
        assert [*declaration.arguments] == [text(name) for name, _ in given.get("arguments", ())]


def _declared(topology: backhop.Topology, *, on_demand: bool) -> list[int]:
    waits = [
        round(declaration.wait * 1000)
        for declaration in topology.declarations
        if declaration.what == "queue" and declaration.wait and declaration.on_demand == on_demand
    ]
    return [*dict.fromkeys(waits)]  # stripes share a rung


def _compare_preview(topology: backhop.Topology, rows: list[list[int]]) -> None:
    for attempt, lowest, mean, highest, total, rungs in rows:
        times = (lowest / 1000, mean / 1000, highest / 1000, total / 1000)
        assert topology.row(attempt) == backhop.PreviewRow(attempt, *times, rungs)


def _compare_shares(topology: backhop.Topology, rows: list[list[float]]) -> None:
    for attempt, rung, share in rows:
        assert topology.shares(int(attempt)).get(rung / 1000, 0) == pytest.approx(share, abs=0.0005)


def _compare_rungs(topology: backhop.Topology, expected: list[int]) -> None:
    assert [round(rung * 1000) for rung in topology.rungs] == expected
    assert _declared(topology, on_demand=False) == expected


def _compare_brokers(topology: backhop.Topology, rows: list[list[Any]]) -> None:
    for product, version, status, *texts in rows:
        if status == "BH_OK":
            topology.check_broker(raw(product), raw(version))
            continue
        with pytest.raises(backhop.Error) as raised:
            topology.check_broker(raw(product), raw(version))
        assert raised.value.code == status
        assert all(part in str(raised.value) for part in texts)


def _compare_definitions(topology: backhop.Topology, expected: dict[str, Any]) -> None:
    vectors.only(expected, "vhost json status")
    vhost = raw(expected.get("vhost", "/"))
    if "status" in expected:
        with pytest.raises(backhop.Error) as raised:
            topology.definitions(vhost)
        assert raised.value.code == expected["status"]
    else:
        assert json.loads(topology.definitions(vhost)) == expected["json"]


@vectors.cases("topology")
def test_a_vector(case: Case) -> None:
    vectors.only(case, "name policy topology expect")
    expect = case["expect"]
    if vectors.status(case) != "BH_OK":
        vectors.only(expect, "status refused_by error")
        error = vectors.refused(case, lambda: vectors.topology(case, vectors.policy(case)))
        texts = expect.get("error", [])
        parts = map(in_seconds, [texts] if isinstance(texts, str) else texts)
        assert all(part in str(error) for part in parts), str(error)
        return
    policy = vectors.policy(case)
    vectors.topology(case, policy)
    topology = vectors.topology(case, policy)
    vectors.compare(
        expect,
        {
            "queue": is_(lambda: topology.queue, text),
            "strategy": is_(lambda: topology.strategy),
            "parked_queue": is_(lambda: topology.parked_queue, text),
            "worst_lateness_ms": is_(lambda: round(topology.worst_lateness * 1000)),
            "rungs": lambda expected: _compare_rungs(topology, expected),
            "on_demand_rungs": is_(lambda: _declared(topology, on_demand=True)),
            "declarations": lambda expected: _compare_declarations(topology, expected),
            "brokers": lambda expected: _compare_brokers(topology, expected),
            "preview": lambda expected: _compare_preview(topology, expected),
            "shares": lambda expected: _compare_shares(topology, expected),
            "definitions": lambda expected: _compare_definitions(topology, expected),
        },
    )


def test_a_topology_without_a_policy_has_the_default_one() -> None:
    assert backhop.Topology("orders").policy == backhop.Policy()


def test_a_topology_keeps_its_policy_alive() -> None:
    topology = backhop.Topology("orders", backhop.Policy(max_attempts=2))
    assert backhop.Plan(backhop.History(backhop.Delivery(), topology), topology).action == "retry"


def test_a_series_that_is_none_is_refused_with_those_there_are() -> None:
    series: Any = 7
    with pytest.raises(backhop.ArgumentError, match="give one of 5, 10, 20, 40"):
        backhop.Topology("orders", series=series)
