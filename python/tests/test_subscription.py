"""The shared vectors of the subscription, over the extension module: it has no class of its own."""

from __future__ import annotations

from typing import Any

import vectors

from backhop import _backhop as c

LOSSES = ["consumer", "channel", "connection"]
STEPS = ["rest", "emit", "declare", "consume", "give_up"]
CODES = {c.bh_status_name(code): code for code in range(-40, 1)}


def _subscription(case: vectors.Case) -> c.Subscription:
    policy = vectors.back_off(case.get("policy", {"kind": "linear", "initial_ms": 100, "jitter": "none"}))
    random = vectors.raw(case["random"]) if "random" in case else bytes(8)
    status, subscription = c.bh_subscription_new(policy, random)
    assert status == 0
    return subscription


def _call(subscription: c.Subscription, now_ms: int, verb: str, *arguments: Any) -> None:
    if verb == "lost":
        c.Subscription_lost(subscription, LOSSES.index(arguments[0]), now_ms)
    elif verb == "failed":
        c.Subscription_failed(subscription, CODES[arguments[0]], now_ms)
    else:
        getattr(c, f"Subscription_{verb}")(subscription)


def _step(step: c.SubscriptionStep) -> list[Any]:
    number, event, status, delay_ms, _ = step
    kind = STEPS[number]
    if kind == "emit":
        return [kind, c.bh_event_name(event), c.bh_status_name(status), delay_ms]
    return [kind, c.bh_status_name(status)] if kind == "give_up" else [kind]


@vectors.cases("subscription")
def test_a_vector(case: vectors.Case) -> None:
    vectors.only(case, "name policy random expect")
    vectors.only(case["expect"], "history")
    subscription = _subscription(case)
    now_ms = compared = 0
    for row in case["expect"]["history"]:
        vectors.only(row, "at_ms do may_subscribe steps due_ms is_consuming")
        now_ms = row.get("at_ms", now_ms)
        if "do" in row:
            _call(subscription, now_ms, *row["do"])
        if "steps" in row:
            steps = []
            may_subscribe = int(row.get("may_subscribe", True))
            while (step := c.Subscription_next(subscription, may_subscribe, now_ms))[0] != c.BH_SUBSCRIPTION_REST:
                steps.append(_step(step))
                assert len(steps) < 10
            assert steps == row["steps"], row
            if "due_ms" in row:
                assert step[-1] == (-1 if row["due_ms"] is None else row["due_ms"]), row
            compared += 1
        if "is_consuming" in row:
            assert bool(c.Subscription_is_consuming(subscription)) == row["is_consuming"], row
    assert compared
