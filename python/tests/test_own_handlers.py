"""P4-1, P4-2: handlers whose work does not run, and subclasses of Park, RetryAfter and Throttled."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any
from unittest.mock import MagicMock, Mock

import pytest
from live import needs_worker

import backhop
from backhop._handlers import check_handler
from backhop.outcomes import Choice, class_of
from backhop.testing import rehearse, rehearse_async


def generator(_: backhop.Message) -> Iterator[None]:
    yield


async def async_generator(_: backhop.Message) -> AsyncIterator[None]:
    yield


class Purge:
    def __call__(self, _: backhop.Message) -> Iterator[None]:
        yield


FORGOTTEN: list[Any] = [generator, async_generator, Purge(), partial(generator), partial(async_generator)]


@pytest.mark.parametrize("handle", FORGOTTEN)
def test_a_handler_with_a_yield_is_refused(handle: Any) -> None:
    for refuse in (check_handler, rehearse, lambda handle: asyncio.run(rehearse_async(handle))):
        with pytest.raises(backhop.ArgumentTypeError, match=r"is a generator function.*remove the yield"):
            refuse(handle)


@needs_worker
@pytest.mark.parametrize("handle", FORGOTTEN)
def test_a_worker_refuses_a_handler_with_a_yield(handle: Any) -> None:
    worker = backhop.Worker("amqp://localhost", queue="orders")
    with pytest.raises(backhop.ArgumentTypeError, match="remove the yield"):
        worker.run(handle)
    with pytest.raises(backhop.ArgumentTypeError, match="remove the yield"):
        asyncio.run(worker.serve(handle))


def errors(handle: Any) -> str:
    rehearsal = rehearse(handle, policy=backhop.Policy(max_attempts=1))
    assert rehearsal.outcome == "parked"
    return str(rehearsal[0].error)


def test_a_result_that_nothing_waits_for_is_a_failed_attempt() -> None:
    async def work() -> None: ...

    async def forgets_await(_: backhop.Message) -> Any:
        return work()

    async def returns_task(_: backhop.Message) -> Any:
        return asyncio.ensure_future(work())

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        assert "returned a Future" in errors(lambda _: pool.submit(print))
    assert "returned a generator" in errors(partial(lambda give, _: give(_), generator))
    assert "returned a generator" in errors(partial(lambda give, _: give(_), async_generator))
    assert "returned an awaitable, and Backhop awaits none here" in errors(lambda _: work())
    assert "returned an awaitable, and nothing awaits it" in errors(forgets_await)
    assert "returned an awaitable, and nothing awaits it" in errors(returns_task)


@pytest.mark.parametrize("result", [None, 0, "", True, [], {}, object(), iter(()), Mock(), MagicMock()])
def test_any_other_result_is_a_success(result: object) -> None:
    async def handle(_: backhop.Message) -> Any:
        return result

    assert rehearse(lambda _: result).outcome == "acked"  # type: ignore[arg-type, return-value]
    assert rehearse(handle).outcome == "acked"


class NoSuchPage(backhop.Park):
    def __init__(self, page: str) -> None:
        self.page = page


class Busy(backhop.RetryAfter):
    def __init__(self, page: str) -> None:
        self.page = page

    def __str__(self) -> str:
        return f"{self.page} is busy"


class Limited(backhop.Throttled):
    def __init__(self) -> None: ...


def result_of(exception: BaseException) -> tuple[Any, ...]:
    result = Choice().result(exception)
    return result.outcome, result.error, result.retry_after, result.whole_queue


def test_a_subclass_need_not_call_the_constructor() -> None:
    assert result_of(NoSuchPage("/x")) == ("permanent", "/x", 0, False)
    assert result_of(Busy("/x")) == ("failed", "/x is busy", 0, False)
    assert result_of(Limited()) == ("throttled", "", 0, False)
    assert str(Limited()) == "retry"
    assert [class_of(each) for each in (NoSuchPage("/x"), Busy("/x"), Limited())] == ["NoSuchPage", "Busy", "Limited"]


def raising(base: type[Exception], name: str) -> Exception:
    def fail(_: object) -> None:
        raise ValueError("unreadable")

    unreadable: Any = type("Unreadable", (base,), {name: property(fail), "__init__": lambda _: None})
    made: Exception = unreadable()
    return made


@pytest.mark.parametrize(
    ("make", "outcome"),
    [
        (lambda: raising(backhop.Park, "reason"), "permanent"),
        (lambda: raising(backhop.RetryAfter, "error"), "failed"),
        (lambda: raising(backhop.RetryAfter, "delay"), "failed"),
        (lambda: raising(backhop.Throttled, "whole_queue"), "failed"),
    ],
)
def test_an_outcome_that_cannot_be_read_ends_no_consumer(
    make: Callable[[], Exception], outcome: str, caplog: pytest.LogCaptureFixture
) -> None:
    exception = make()
    assert result_of(exception)[0] == outcome
    assert class_of(exception) == "Unreadable"
    assert f"is unreadable: the message is {'parked' if outcome == 'permanent' else 'tried again'}" in caplog.text


@pytest.mark.parametrize("delay", ["soon", -1, object()])
def test_a_delay_that_is_none_counts_as_none(delay: object) -> None:
    class Busy(backhop.RetryAfter):
        def __init__(self) -> None:
            self.delay = delay  # type: ignore[assignment]

    def handle(_: backhop.Message) -> None:
        raise Busy

    rehearsal = rehearse(handle, policy=backhop.Policy(max_attempts=2, initial=1, jitter="none"))
    assert (rehearsal.outcome, rehearsal.delays) == ("parked", [1])
