"""The contract for handlers: each case of tests/contract/cases.json over each carrier of Python."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import json
import logging
import os
import signal
import sys
import threading
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import CancelledError, Future
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
from live import CONTROL, PATIENCE, URL, Broker, needs_broker, needs_worker, until
from support import delete_namespace, there

import backhop
from backhop import Message
from backhop.testing import rehearse

pytest.importorskip("pika")
pytest.importorskip("aio_pika")

from clients import connected

CASES = Path(__file__).parents[3] / "tests" / "contract" / "cases.json"
FILE: Any = (
    json.loads(CASES.read_text(encoding="utf-8")) if CASES.exists() else {"carriers": {"python": {}}, "cases": []}
)
ONLY_FIRST = os.environ.get("BACKHOP_CONTRACT") == "first"
CLASSES: dict[str, str] = FILE["carriers"]["python"]
if CLASSES:
    CLASSES["pika-threads"] = "consumer"  # pika with handlers in threads

pytestmark = [needs_broker, pytest.mark.filterwarnings("default"), pytest.mark.filterwarnings("ignore:.*unraisable")]

PLAYED_ELSEWHERE = {
    "retry-after-http-none": "test_outcomes.py has the values of RetryAfter",
    "kills-process": "tests/live/test_crashes.c kills the worker's process, test_adapters_live.py has max_crashes",
    "acks-itself": "test_handlers_live.py: test_a_ported_handler_that_still_acknowledges_is_told_so",
    "nacks-itself": "test_handlers_live.py: test_a_ported_handler_that_still_acknowledges_is_told_so",
    "closes-channel": "test_consumers_live.py: test_the_contract_closes_channel",
    "never-ends": "test_consumers_live.py: test_the_contract_never_ends",
    "blocks-loop": "test_consumers_live.py: test_T11_a_handler_that_holds_the_event_loop_is_named",
    "fails-in-drain": "test_stops_live.py: test_P4_3_a_stop_waits_for_the_handlers_that_run",
    "stop-too-late": "test_worker.py: a handler that ends after the drain",
}


@pytest.fixture(autouse=True)
def _collected(request: pytest.FixtureRequest) -> Iterator[None]:
    """A program that ends leaves its event loop: the warnings come here, and not in another test."""
    yield
    if "[ends-program" in request.node.name:
        gc.collect()


class PanicException(BaseException):
    """As pyo3's."""


class Broken(Exception):  # noqa: N818
    """Raises wherever it is looked at."""

    member = ""

    def __getattribute__(self, name: str) -> Any:
        wanted = {"cause": "__cause__", "code": "code", "members": "exceptions"}.get(type(self).member)
        if name == wanted:
            raise RuntimeError(f"in {name}")
        return super().__getattribute__(name)

    def __str__(self) -> str:
        if type(self).member == "text":
            raise RuntimeError("in __str__")
        return "broken"


async def async_generator() -> AsyncIterator[None]:
    yield


class NoSuchPage(backhop.Park):
    def __init__(self, page: str) -> None:
        self.page = page


class WordyPark(NoSuchPage):
    def __str__(self) -> str:
        return f"no such page: {self.page}"


class UnreadablePark(NoSuchPage):
    @property
    def reason(self) -> str:  # type: ignore[override]
        raise AttributeError("no reason")


class Shy(Exception):  # noqa: N818
    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        raise RuntimeError("in __class__")


class Closed(Exception):  # noqa: N818
    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(f"in {name}")


class _Nameless(type):
    @property
    def __name__(cls) -> str:  # type: ignore[override]
        raise RuntimeError("in __name__")


class Nameless(Exception, metaclass=_Nameless):  # noqa: N818
    pass


P4_9 = {"its class": Shy, "every attribute": Closed}


def broken(member: str) -> BaseException:
    if member in P4_9:
        return P4_9[member]()
    return Nameless() if member == "class name" else type("Broken", (Broken,), {"member": member})()


RAISED: dict[str, Callable[[], BaseException]] = {
    "BaseException": lambda: BaseException("boom"),
    "BaseExceptionGroup": lambda: BaseExceptionGroup("several", [ValueError("a"), KeyboardInterrupt()]),  # noqa: F821
    "GeneratorExit": GeneratorExit,
    "a subclass of BaseException": lambda: PanicException("boom"),
    "SystemExit": lambda: SystemExit(3),
    "KeyboardInterrupt": KeyboardInterrupt,
}
# P4-1: work that nothing ran, whose message was acknowledged
UNFINISHED: dict[str, Callable[[], object]] = {
    "a generator": lambda: (_ for _ in ()),
    "an async generator": async_generator,
    "a Future of a pool": Future,
    "a coroutine": lambda: asyncio.sleep(0),
}
# P4-2: these ended the consumer
PARKS: dict[str, Callable[[], backhop.Park]] = {
    "without a text of its own": lambda: NoSuchPage("/old/page"),
    "with a text": lambda: WordyPark("/old/page"),
    "with a reason that raises": lambda: UnreadablePark("/old/page"),
}


def caused_by_a_park() -> BaseException:
    error = OSError("boom")
    error.__cause__ = backhop.Park("inside")
    return error


# P4-25: asyncio.TaskGroup raises such a group
PARKS_INSIDE: dict[str, Callable[[], BaseException]] = {
    "in a group": lambda: ExceptionGroup("several", [OSError("boom"), backhop.Park("inside")]),  # noqa: F821
    "as a cause": caused_by_a_park,
}
# P4-12: how the handler ends in the child, and the status of the child
FORKED = {"returns": 1, "an error": 1, "SystemExit": 3}
CONTEXT: contextvars.ContextVar[str] = contextvars.ContextVar("context", default="clean")


def fork(variant: str) -> None:
    """Forks. Waits for the child, and compares its status."""
    if child := os.fork():
        end = time.monotonic() + PATIENCE
        while not (ended := os.waitpid(child, os.WNOHANG))[0]:
            if time.monotonic() > end:
                os.kill(child, signal.SIGKILL)
            time.sleep(0.01)
        assert os.waitstatus_to_exitcode(ended[1]) == FORKED[variant]
    elif variant == "an error":
        raise OSError("boom")
    elif variant == "SystemExit":
        sys.exit(3)


def ends_of(case: dict[str, Any], variant: str) -> Callable[[Message], object]:
    """Returns the handler of a case."""

    def ends(message: Any) -> object:
        of = case["id"]
        if of == "returns-unfinished":
            return UNFINISHED[variant]()
        if of == "park-subclass":
            raise PARKS[variant]()
        if of == "park-inside":
            raise PARKS_INSIDE[variant]()
        if of == "forks":
            fork(variant)
            return None
        if of == "park":
            raise backhop.Park("boom")
        if of == "drop":
            raise backhop.Drop
        if of == "retry-after":
            raise backhop.RetryAfter(60)
        if of == "throttled":
            raise backhop.Throttled(60)
        if of in ("base-error", "ends-program"):
            raise RAISED[variant]()
        if of == "broken-error":
            raise broken(variant)
        if of == "cyclic-cause":
            error, other = OSError("boom"), ValueError("other")
            error.__cause__, other.__cause__ = other, error
            raise error
        if of == "changes-message":
            message.headers["tenant"] = "changed"
            if hasattr(message, "properties"):
                message.properties.headers["tenant"] = "changed"
            if hasattr(message, "incoming"):
                message.incoming.headers["tenant"] = "changed"
        if of in ("too-long", "busy"):
            time.sleep(1.5 * case["timeout_ms"] / 1000)
        elif of not in ("returns", "clean-context", "stop-aborts"):
            raise OSError("boom")
        return None

    return ends


class Player:
    """The handler of a case, and all that it and its carrier report."""

    def __init__(self, case: dict[str, Any], variant: str, carrier: str) -> None:
        self.case = case
        self.carrier = carrier
        self.ends = ends_of(case, variant)
        self.events: list[backhop.Event] = []
        self.handled: list[str] = []
        self.contexts: list[str] = []
        self.failure: BaseException | None = None

    def on_event(self, event: backhop.Event) -> None:
        self.events.append(event)

    def __call__(self, message: Message) -> Any:
        self.handled.append(message.message_id or "")
        self.contexts.append(CONTEXT.get())
        if message.message_id == "bad" and self.case["id"] == "busy" and self.carrier == "worker":
            until(lambda: "busy" in [event.name for event in self.events])
        CONTEXT.set("left behind")
        return self.ends(message) if message.message_id == "bad" else None

    async def serve(self, message: Message) -> Any:
        if message.message_id == "bad" and self.case["id"] == "cancels-itself":
            self.handled.append("bad")
            task = asyncio.current_task()
            assert task
            task.cancel()
            await asyncio.sleep(PATIENCE)
        if message.message_id == "bad" and self.case["id"] in ("too-long", "stop-aborts"):
            self.handled.append("bad")
            await asyncio.sleep(PATIENCE)
        return self(message)

    def of_bad(self) -> list[str]:
        return [event.name for event in self.events if event.id == "bad" or not event.id]

    def saw(self, name: str) -> backhop.Event:
        until(lambda: name in [event.name for event in self.events if event.id in ("bad", "")])
        return next(event for event in self.events if event.name == name and event.id in ("bad", ""))


@contextlib.contextmanager
def carried(carrier: str, queue: str, player: Player, options: dict[str, Any]) -> Iterator[Callable[[], object]]:
    """Consumes the queue by a carrier. An exception that ends it becomes the player's failure.

    Gives a function that stops the carrier, and aborts its handlers.
    """
    options = {**options, "on_event": player.on_event}
    limit: dict[str, Any] = {"timeout": f"{player.case['timeout_ms']}ms"} if "timeout_ms" in player.case else {}
    if carrier in ("worker", "worker-async"):
        worker = backhop.Worker(URL, queue, retry_events=True, threads=1, drain=5, prefetch=5, **options, **limit)

        stops: list[Callable[[], object]] = []

        async def serve() -> None:
            serving = asyncio.create_task(worker.serve(player.serve))
            loop = asyncio.get_running_loop()
            stops.append(lambda: loop.call_soon_threadsafe(serving.cancel))
            with contextlib.suppress(asyncio.CancelledError):
                await serving

        def work() -> None:
            try:
                if carrier == "worker":
                    worker.run(player)
                else:
                    asyncio.run(serve())
            except BaseException as failure:
                player.failure = failure

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        try:
            yield lambda: [stop() for stop in stops]
        finally:
            if player.case["id"] != "ends-program":  # that ends by itself, and a stop would give it more time
                worker.stop()
            thread.join(PATIENCE)
            assert not thread.is_alive()
        return
    is_async = carrier.startswith("aio-pika")
    handle: Any = player.serve if is_async else player
    with connected("aio-pika" if is_async else "blocking", URL, queue, handle, **options) as consumer:
        consumer.declare()
        consumer.consuming.update(limit)
        if player.case["id"] == "stop-aborts":
            consumer.drain = 0.1
        if carrier == "pika-threads":
            consumer.consuming["threads"] = 4
        if carrier.endswith("-wrap"):
            consumer.begin()
        else:
            with contextlib.suppress(CancelledError):  # if a handler ended the program already
                consumer.begin_by_itself()
        yield consumer.stop
        if player.case["id"] == "ends-program":
            until(lambda: consumer.failure is not None)
            player.failure = consumer.failure
            if is_async:  # its loop is over, and its process would be
                for transport in list(consumer.loop._transports.values()):
                    if transport._sock:
                        transport._sock.close()
            else:
                consumer.connection.close()


def without(case: dict[str, Any], carrier: str) -> str:
    """Why a carrier does not have the case; "" if it has it."""

    def names(key: str) -> bool:
        of = carrier.removesuffix("-threads")
        return fnmatch("python", key) if "/" not in key else fnmatch(f"python/{of}", key)

    reasons = [reason for key, reason in case.get("without", {}).items() if names(key)]
    if "only" in case and not any(names(key) for key in case["only"]):
        reasons += case["only"].values()
    if case["id"] == "busy" and carrier in ("worker-async", "aio-pika", "pika-threads"):
        reasons.append("the handler is aborted, or the other threads are free")
    if "timeout_ms" in case and carrier.endswith("-wrap"):
        reasons.append("the retrier has no time limit for handlers that the application calls")
    if case["id"] == "too-long" and carrier == "rehearse":
        reasons.append("a rehearsal has no time limit")
    if case["id"] == "cancels-itself" and sys.version_info < (3, 11):
        reasons.append("Python 3.10 does not report whose task was cancelled")
    return reasons[0] if reasons else ""


def plays(*, only_first: bool = False) -> list[Any]:
    """Each case with each of its values, over each carrier that can have it. Or the first cases, none of them long."""
    found = []
    for case in FILE["cases"]:
        for carrier in CLASSES:
            if case["id"] in PLAYED_ELSEWHERE or without(case, carrier) or (only_first and "first" not in case):
                continue
            marks = [] if only_first or carrier in ("worker", "pika", "rehearse") else [pytest.mark.long]
            members = [*case["members"], *P4_9] if "members" in case else [""]
            for variant in case.get("raises", {}).get("python") or members:
                if variant in ("BaseExceptionGroup", "in a group") and sys.version_info < (3, 11):
                    continue  # Python 3.10 has no groups of exceptions
                name = f"{case['id']}{f' {variant}' if variant else ''}, {carrier}"
                found.append(pytest.param(case, variant, carrier, id=name, marks=marks))
    return found


def policy_of(case: dict[str, Any]) -> backhop.Policy:
    given = {**FILE["defaults"]["policy"], **case.get("policy", {})}
    return backhop.Policy(
        initial=given["initial_ms"] / 1000, jitter=given["jitter"], max_attempts=given["max_attempts"]
    )


@pytest.fixture(scope="module")
def namespaces() -> Iterator[dict[str, str]]:
    """A namespace for each type of wait queues. No case harms it, so all share it: it has dozens of queues."""
    names = {kind: f"test-{uuid.uuid4().hex}" for kind in ("quorum", "classic")}
    yield names
    if not CONTROL:  # a private broker ends with the tests
        broker = Broker()
        for name in names.values():
            delete_namespace(broker, name, *{policy_of(case) for case in FILE["cases"]})
        broker.close()


@pytest.mark.skipif(not CASES.exists(), reason="the cases are not beside these tests")
def test_each_case_is_played_here_or_elsewhere() -> None:
    ids = {case["id"] for case in FILE["cases"]}
    assert ids >= set(PLAYED_ELSEWHERE)
    cannot = {case["id"] for case in FILE["cases"] if all(without(case, carrier) for carrier in CLASSES)}
    assert cannot | PLAYED_ELSEWHERE.keys() | {play.values[0]["id"] for play in plays()} == ids


@needs_worker
@pytest.mark.skipif(not CASES.exists(), reason="the cases are not beside these tests")
@pytest.mark.parametrize(("case", "variant", "carrier"), plays(only_first=ONLY_FIRST))
def test_T1_T2_T13_the_contract(
    case: dict[str, Any],
    variant: str,
    carrier: str,
    broker: Broker,
    namespaces: dict[str, str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    expect = case.get("expect_of", {}).get(CLASSES[carrier], case["expect"])
    policy = policy_of(case)
    player = Player(case, variant, carrier)
    if CLASSES[carrier] == "rehearsal":
        contextvars.copy_context().run(rehearsed, case, player, policy, expect)
        return
    caplog.set_level(logging.DEBUG, "backhop")
    queue = broker.queue()
    kind = "classic" if carrier.endswith("-wrap") or carrier in ("pika", "aio-pika") else "quorum"
    options = {"policy": policy, "namespace": namespaces[kind], "queue_type": kind}
    broker.publish(b"body", queue, headers={"tenant": "acme"}, message_id="bad")
    if case["id"] == "busy":  # a message that waits for a handler
        broker.publish(b"body", queue, message_id="ok")
    with carried(carrier, queue, player, options) as stop:
        for name in expect["events"]:
            if name == "stale" and case["id"] == "stop-aborts":
                until(lambda: "bad" in player.handled)
                stop()
            if not (case["id"] == "ends-program" and name in ("drained", "cancelled")):
                player.saw(name)
        if expect["consumer"] == "goes on" and case["id"] != "busy":
            broker.publish(b"body", queue, message_id="ok")
            until(lambda: "ok" in player.handled)
    if expect["message"] == "back":
        until(lambda: there(broker, queue) == 1)
        assert not variant or type(player.failure).__name__ == variant
    elif player.failure:
        raise player.failure
    compare(case, player, expect)
    about = [
        record
        for record in caplog.records
        if getattr(record, "backhop_id", "") == "bad" or getattr(record, "backhop_event", "") == case["id"] == "busy"
    ]
    assert logging.getLevelName(max(record.levelno for record in about)).lower() == expect["level"]
    if expect["level"] == "error":
        assert any(record.exc_info for record in about if record.levelno == logging.ERROR)


def compare(case: dict[str, Any], player: Player, expect: dict[str, Any]) -> None:
    """Compares the events of the message."""
    last = {"acknowledged": "succeeded", **{name: name for name in ("retried", "deferred", "parked", "dropped")}}
    if expect["message"] in last:
        event = player.saw(last[expect["message"]])
        assert event.attempts == int(expect["counted"])
        assert event.delay * 1000 >= expect.get("delay_ms_least", 0)
        if "reason" in case:
            assert event.reason == case["reason"]
    if "error" in case and case["id"] not in ("park",):
        assert case["error"] in player.saw("failed").error_text
    if "text" in expect:
        assert any(expect["text"] in event.text for event in player.events)
    if case["id"] == "clean-context":
        assert set(player.contexts) == {"clean"}
    if case["id"] == "changes-message":
        assert player.saw("retried").attempts == 1


def rehearsed(case: dict[str, Any], player: Player, policy: backhop.Policy, expect: dict[str, Any]) -> None:
    """Plays a case in a rehearsal of one attempt."""
    ends: Any = player.serve if case["id"] == "cancels-itself" else player
    rehearsal = rehearse(
        ends,
        b"body",
        policy=policy,
        properties={"message_id": "bad"},
        headers={"tenant": "acme"},
        on_event=player.on_event,
        most_attempts=1,
    )
    ends_as = {"acknowledged": "acked", "retried": "waiting", "deferred": "waiting"}
    assert rehearsal.outcome == ends_as.get(expect["message"], expect["message"])
    assert rehearsal[0].plan.attempts == int(expect["counted"])
    assert [event.name for event in player.events] == expect["events"]
    if "reason" in case:
        assert rehearsal.reason == case["reason"]
