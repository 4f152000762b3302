"""Objects that outlive others, threads, and leaks."""

from __future__ import annotations

import gc
import resource
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import backhop
from backhop import _backhop as c
from backhop.decider import Decider
from backhop.plan import Result

HEADERS: dict[str, Any] = {"tenant": "acme", "x-death": [{"queue": "orders", "reason": "rejected", "count": 3}]}


def _decide(decider: Decider, i: int) -> dict[Any, Any]:
    history = decider.read("events", "order.created", {"message_id": str(i)}, HEADERS)
    return decider.plan(history, Result("failed", f"error {i}")).copy_headers(HEADERS)


def test_texts_outlive_the_object_that_they_came_from() -> None:
    delivery = backhop.Delivery("events", "key", headers={"tenant": "acme"})
    exchange, tenant = delivery.exchange, delivery.header("tenant")
    del delivery
    gc.collect()
    assert (exchange, tenant) == ("events", "acme")


def test_a_foreign_object_is_refused() -> None:
    policy: Any = c.bh_policy_new()[1]
    with pytest.raises(TypeError, match="bh_delivery"):
        c.Delivery_exchange(policy)


def test_nothing_is_kept_of_what_was_decided() -> None:
    decider = Decider(backhop.Topology("orders"))
    for i in range(2000):
        _decide(decider, i)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for i in range(20000):
        _decide(decider, i)
        decider.read("caf\udce9" * 20, b"\xff", None, {"nested": [{"name": b"\xff"}]})
        with pytest.raises(backhop.PolicyError):
            backhop.Policy(initial=0)
        with pytest.raises(TypeError):
            decider.read("caf\udce9" * 20, "key", None, {"name": object()})
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 8 * 1024, f"{grown} KiB"


def test_threads_decide_at_once_on_one_policy_and_topology() -> None:
    decider, together = Decider(backhop.Topology("orders")), threading.Barrier(8)

    def decide(thread: int) -> None:
        together.wait()
        for i in range(thread * 1000, thread * 1000 + 500):
            copy = _decide(decider, i)
            assert copy["backhop-id"] == str(i)
            assert copy["backhop-error"] == f"error {i}"

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(decide, thread) for thread in range(8)]:
            done.result()


def test_what_is_read_at_once_is_the_same_everywhere() -> None:
    topology = backhop.Topology("orders")
    history = backhop.History(backhop.Delivery(headers=HEADERS), topology)
    with ThreadPoolExecutor(8) as pool:
        stories = {*pool.map(lambda _: (history.deaths, topology.definitions()), range(200))}
    assert len(stories) == 1
