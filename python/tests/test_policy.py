from __future__ import annotations

import pickle
from datetime import timedelta
from typing import Any

import pytest
import vectors
from vectors import Case, is_

import backhop
from backhop import _backhop as c


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _compare_delays(policy: backhop.Policy, rows: list[Any]) -> None:
    for attempt, previous_ms, u, ms in rows:
        # The core's own function: the class refuses random numbers outside their range.
        delay_ms = c.Policy_delay_ms(
            policy._handle, vectors.integer(attempt), vectors.integer(previous_ms), vectors.fraction(u)
        )
        assert delay_ms == vectors.integer(ms), f"attempt {attempt}, u {u}"


def _compare_preview(policy: backhop.Policy, rows: list[Any]) -> None:
    for attempt, *expected in rows:
        assert [*policy.row(vectors.integer(attempt))[1:5]] == [ms / 1000 for ms in expected], f"attempt {attempt}"


@vectors.cases("policy")
def test_a_vector(case: Case) -> None:
    vectors.only(case, "name policy expect")
    expect = case["expect"]
    if vectors.status(case) != "BH_OK":
        vectors.only(expect, "status refused_by error")
        assert expect["refused_by"]
        error = vectors.refused(case, lambda: vectors.policy(case))
        texts = expect.get("error", [])
        assert all(part in str(error) for part in ([texts] if isinstance(texts, str) else texts)), str(error)
        return
    vectors.policy(case)
    policy = vectors.policy(case)
    vectors.compare(
        expect,
        {
            "kind": is_(lambda: policy.kind),
            "jitter": is_(lambda: policy.jitter),
            "max_attempts": is_(lambda: policy.max_attempts, vectors.integer),
            "max_crashes": is_(lambda: policy.max_crashes, vectors.integer),
            "max_deferrals": is_(lambda: policy.max_deferrals, vectors.integer),
            "max_ms": is_(lambda: _ms(policy.max), vectors.integer),
            "max_age_ms": is_(lambda: _ms(policy.max_age), vectors.integer),
            "max_retry_after_ms": is_(lambda: _ms(policy.max_retry_after), vectors.integer),
            "delays": lambda expected: _compare_delays(policy, expected),
            "preview": lambda expected: _compare_preview(policy, expected),
        },
    )


def test_times_are_seconds_as_int_float_or_timedelta() -> None:
    assert (
        backhop.Policy(initial=2, jitter="none").delay(1)
        == backhop.Policy(initial=2.0, jitter="none").delay(1)
        == backhop.Policy(initial=timedelta(seconds=2), jitter="none").delay(1)
        == 2
    )


@pytest.mark.parametrize("time", ["10", True, [1]])
def test_what_is_no_time_is_refused_with_what_to_give(time: Any) -> None:
    with pytest.raises(TypeError, match="give seconds"):
        backhop.Policy(initial=time)


def test_not_a_number_is_no_time() -> None:
    with pytest.raises(ValueError, match="give seconds"):
        backhop.Policy(initial=float("nan"))


def test_a_name_that_is_none_is_refused_with_those_there_are() -> None:
    kind: Any = "cubic"
    with pytest.raises(ValueError, match="kind is 'cubic': give one of exponential, linear, fixed, steps"):
        backhop.Policy(kind=kind)


def test_steps_need_no_kind() -> None:
    policy = backhop.Policy(steps=[1, timedelta(minutes=1)], jitter="none")
    assert policy.kind == "steps"
    assert [row.mean for row in policy.preview()] == [1, 60]


@pytest.mark.parametrize("steps", [[], (), iter([])])
@pytest.mark.parametrize("kind", [{}, {"kind": "steps"}, {"kind": "fixed"}])
def test_steps_without_a_step_are_refused(steps: Any, kind: Any) -> None:
    with pytest.raises(backhop.ArgumentError) as raised:
        backhop.Policy(steps=steps, **kind)
    assert str(raised.value) == "steps is []: give one delay at least, or another kind"


def test_an_option_that_is_none_has_its_default() -> None:
    assert backhop.Policy(initial=None, factor=None, steps=None) == backhop.Policy(initial=1, factor=2)


def test_a_policy_cannot_be_changed() -> None:
    policy: Any = backhop.Policy()
    with pytest.raises(AttributeError):
        policy.max_attempts = 3
    with pytest.raises(AttributeError):
        policy.color = "red"


def test_the_preview_prints_as_a_table_and_is_data() -> None:
    preview = backhop.Policy(initial=10, factor=3, max=3600, jitter=0.2, max_attempts=4).preview()
    assert preview[1] == backhop.PreviewRow(attempt=2, lowest=20, mean=30, highest=40, total=40, rungs=4)
    assert str(preview) == repr(preview)
    assert str(preview).splitlines() == [
        "failure     lowest        mean    highest       total  rungs",
        "      1        8 s        10 s     12.5 s        10 s      3",
        "      2       20 s        30 s       40 s        40 s      4",
        "      3  1 min 3 s  1 min 30 s  2 min 5 s  2 min 10 s      4",
    ]


def test_the_preview_of_a_policy_that_no_ladder_serves_is_its_formula() -> None:
    preview = backhop.Policy(initial=0.01, max=0.05, kind="fixed", max_attempts=2).preview()
    assert [*preview] == [backhop.PreviewRow(attempt=1, lowest=0.008, mean=0.01, highest=0.012, total=0.01, rungs=0)]


def test_the_preview_of_a_policy_without_a_limit_ends() -> None:
    assert len(backhop.Policy(max_attempts=0).preview()) == 20
    assert len(backhop.Policy(max_attempts=0).preview(3)) == 3


def test_a_repr_makes_the_same_policy_again() -> None:
    policy = backhop.Policy(initial=timedelta(seconds=2), steps=None, max_attempts=3)
    again = eval(repr(policy), {"Policy": backhop.Policy, "datetime": __import__("datetime")})
    assert again == policy
    assert hash(again) == hash(policy)
    assert policy != backhop.Policy()


def test_a_policy_can_be_pickled() -> None:
    policy = backhop.Policy(steps=[1, 2], jitter="full")
    assert pickle.loads(pickle.dumps(policy)) == policy


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (backhop.Policy(), backhop.Policy(max=300, max_attempts=10)),
        (backhop.Policy(initial=timedelta(seconds=1)), backhop.Policy(initial=1.0)),
        (backhop.Policy(jitter=0), backhop.Policy(jitter="none")),
        (
            backhop.Policy(steps=[1, 60]),
            backhop.Policy(kind="steps", steps=(1.0, timedelta(minutes=1)), max_attempts=3),
        ),
    ],
)
def test_policies_that_do_the_same_are_equal(one: backhop.Policy, other: backhop.Policy) -> None:
    assert one == other
    assert hash(one) == hash(other)
    assert repr(one) == repr(other)


def test_policies_that_differ_are_not_equal() -> None:
    policies = [
        backhop.Policy(),
        backhop.Policy(initial=2),
        backhop.Policy(factor=3),
        backhop.Policy(jitter=0.3),
        backhop.Policy(jitter="equal"),
        backhop.Policy(kind="linear"),
        backhop.Policy(kind="fixed"),
        backhop.Policy(steps=[1]),
        backhop.Policy(max_crashes=6),
        backhop.Policy(max_deferrals=6),
    ]
    assert len(set(policies)) == len(policies)


def test_a_policy_prints_as_what_makes_it() -> None:
    assert repr(backhop.Policy()) == (
        "Policy(kind='exponential', initial=1, factor=2, max=300, jitter=0.2, max_attempts=10, max_age=0, "
        "max_retry_after=86400, max_crashes=5, max_deferrals=100)"
    )
    for policy in (backhop.Policy(), backhop.Policy(steps=[0.1234, 60], jitter="full"), backhop.Policy(kind="linear")):
        assert eval(repr(policy), {"Policy": backhop.Policy}) == policy
        assert pickle.loads(pickle.dumps(policy)) == policy


def test_a_policy_tells_all_that_it_was_made_of() -> None:
    policy = backhop.Policy(initial=timedelta(seconds=2), factor=3, jitter=0.1)
    assert (policy.initial, policy.factor, policy.steps, policy.spread) == (2, 3, (), 0.1)
    steps = backhop.Policy(steps=[5, 60], jitter="full")
    assert (steps.initial, steps.factor, steps.steps, steps.spread, steps.max_attempts) == (5, 1, (5, 60), 0, 3)
