"""Wrong values are refused before anything is sent: by an error of this package, in the user's names and units."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from live import needs_worker

import backhop
from backhop.observe.observer import Observer
from backhop.testing import rehearse

POLICY = backhop.Policy()
TOPOLOGY = backhop.Topology("orders")
MUCH = "x" * 300


class Unrelated:
    """No value of any option."""

    def __repr__(self) -> str:
        return "<an object>"


THING = Unrelated()

NO_TIMES: list[Any] = ["10", b"10", "", None, True, [1], {}, THING, 1j, math.nan]
NO_COUNTS: list[Any] = ["2", 2.5, 2.0, True, False, [2], THING, math.inf]
NO_NAMES: list[Any] = [None, 7, True, [], THING, 1.5]
NO_TEXTS: list[Any] = [*NO_NAMES[1:], "", MUCH]
NO_CHOICE: list[Any] = [
    "ValueError",
    int,
    THING,
    None,
    7,
    {},
    ["ValueError"],
    [ValueError, None],
    [int],
    [ValueError()],
]
NO_POLICY: list[Any] = [{}, {"initial": 1}, "fast", 3, backhop.Policy, THING, True]
NO_WORDS: list[Any] = ["cubic", "", 1.5, THING, [], "LADDER", True]


def of_policy() -> dict[str, list[Any]]:
    """Wrong values of Policy's options."""
    return {
        "initial": [*[each for each in NO_TIMES if each is not None], -1, 0, 1e9, timedelta(-1), math.inf],
        "factor": ["2", True, [2], THING, 0.5, -1, math.inf, math.nan, 0, 10**400, -(10**400)],
        "max": [*[each for each in NO_TIMES if each is not None], -1, 0, 1e9],
        "jitter": [None, True, False, "wild", "", 1.5, -0.1, math.nan, [0.2], THING, 10**400],
        "max_attempts": [*NO_COUNTS, -1, 10**10],
        "kind": ["cubic", "", 7, THING, "steps", True],
        "steps": ["123", 5, {"a": 1}, THING, [-1], [0], ["1"], [None], [True], [math.nan], [1e9], [1] * 1001],
        "max_age": [*NO_TIMES, -1, 1e9],
        "max_retry_after": [*NO_TIMES, -1, 1e9],
        "max_crashes": [*NO_COUNTS, None, -1, 10**10],
        "max_deferrals": [*NO_COUNTS, None, -1, 10**10],
    }


def of_topology() -> dict[str, list[Any]]:
    """Returns Topology's wrong values, which retriers, the worker and rehearsals take too."""
    return {
        "policy": NO_POLICY,
        "strategy": NO_WORDS,
        "queue_type": NO_WORDS,
        "namespace": [*NO_TEXTS, "amq.mine", "a\0b", b"\xff"],
        "series": ["10", 7, 10.0, True, None, THING],
        "work_queue": [*NO_WORDS, False],
        "work_queue_arguments": [
            "x",
            7,
            [1],
            THING,
            {7: 1},
            {"": 1},
            {"x": 1.5},
            {"x": None},
            {"x": True},
            {"x": 2**64},
        ],
    }


async def awaited(event: backhop.Event) -> None:
    """A listener that no code awaits."""


def of_consumers() -> dict[str, list[Any]]:
    """Returns the wrong values of retriers and the worker."""
    return {
        "queue": [*NO_NAMES[1:], "", MUCH, "amq.mine", "a\0b", b"\xff"],
        "topology": ["orders", POLICY, {}, THING, True],
        "never": NO_CHOICE,
        "only": [each for each in NO_CHOICE if each is not None],
        "policies": [
            "slow",
            7,
            POLICY,
            THING,
            True,
            [(OSError, POLICY)],
            {OSError: None},
            {OSError: 7},
            {"OSError": POLICY},
            {int: POLICY},
            {None: POLICY},
        ],
        "mode": [*NO_WORDS, None],
        "legacy_counter": NO_TEXTS,
        "wait_queues": ["wait", b"wait", None, 7, THING, {}, [None], [""], [7], [MUCH]],
        "confirm_timeout": [*NO_TIMES, -1, 0, 4000, math.inf],
        "back_off": NO_POLICY,
        "breaker": ["api", 7, {}, backhop.Breaker, THING, True],
        "on_event": [
            "print",
            7,
            True,
            THING,
            {print},
            [7],
            [[]],
            awaited,
            partial(awaited),
            [print, awaited],
            Observer,
        ],
    }


def refused(option: str, value: Any, call: Callable[[], object]) -> str:
    """Returns the text of the error. It must be one of the package's own that names the option as the user does."""
    with pytest.raises(backhop.Error) as raised:
        call()
    text = str(raised.value)
    assert isinstance(raised.value, ValueError | TypeError)
    assert re.search(rf"\b{option}\b", text) or option == "steps", text
    assert not re.search(r"_ms\b|\bbh_|\bBH_|SWIG|argument \d|_handle|C type|NoneType|in method", text), text
    assert ": " in text, "it says what to give"
    return text


def cases(*tables: dict[str, list[Any]]) -> pytest.MarkDecorator:
    rows = [(option, value) for table in tables for option, values in table.items() for value in values]
    ids = [f"{option}={value!r:.40}" for option, value in rows]
    return pytest.mark.parametrize(("option", "value"), rows, ids=ids)


@cases(of_policy())
def test_a_policy_is_refused(option: str, value: Any) -> None:
    refused(option, value, lambda: backhop.Policy(**{option: value}))


@cases({"queue": of_consumers()["queue"]}, of_topology())
def test_a_topology_is_refused(option: str, value: Any) -> None:
    refused(option, value, lambda: backhop.Topology(**{"queue": "orders", option: value}))


@needs_worker
@cases(
    of_topology(),
    of_consumers(),
    {
        "uri": [None, 7, {}, THING, [], [None], [7]],
        "threads": [*NO_COUNTS, None, 0, -1],
        "prefetch": [*NO_COUNTS, None, -1, 65536],
        "ca_file": [7, THING, "", True, []],
        "cert": [7, THING, "", True, []],
        "key": [7, THING, "", True, [], "/key-without-cert.pem"],
        "connect_timeout": [*NO_TIMES, -1, 0, 4000],
        "drain": [*NO_TIMES, -1, 3601],
        "fail_fast": [None, 1, "yes", THING],
        "retry_events": [None, 1, "yes", THING],
    },
)
def test_a_worker_is_refused(option: str, value: Any) -> None:
    given = {"uri": "amqp://localhost", **({} if option == "topology" else {"queue": "orders"}), option: value}
    text = refused(option if option != "uri" else "(uri|URI)", value, lambda: backhop.Worker(**given))
    assert "localhost" not in text


@pytest.mark.parametrize("adapter", ["pika", "aio_pika"])
@cases(
    of_topology(), of_consumers(), {"clock": [7, "now", THING], "random": [7, "bits", THING], "channel": [None, "c"]}
)
def test_a_retrier_is_refused(adapter: str, option: str, value: Any) -> None:
    retrier: Any = pytest.importorskip(f"backhop.{adapter}").Retrier
    given = {"channel": None, **({} if option == "topology" else {"queue": "orders"}), option: value}
    refused(option, value, lambda: retrier(**given))


@cases(
    of_topology(),
    {key: value for key, value in of_consumers().items() if key in ("queue", "topology", "never", "only", "policies")},
    {"body": ["text", None, 7], "most_attempts": [0, 2.5, "7"], "most_attemts": [7]},
)
def test_a_rehearsal_is_refused(option: str, value: Any) -> None:
    options: dict[str, Any] = {option: value}
    refused(option, value, lambda: rehearse(lambda _: None, **options))


@cases(
    {
        "exchange": NO_NAMES,
        "routing_key": NO_NAMES,
        "message_id": [7, True, [], THING],
        "timestamp": ["now", True, [], THING],
        "expiration": [True, [], THING],
        "hearders": ["x"],
        "headers": [7, True, [1], {7: 1}, {"a": THING}, {"a": {"b": [THING]}}, {"a": backhop.Typed("int8", "x")}, "ab"],
    }
)
def test_a_delivery_is_refused(option: str, value: Any) -> None:
    if option in ("exchange", "routing_key", "headers"):
        refused("header|headers" if option == "headers" else option, value, lambda: backhop.Delivery(**{option: value}))
    else:
        refused(option, value, lambda: backhop.Delivery(properties={option: value}))


@cases(
    {
        "history": NO_NAMES,
        "topology": NO_NAMES,
        "outcome": NO_WORDS,
        "error": [None, 7, ValueError("x"), THING],
        "retry_after": NO_TIMES,
        "frame_max": [*NO_COUNTS, -1],
        "now": ["now", None, True, THING][::2],
        "random": ["x" * 32, b"x", 7, THING],
    }
)
def test_a_plan_is_refused(option: str, value: Any) -> None:
    history = backhop.History(backhop.Delivery(), TOPOLOGY)
    given = {"history": history, "topology": TOPOLOGY, option: value}
    refused(option if option != "now" else "a time", value, lambda: backhop.Plan(**given))


@cases({"delivery": NO_NAMES, "topology": ["orders", 7, THING], "legacy_counter": NO_TEXTS[1:]})
def test_a_history_is_refused(option: str, value: Any) -> None:
    given = {"delivery": backhop.Delivery(), option: value}
    refused(option, value, lambda: backhop.History(**given))


@pytest.mark.parametrize("handler", [None, "handle", 7, [], THING])
def test_what_cannot_be_called_handles_nothing(handler: Any) -> None:
    with pytest.raises(backhop.ArgumentTypeError, match=r"^the handler is .*: give a function"):
        rehearse(handler)


@needs_worker
@pytest.mark.parametrize("handler", [None, "handle", 7, [], THING])
def test_what_cannot_be_called_runs_no_worker(handler: Any) -> None:
    with pytest.raises(backhop.ArgumentTypeError, match=r"^the handler is .*: give a function"):
        backhop.Worker("amqp://localhost", "orders").run(handler)


@pytest.mark.parametrize("delay", [True, b"30", -30, timedelta(-1), math.nan])
def test_a_retry_after_is_refused_where_it_is_raised(delay: Any) -> None:
    with pytest.raises(backhop.ArgumentError, match=r"^delay is .*: give seconds"):
        backhop.RetryAfter(delay)


@pytest.mark.parametrize("attempt", [0, -1, 1.5, "1", True, None])
def test_an_attempt_that_cannot_be_has_no_delay(attempt: Any) -> None:
    for ask in (POLICY.delay, POLICY.row, TOPOLOGY.row, TOPOLOGY.shares):
        with pytest.raises(backhop.ArgumentError, match=r"^attempt is .*: give a whole number, 1 or more"):
            ask(attempt)


@pytest.mark.parametrize("random", [7, 1, 1.0, -0.1, math.nan, math.inf, "0.5", None, True])
def test_a_random_number_outside_its_range_has_no_delay(random: Any) -> None:
    with pytest.raises(backhop.ArgumentError, match=r"^random is .*: give a number from 0 to below 1$"):
        POLICY.delay(1, random=random)


def test_what_is_no_text_is_no_broker_and_no_vhost() -> None:
    for value in NO_NAMES:
        with pytest.raises(backhop.ArgumentTypeError, match=r"^product is .*, as str or bytes$"):
            TOPOLOGY.check_broker(value, "4.1.0")
        with pytest.raises(backhop.ArgumentTypeError, match=r"^version is .*, as str or bytes$"):
            TOPOLOGY.check_broker("RabbitMQ", value)
        with pytest.raises(backhop.ArgumentTypeError, match=r"^vhost is .*, as str or bytes$"):
            TOPOLOGY.definitions(value)


@pytest.mark.parametrize("name", ["", b""])
def test_a_breaker_needs_a_name(name: str | bytes) -> None:
    text = f"the name of a Breaker is {name!r}: give a name of 1 to 64 bytes, as the downstream's"
    with pytest.raises(backhop.ArgumentError, match=f"^{re.escape(text)}$"):
        backhop.Breaker(name)


@pytest.mark.parametrize("failures", [-1, 10**9, 1.5, "7", True])
def test_a_preview_of_what_nobody_reads_is_refused(failures: Any) -> None:
    with pytest.raises(backhop.ArgumentError, match=r"^failures is .*: give a whole number, from 0 to 10000"):
        POLICY.preview(failures)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"steps": [1, 2], "initial": 5}, "initial is given, and the kind steps has no use for it: leave it out"),
        ({"steps": [1, 2], "initial": 1}, "initial is given, and the kind steps has no use for it: leave it out"),
        ({"steps": [1, 2], "factor": 2}, "factor is given, and the kind steps has no use for it: leave it out"),
        ({"kind": "linear", "factor": 3}, "factor is given, and the kind linear has no use for it: leave it out"),
        ({"kind": "fixed", "factor": 2}, "factor is given, and the kind fixed has no use for it: leave it out"),
        ({"initial": 10, "max": 5}, "initial is 10 s, above max 5 s: raise max or lower initial"),
        ({"steps": [1, 60], "max": 1.5}, "step 2 is 60 s, above max 1.5 s: raise max or lower the step"),
        ({"steps": [1], "kind": "fixed"}, "steps are given, but kind is another"),
        ({"initial": timedelta(days=-1)}, "initial is datetime.timedelta(days=-1): give seconds, from 0.001"),
    ],
)
def test_options_that_contradict_each_other_are_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(backhop.PolicyError) as raised:
        backhop.Policy(**options)
    assert str(raised.value).startswith(text)


@pytest.mark.parametrize(
    ("queue", "why"),
    [
        ("", "give a name of 1 to 247 bytes"),
        ("x" * 248, "it has 248 bytes: give a name of at most 247"),
        ("amq.gen-1", 'names that begin with "amq." are the broker\'s'),
        ("a\0b", "it has a zero byte in it"),
        (b"\xff", "it is not UTF-8"),
    ],
)
def test_a_name_is_refused_with_its_reason(queue: Any, why: str) -> None:
    with pytest.raises(backhop.InvalidNameError) as raised:
        backhop.Topology(queue)
    assert str(raised.value).startswith("queue is ")
    assert why in str(raised.value)


@pytest.mark.parametrize(
    "options",
    [{"queue": "orders"}, {"policy": POLICY}, {"strategy": "reject"}, {"namespace": "ns"}, {"work_queue": "quorum"}],
)
def test_a_topology_comes_with_no_option_that_it_has_itself(options: dict[str, Any]) -> None:
    with pytest.raises(backhop.ArgumentTypeError, match="is given, and a topology, which has its own"):
        rehearse(lambda _: None, topology=TOPOLOGY, **options)


def test_an_unknown_option_is_named() -> None:
    anything: Any = backhop
    calls: list[Callable[[], Any]] = [
        lambda: anything.Policy(max_attemts=3),
        lambda: anything.Topology("orders", stategy="ladder"),
        lambda: anything.Worker("amqp://localhost", "orders", thread=3),
    ]
    for call in calls:
        with pytest.raises(TypeError, match=r"max_attemts|stategy|'thread'"):
            call()


@pytest.mark.parametrize(
    "given",
    [
        lambda text: backhop.Topology(text, backhop.Policy()),
        lambda text: backhop.Topology("orders", backhop.Policy(), namespace=text),
        lambda text: backhop.History(backhop.Delivery(), legacy_counter=text),
        lambda text: rehearse(print, queue=text),
    ],
)
def test_T15_a_lone_surrogate_in_a_name_is_an_error_of_the_package(given: Any) -> None:
    try:
        given("q\ud800")
    except backhop.Error:
        return
    except UnicodeEncodeError as error:
        raise AssertionError("a bare error") from error
