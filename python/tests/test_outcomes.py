from __future__ import annotations

import re
import sys
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

import backhop
from backhop._handlers import called
from backhop.decider import Decider
from backhop.outcomes import Choice, Conditions, class_of
from backhop.plan import Result


def result_of(exception: BaseException, never: Conditions = (), only: Conditions | None = None) -> Result:
    return Choice(never, only).result(exception)


def test_an_exception_is_a_failure_with_its_name_and_text() -> None:
    assert result_of(OSError("507 queue is full")) == Result("failed", "OSError: 507 queue is full")
    assert result_of(KeyError()) == Result("failed", "KeyError")


def test_a_class_in_never_parks_and_so_do_its_children() -> None:
    assert result_of(UnicodeError("bad"), (ValueError,)).outcome == "permanent"
    assert result_of(OSError("bad"), (ValueError,)).outcome == "failed"


@pytest.mark.parametrize("what", ["ValueError", ValueError("x"), int, None])
def test_what_is_no_class_of_exceptions_cannot_be_in_never(what: Any) -> None:
    for take in (Choice, lambda never: Decider(backhop.Topology("orders"), never=never)):
        with pytest.raises(backhop.ArgumentError, match=rf"^never holds {re.escape(repr(what))}: give classes"):
            take([ValueError, what])


def test_retry_after_is_a_floor() -> None:
    assert result_of(backhop.RetryAfter(30)) == Result("failed", "", 30)
    assert result_of(backhop.RetryAfter(timedelta(minutes=1), "busy")) == Result("failed", "busy", timedelta(minutes=1))


def test_throttled_is_a_floor_and_no_failure() -> None:
    assert result_of(backhop.Throttled(30)) == Result("throttled", "", 30)
    assert result_of(backhop.Throttled("7", "429")) == Result("throttled", "429", 7)
    assert result_of(backhop.Throttled(None, OSError("busy"))) == Result("throttled", "OSError: busy", 0)
    assert str(backhop.Throttled(30, "429")) == "retry after 30 s: 429"
    with pytest.raises(backhop.ArgumentError, match="give"):
        backhop.Throttled(-1)


@pytest.mark.parametrize("inner", [backhop.Park("no"), backhop.Drop(), backhop.RetryAfter(30), backhop.Throttled(30)])
def test_P4_25_only_the_exception_itself_decides(inner: Exception) -> None:
    outer = OSError("507")
    outer.__cause__ = inner
    given: list[BaseException] = [outer]
    if sys.version_info >= (3, 11):
        given.append(ExceptionGroup("of a task group", [inner]))  # noqa: F821
    for exception in given:
        result = result_of(exception)
        assert (result.outcome, result.retry_after) == ("failed", 0)


def test_a_predicate_may_answer_throttled() -> None:
    def busy(error: OSError) -> bool | backhop.Throttled:
        return backhop.Throttled(error.errno or 0) if isinstance(error, OSError) else False

    assert result_of(OSError(7, "busy"), never=busy) == Result("throttled", "OSError: [Errno 7] busy", 7)
    assert result_of(KeyError("k"), never=busy).outcome == "failed"
    assert result_of(OSError(7, "busy"), only=busy) == Result("throttled", "OSError: [Errno 7] busy", 7)
    assert result_of(KeyError("k"), only=busy).outcome == "permanent"
    result = Choice(policies={busy: SLOW}).result(OSError(7, "busy"))
    assert result == Result("throttled", "OSError: [Errno 7] busy", 7, SLOW)


def test_policies_are_for_throttled_too() -> None:
    choice = Choice(policies={Exception: SLOW})
    assert choice.result(backhop.Throttled(5)) == Result("throttled", "", 5, SLOW)


@pytest.mark.parametrize("delay", [-1, float("nan"), b"30", [30]])
def test_retry_after_of_what_is_no_time_fails_where_it_is_raised(delay: Any) -> None:
    with pytest.raises(backhop.ArgumentError, match="give"):
        backhop.RetryAfter(delay)


@pytest.mark.parametrize(
    ("given", "delay"),
    [("30s", "30s"), ("120", 120), (" 7 ", 7), (None, 0), ("", 0), ("soon", 0), ("Sun, 06 Nov 1994 08:49:37 GMT", 0)],
)
def test_T4_retry_after_takes_the_value_of_the_http_header(given: str | None, delay: float | str) -> None:
    assert backhop.RetryAfter(given).delay == delay
    assert result_of(backhop.RetryAfter(given)).outcome == "failed"


def test_T4_retry_after_takes_a_date_of_http() -> None:
    at = datetime.now(timezone.utc) + timedelta(minutes=2)
    delay = backhop.RetryAfter(at.strftime("%a, %d %b %Y %H:%M:%S GMT")).delay
    assert isinstance(delay, float)
    assert 0 < delay <= 120


@pytest.mark.parametrize("verdict", [0, 0.0, timedelta(0)])
def test_T4_a_delay_of_0_is_a_retry(verdict: Any) -> None:
    assert result_of(ValueError(), (), lambda _: verdict) == Result("failed", "ValueError")
    assert result_of(ValueError(), lambda _: verdict) == Result("failed", "ValueError")


def test_T4_none_for_a_missing_header_is_a_retry_with_an_error_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    missing: Any = lambda _: None  # noqa: E731
    assert result_of(ValueError(), (), missing) == Result("failed", "ValueError")
    assert "returned None: return True, False, seconds or Throttled" in caplog.text


@pytest.mark.parametrize("member", ["exceptions", "__cause__", "code", "__class__"])
def test_T13_an_exception_whose_parts_raise_is_a_failure(member: str) -> None:
    class Broken(Exception):  # noqa: N818
        def __getattribute__(self, name: str) -> Any:
            if name == member:
                raise RuntimeError(f"in {name}")
            return super().__getattribute__(name)

    result = result_of(Broken("why"), ValueError, [OSError, Exception])
    assert (result.outcome, result.error) == ("failed", "Broken: why")
    assert class_of(Broken()) == "Broken"


def test_T15_a_retry_after_has_a_text() -> None:
    assert str(backhop.RetryAfter(30)) == "retry after 30 s"
    assert str(backhop.RetryAfter(timedelta(minutes=2), OSError("busy"))) == "retry after 2 min: OSError: busy"
    assert str(backhop.RetryAfter(None, "busy")) == "retry: busy"


def test_park_and_drop_say_what_they_mean() -> None:
    assert result_of(backhop.Park("no such file")) == Result("permanent", "no such file")
    assert result_of(backhop.Drop()) == Result("dropped")


def test_what_an_outcome_was_raised_from_is_the_error() -> None:
    try:
        raise backhop.Park from LookupError("gone")
    except backhop.Park as park:
        assert result_of(park) == Result("permanent", "LookupError: gone")


def test_an_exception_that_cannot_be_printed_is_named() -> None:
    class MuteError(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert result_of(MuteError()) == Result("failed", "MuteError")


def test_a_text_that_is_no_unicode_can_be_written() -> None:
    assert result_of(OSError("lone \ud800")).error == "OSError: lone \\ud800"


def test_an_exception_can_be_given_as_the_reason() -> None:
    assert result_of(backhop.Park(LookupError("gone"))) == Result("permanent", "LookupError: gone")
    assert result_of(backhop.RetryAfter(5, OSError("busy"))) == Result("failed", "OSError: busy", 5)


def test_what_nobody_awaits_was_not_done() -> None:
    async def handle(_: str) -> None: ...

    with pytest.raises(TypeError, match="plain function"):
        called(handle, "message")


class RateLimitedError(Exception):
    def __init__(self, retry_after: float = 0) -> None:
        super().__init__("429")
        self.retry_after = retry_after


def test_one_class_needs_no_list() -> None:
    assert result_of(ValueError("x"), ValueError).outcome == "permanent"


def test_what_is_not_in_only_parks() -> None:
    for only in (OSError, [OSError], (OSError, lambda error: "later" in str(error))):
        assert result_of(ConnectionError("x"), (), only).outcome == "failed"
        assert result_of(ValueError("x"), (), only).outcome == "permanent"
    assert result_of(ValueError("later"), (), (OSError, lambda error: "later" in str(error))).outcome == "failed"
    assert result_of(ValueError("x"), (), []).outcome == "permanent"


def test_never_goes_before_only() -> None:
    assert result_of(ConnectionResetError(), ConnectionResetError, OSError).outcome == "permanent"


@pytest.mark.parametrize("verdict", [30, 30.0, timedelta(seconds=30)])
def test_a_predicate_may_answer_a_delay(verdict: Any) -> None:
    def tells(error: Exception) -> Any:
        return verdict if isinstance(error, RateLimitedError) else False

    for never, only in (((tells,), None), ((), tells)):
        result = result_of(RateLimitedError(), never, only)
        assert (result.outcome, result.retry_after) == ("failed", verdict)
    assert result_of(ValueError(), (), tells).outcome == "permanent"
    assert result_of(ValueError(), tells) == Result("failed", "ValueError")


@pytest.mark.parametrize("verdict", [True, False])
def test_a_predicate_may_answer_yes_or_no(verdict: Any) -> None:
    assert result_of(ValueError(), lambda _: verdict).outcome == ("permanent" if verdict else "failed")
    assert result_of(ValueError(), (), lambda _: verdict).outcome == ("failed" if verdict else "permanent")


@pytest.mark.parametrize("verdict", [None, -1, float("nan"), b"30", ValueError()])
def test_a_predicate_that_fails_is_told_and_parks_nothing(verdict: Any, caplog: pytest.LogCaptureFixture) -> None:
    def fails(_: Exception) -> Any:
        if isinstance(verdict, Exception):
            raise verdict
        return verdict

    for never, only in ((fails, None), ((), fails)):
        caplog.clear()
        assert result_of(OSError("x"), never, only) == Result("failed", "OSError: x")
        assert "a predicate of" in caplog.text


def test_what_a_handler_says_is_above_all_choice() -> None:
    assert result_of(backhop.RetryAfter(5), Exception).outcome == "failed"
    assert result_of(backhop.Drop(), (), OSError).outcome == "dropped"


def test_a_predicate_that_has_to_be_awaited_is_refused() -> None:
    async def never(_: Exception) -> bool:
        return True

    with pytest.raises(backhop.ArgumentTypeError, match="coroutine function"):
        Choice(never)  # type: ignore[arg-type]


# --- What an error says of itself -----------------------------------------------------------------


PAGES: dict[str, str] = {}


def failure(raiser: Any) -> BaseException:
    try:
        raiser()
    except BaseException as error:
        return error
    raise AssertionError


def test_an_error_keeps_what_it_was_raised_from() -> None:
    def explicit() -> None:
        try:
            raise ConnectionRefusedError(111, "Connection refused")
        except OSError as refused:
            raise RuntimeError("the CDN is gone") from refused

    def implicit() -> None:
        try:
            PAGES["page"]
        except KeyError:
            raise ValueError("no page")  # noqa: B904

    def hidden() -> None:
        try:
            PAGES["page"]
        except KeyError:
            raise ValueError("no page") from None

    assert result_of(failure(explicit)).error == (
        "RuntimeError: the CDN is gone; caused by ConnectionRefusedError: [Errno 111] Connection refused"
    )
    assert result_of(failure(implicit)).error == "ValueError: no page; caused by KeyError: 'page'"
    assert result_of(failure(hidden)).error == "ValueError: no page"


@pytest.mark.parametrize(
    ("name", "code", "text"),
    [
        ("code", "ECONNRESET", "ApiError: it broke (code ECONNRESET)"),
        ("status_code", 507, "ApiError: it broke (status_code 507)"),
        ("sqlstate", "40001", "ApiError: it broke (sqlstate 40001)"),
        ("code", lambda: 5, "ApiError: it broke"),
        ("code", None, "ApiError: it broke"),
        ("code", "broke", "ApiError: it broke"),
    ],
)
def test_an_error_keeps_its_code(name: str, code: Any, text: str) -> None:
    error = type("ApiError", (Exception,), {name: code})("it broke")
    assert result_of(error).error == text


def test_a_group_keeps_its_members() -> None:
    class Group(Exception):  # noqa: N818  as ExceptionGroup, which Python 3.10 lacks
        exceptions = (ValueError("a"), OSError("b"), "none")

    assert result_of(Group("two")).error == "Group: two [ValueError: a; OSError: b; 1 more]"


def test_an_error_that_is_its_own_cause_or_is_endless_ends() -> None:
    first, second = ValueError("1"), ValueError("2")
    first.__cause__, second.__cause__ = second, first
    assert result_of(first).error == "ValueError: 1; caused by ValueError: 2"
    last = ValueError("x" * 10**6)
    for i in range(100):
        error = ValueError(str(i))
        error.__cause__, last = last, error
    text = result_of(last).error
    assert text.count("caused by") == 8
    assert len(result_of(ValueError("x" * 10**6)).error) < 1100

    class Endless(Exception):  # noqa: N818
        @property
        def exceptions(self) -> Any:
            return [Endless() for _ in range(9)]

    assert result_of(Endless()).error.count("Endless") == 32


def test_a_reason_keeps_what_it_was_raised_from() -> None:
    def park() -> None:
        try:
            raise LookupError("no such file")
        except LookupError as error:
            raise backhop.Park("nobody has it") from error

    assert result_of(failure(park)) == Result("permanent", "nobody has it; caused by LookupError: no such file")


QUICK, SLOW = backhop.Policy(initial=1), backhop.Policy(initial=600, max=600)


def test_an_exception_is_retried_by_the_policy_of_the_first_condition_that_it_meets() -> None:
    choice = Choice(policies={RateLimitedError: SLOW, lambda error: "soon" in str(error): QUICK, Exception: SLOW})
    policies = [choice.result(each).policy for each in (RateLimitedError(), OSError("soon"), OSError("x"))]
    assert [policy is not None and policy.initial for policy in policies] == [600, 1, 600]
    assert Choice(policies={RateLimitedError: SLOW}).result(OSError()).policy is None


def test_never_only_and_what_a_handler_says_go_before_policies() -> None:
    choice = Choice(never=ValueError, only=(OSError, ValueError), policies={Exception: SLOW})
    assert choice.result(ValueError()) == Result("permanent", "ValueError")
    assert choice.result(KeyError()) == Result("permanent", "KeyError")
    assert choice.result(backhop.Park("x")) == Result("permanent", "x")
    assert choice.result(backhop.Drop()) == Result("dropped")
    assert choice.result(backhop.RetryAfter(5)) == Result("failed", "", 5, SLOW)


def test_a_predicate_of_policies_may_answer_a_delay_too() -> None:
    def tells(error: RateLimitedError) -> float:
        return error.retry_after

    choice = Choice(policies={tells: SLOW})
    assert choice.result(RateLimitedError(30)) == Result("failed", "RateLimitedError: 429", 30, SLOW)
    assert choice.result(RateLimitedError(0)) == Result("failed", "RateLimitedError: 429", 0, SLOW)


def test_a_predicate_of_policies_that_fails_is_met_by_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def fails(error: Exception) -> bool:
        raise LookupError

    assert Choice(policies={fails: SLOW}).result(OSError()).policy is None
    assert "a predicate of policies failed" in caplog.text


def test_a_policy_whose_waits_the_topology_lacks_is_refused() -> None:
    topology = backhop.Topology("orders", QUICK)
    with pytest.raises(backhop.ForeignPolicyError, match=r"^policies\[<class 'OSError'>\] is .*make it with Topology"):
        Decider(topology, policies={OSError: SLOW})
    Decider(backhop.Topology("orders", QUICK, policies=[SLOW]), policies={OSError: SLOW})
