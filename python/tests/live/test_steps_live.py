"""Plays each case of tests/contract/steps.json over each carrier of Python."""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
from live import PATIENCE, URL, Broker, control, needs_broker, needs_worker, running
from proxy import Proxy
from support import Looks, is_missing, there

import backhop
from backhop.testing import rehearse

pytest.importorskip("pika")
pytest.importorskip("aio_pika")
pytest.importorskip("prometheus_client")

from clients import break_channel, channels_of, connected

import backhop.prometheus

PATH = Path(__file__).parents[3] / "tests" / "contract" / "steps.json"
FILE: Any = json.loads(PATH.read_text(encoding="utf-8")) if PATH.exists() else {"carriers": {"python": {}}, "cases": []}
CLASSES: dict[str, str] = FILE["carriers"]["python"]
CLIENTS = {"pika": "blocking", "robust": "aio-pika robust"}
FIRST = {"worker", "pika", "pika-wrap", "aio-pika", "rehearse"}  # in the fast profile
WORDS = {  # of Python, in texts
    "{work_queue}": 'work_queue="quorum"',
    "{verify_mode}": 'mode="verify"',
    "{no_retry_after}": "max_retry_after=0",
    "{definitions}": "topology.definitions()",
}
ERRORS = {
    "access": backhop.AccessError,
    "broker": backhop.BrokerError,
    "clash": backhop.ClashError,
    "connection": backhop.ConnectionFailedError,
    "missing": backhop.MissingError,
    "publish": backhop.PublishError,
    "unpublished": backhop.PublishError,
}

pytestmark = [needs_broker, pytest.mark.filterwarnings("default")]


class Failed(Exception):  # noqa: N818
    """The error of most handlers."""


class Other(Exception):  # noqa: N818
    """An error of another class."""


def spoil(message: Any) -> None:
    """Changes what a client gave, in place."""
    theirs = getattr(message, "incoming", None) or message.properties
    message.headers["tenant"] = "evil"
    theirs.headers["tenant"] = "evil"
    theirs.headers["n"]["list"].append(object())
    theirs.message_id = theirs.content_type = "evil"


def in_ms(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)


def policy_of(given: dict[str, Any]) -> backhop.Policy:
    names = {name.removesuffix("_ms"): value / 1000 if name.endswith("_ms") else value for name, value in given.items()}
    return backhop.Policy(jitter="none", **names)


def import_definitions(definitions: str) -> None:
    """Imports definitions as `rabbitmqctl import_definitions`, which needs a file that the broker can see."""
    encoded = base64.b64encode(definitions.encode()).decode()
    control("eval", f'rabbit_definitions:import_raw(base64:decode(<<"{encoded}">>)).')


def key_of(message: backhop.Message) -> str:
    if found := re.match(rb"[a-z]+", message.body):
        return found[0].decode()
    raise Other("no key")


def fields_of(message: Any) -> dict[str, Any]:
    """Returns what steps compare of a message."""
    own = ("backhop-", "x-")
    same = "exchange routing_key queue redelivered content_type content_encoding correlation_id reply_to type app_id"
    same += " priority message_id id attempt max_attempts last_attempt deferrals"
    return {
        **{name: getattr(message, name) for name in same.split()},
        "body": message.body.decode("latin-1"),
        "headers": {name: value for name, value in message.headers.items() if not name.startswith(own)},
        "timestamp": message.timestamp and int(message.timestamp.timestamp()),
        "last_error": message.last_error or "",
        "last_delay_ms": in_ms(message.last_delay),
        "failed": message.first_failure is not None,
        "attempts": message.history.attempts,
        "crashes": message.history.crashes,
    }


def values_of(event: backhop.Event) -> dict[str, Any]:
    """Returns what steps compare of an event."""
    same = "id attempt attempts count reason breaker connection error_class error_text"
    return {
        **{name: getattr(event, name) for name in same.split()},
        "delay_ms": in_ms(event.delay),
        "level": logging.getLevelName(event.level).lower(),
        "has_delay": event.delay > 0,
        "is_error": event.exception is not None,
        "has_duration": event.duration is not None,
        "has_lateness": event.lateness is not None and 0 <= event.lateness < PATIENCE,
        "has_deferrals": event.deferrals > 0,
    }


class Play:
    """One case over one carrier. A method for each step has its name."""

    def __init__(self, case: Any, carrier: str, broker: Broker, proxy: Proxy | None, namespace: str) -> None:
        self.case = case
        self.carrier = carrier
        self.kind = CLASSES[carrier]
        self.broker = broker
        self.proxy = proxy
        self.namespace = namespace
        options = case.get("options", {})
        self.url = proxy.url if proxy else URL
        self.queue = f"{namespace}.work" if "work_queue" in options else broker.queue()
        self.metrics = backhop.prometheus.Metrics(None)
        self.told: list[backhop.Event] = []
        self.seen: list[dict[str, Any]] = []
        self.times: list[float] = []
        self.failures: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.done: dict[str, int] = {}  # deferrals by body
        self.downs = 0
        self.is_up = self.is_cut = False
        self.took: list[float] = []
        self.began = time.monotonic()
        self.client: Any = None
        self.health: Any = None
        self.lock = threading.Lock()
        self.stack = contextlib.ExitStack()
        self.others: dict[str, str] = {}
        self.options = self.options_of(options)

    def options_of(self, given: dict[str, Any]) -> dict[str, Any]:
        made: dict[str, Any] = {"namespace": self.namespace, "on_event": [self.told.append, self.metrics]}
        made["policy"] = policy_of(given.get("policy", FILE["policy"]))
        made.update({name: given[name] for name in ("mode", "strategy", "work_queue") if name in given})
        if "never" in given:
            made["never"] = (Other,)
        if "slow" in given:
            made["policies"] = {Other: policy_of(given["slow"])}
        if "confirm_timeout_ms" in given:
            made["confirm_timeout"] = given["confirm_timeout_ms"] / 1000
        if "breaker" in given:
            settings = {"row_failures": 3, "probe_successes": 1, **given["breaker"]}
            settings["pauses"] = policy_of({"kind": "fixed", "initial_ms": 300})
            if settings.pop("errors", False):
                settings["errors"] = Failed
            if settings.pop("key", False):
                settings["key"] = key_of
            if "probe_timeout_ms" in settings:
                settings["probe_timeout"] = settings.pop("probe_timeout_ms") / 1000
            self.flow = made["breaker"] = backhop.Breaker("api", **settings)
        return made

    # --- The handler

    def __call__(self, message: Any) -> None:
        fields = fields_of(message)
        body = fields["body"]
        with self.lock:
            number = sum(call["body"] == body for call in self.seen)
            self.seen.append(fields)
            self.times.append(time.monotonic())
            if message.attempt != self.failures[body] + 1:
                self.wrong.append(f"{message!r} after {self.failures[body]} failures")
        rules = (rule for name, rule in self.case["handler"].items() if fnmatch(body, name))
        rule = next(rules, "ok")
        answer = rule if isinstance(rule, str) else (rule[number] if number < len(rule) else "ok")
        for action in answer.split("; "):
            if action == "spoil":
                spoil(message)
            else:
                self.act(body, *action.partition(" ")[::2])
        self.done[body] = message.deferrals

    def act(self, body: str, verb: str, text: str) -> None:
        if verb == "hold":
            assert self.proxy
            self.proxy.hold()
        elif verb == "park":
            raise backhop.Park(text)
        elif verb == "drop":
            raise backhop.Drop
        elif verb == "throttle-queue":
            raise backhop.Throttled(int(text) / 1000, "429", whole_queue=True)
        elif verb != "ok" and not (verb == "down" and self.is_up):
            self.failures[body] += 1
            self.downs += verb == "down"
            if verb == "retry-after":
                raise backhop.RetryAfter(int(text) / 1000, "busy")
            raise (Other if verb == "other" else Failed)(text)

    # --- Helpers

    def run(self) -> None:
        try:
            for step in self.filled(self.case["steps"]):
                self.step = step
                (verb, value), *others = step.items()
                more = dict(others)
                if self.kind in more.pop("in", self.kind):
                    getattr(self, verb)(value, **more)
        finally:
            self.stop(True)

    def until(self, is_so: Callable[[], Any]) -> None:
        end = time.monotonic() + PATIENCE
        while not is_so():
            assert time.monotonic() < end, f"{self.step} did not come true\n{self.seen}\n{self.told}"
            time.sleep(0.01)

    def filled(self, value: Any) -> Any:
        """Fills names in."""
        if isinstance(value, str):
            for name, word in WORDS.items():
                value = value.replace(name, word)
            for name in ("queue", "namespace", "sibling"):
                if f"{{{name}}}" in value:
                    value = value.replace(f"{{{name}}}", self.namespace if name == "namespace" else self.place(name))
            return value
        if isinstance(value, list):
            return [self.filled(each) for each in value]
        return {name: self.filled(each) for name, each in value.items()} if isinstance(value, dict) else value

    def place(self, name: str) -> str:
        """Returns the name of a queue or an exchange."""
        if name.startswith("."):
            return self.namespace + name
        if name == "sibling":
            return self.others.setdefault(name, self.others.get(name) or self.broker.queue())
        return {"parked": f"{self.queue}.parked", "events": f"{self.namespace}.events"}.get(name, self.queue)

    def named(self, name: str) -> list[backhop.Event]:
        return [event for event in list(self.told) if event.name == name]

    def connected(self) -> Any:
        """Returns the client, connected."""
        if not self.client:
            base = self.carrier.removesuffix("-wrap").removesuffix("-threads")
            client = connected(CLIENTS.get(base, base), self.url, self.queue, self, **self.options)
            self.client = self.stack.enter_context(client)
            self.client.consuming = {"prefetch": 20, **({"threads": 4} if "threads" in self.carrier else {})}
        return self.client

    # --- Steps

    def start(self, how: Any) -> None:
        self.began = time.monotonic()
        if self.kind == "worker":
            worker = backhop.Worker(URL, self.queue, threads=4, prefetch=20, retry_events=True, **self.options)
            self.client = self.health = worker
            self.stack.enter_context(running(worker, self, serves=self.carrier == "worker-async"))
            self.until(lambda: self.named("connected"))
        elif self.kind == "wrap":
            if how != "undeclared":
                self.connected().declare()
            self.connected().begin()
        else:
            self.connected().begin_by_itself()
            self.health = self.client.consumer

    def stop(self, _: Any) -> None:
        if self.kind == "consumer" and self.client and self.health and not self.is_cut:
            self.client.cancel()
            assert self.health.is_cancelled
        self.stack.close()
        self.client = None

    def publish(
        self, value: Any, to: str = "work", key: str = "", numbers: int = 0, repeat: int = 1, **more: Any
    ) -> None:
        bodies = [f"{value}{i}" for i in range(numbers)] or ([value] if isinstance(value, str) else value)
        exchange = self.place(to) if to == "events" else ""
        properties = {"headers": more.get("headers"), **more.get("properties", {})}
        for body in bodies:
            data = (body * repeat).encode("latin-1")
            self.broker.publish(data, key if exchange else self.place(to), exchange=exchange, **properties)

    def exchange(self, kind: str, key: str, queues: list[str]) -> None:
        self.broker.channel.exchange_declare(self.place("events"), kind)
        for queue in queues:
            self.broker.channel.queue_bind(self.place(queue), self.place("events"), key)

    def make(self, name: str, arguments: Any = None) -> None:
        made = arguments or {"x-queue-type": "classic"}
        self.broker.channel.queue_declare(self.place(name), durable=True, arguments=made)

    def delete(self, name: str) -> None:
        self.broker.channel.queue_delete(self.place(name))

    def delete_exchange(self, name: str) -> None:
        self.broker.channel.exchange_delete(self.place(name))

    def counted_in(self, name: str) -> int | None:
        queue = self.place(name)
        return None if is_missing(self.broker, queue) else self.broker.count(queue)

    def count(self, wanted: dict[str, int | None]) -> None:
        self.until(lambda: all(self.counted_in(name) == number for name, number in wanted.items()))

    def some(self, wanted: dict[str, int]) -> None:
        self.until(lambda: any((self.counted_in(name) or 0) >= number for name, number in wanted.items()))

    def redelivered(self, wanted: dict[str, int]) -> None:
        """A client that connects again parks the message again. Otherwise it stays in its queue."""
        name = "parked" if "robust" in self.carrier else "work"
        self.some({name: wanted[name]})

    def got(self, name: str) -> Iterator[tuple[Any, str]]:
        while (got := self.broker.channel.basic_get(self.place(name), auto_ack=True))[0]:
            yield got[1], got[2].decode("latin-1")

    def take(self, name: str, bodies: list[str], headers: Any = None, properties: Any = None) -> None:
        taken: list[tuple[Any, str]] = []

        def comes() -> bool:
            if there(self.broker, self.place(name)):
                taken.extend(self.got(name))
            return len(taken) >= len(bodies)

        self.until(comes)
        assert [body for _, body in taken] == bodies
        about = taken[0][0]
        assert {name: about.headers[name] for name in headers or {}} == (headers or {})
        if properties:
            found = {name: value for name, value in vars(about).items() if value is not None and name != "headers"}
            assert found == properties

    def all(self, name: str, bodies: list[str] | None = None, distinct: list[str] | None = None) -> None:
        found = [body for _, body in self.got(name)]
        assert sorted(found if bodies else set(found)) == sorted(bodies or distinct or [])

    def calls(self, wanted: Any) -> None:
        if isinstance(wanted, int):
            self.until(lambda: len(self.seen) >= wanted)
            return
        self.until(lambda: len(self.seen) >= len(wanted))
        assert len(self.seen) == len(wanted)
        for call, given in zip(self.seen, wanted, strict=True):
            repeated = {"body": given["body"] * given["repeat"]} if "repeat" in given else {}
            fields = {**given, "repeat": call.get("repeat"), **repeated}
            assert {name: call.get(name) for name in fields} == fields

    def each_call(self, fields: dict[str, Any]) -> None:
        for call in self.seen:
            assert {name: call[name] for name in fields} == fields

    def bodies(self, wanted: dict[str, int]) -> None:
        found = Counter(call["body"] for call in self.seen)
        assert {body: found[body] for body in wanted} == wanted

    def apart(self, number: int, least_ms: int) -> None:
        assert (self.times[number] - self.times[number - 1]) * 1000 >= least_ms

    def event(
        self, name: str, times: int = 1, text: str = "", not_text: str = "\0", error: str = "", **fields: Any
    ) -> None:
        began = time.monotonic()

        def fits(event: backhop.Event) -> bool:
            values = values_of(event)
            is_kind = not error or isinstance(event.error, ERRORS[error])
            is_same = all(values[field] == value for field, value in fields.items())
            return is_kind and is_same and text in event.text and not_text not in event.text

        self.until(lambda: sum(map(fits, self.named(name))) >= times)
        self.took.append(time.monotonic() - began)
        assert {event.queue for event in self.named(name)} == {self.queue}

    def events(self, names: list[str], **of: str) -> None:
        told = [event.name for event in self.told if event.id == of["id"]]
        copies = {"retried", "parked"} if self.kind == "worker" else set()  # a worker emits these in another thread
        for are_copies in (True, False):
            assert [each for each in told if (each in copies) == are_copies] == [
                each for each in names if (each in copies) == are_copies
            ]

    def happened(self, wanted: dict[str, int]) -> None:
        assert {name: len(self.named(name)) for name in wanted} == wanted

    def no_event(self, names: list[str]) -> None:
        assert not {*names} & {event.name for event in self.told}

    def own_ids(self, number: int) -> None:
        ids = {event.id for event in self.named("delivered")}
        assert len(ids) == number
        assert all(re.fullmatch("[0-9a-f]{32}", each) for each in ids)
        for name in ("failed", "retried", "succeeded"):
            assert {event.id for event in self.named(name)} == ids
        assert {call["id"] for call in self.seen if call["attempt"] > 1} == ids

    def forget(self, _: Any) -> None:
        self.told.clear()
        self.took.clear()

    def quickest_ms(self, most: int) -> None:
        assert min(self.took) * 1000 < most  # not each: a busy machine may be late

    def state(self, wanted: str) -> None:
        self.until(lambda: self.health.state == wanted)

    def gauge(self, number: int) -> None:
        line = f'backhop_consumers_ready{{queue="{self.queue}"}} {number}\n'
        self.until(lambda: line in self.metrics.text)

    def gauge_of_breaker(self, states: str) -> None:
        line = rf'backhop_breaker_state{{queue="{self.queue}",breaker="api"}} [{states}]\n'
        self.until(lambda: re.search(line, self.metrics.text))

    def pending(self, number: int) -> None:
        self.until(lambda: self.client.retrier.pending == number)

    def replay(self, most: int | None, gives: int) -> None:
        assert self.connected().replay(most) == gives

    def call(self, name: str) -> None:
        if name == "drain":
            self.stop(True)
        elif name == "start":
            self.start(True)
        elif name == "replay":
            self.connected().replay()
        else:
            getattr(self.connected(), name)()

    def raises(self, kind: str, texts: list[str] | None = None, **from_: str) -> None:
        with pytest.raises(ERRORS[kind]) as raised:
            self.call(from_["from"])
        assert [text for text in texts or [] if text not in str(raised.value)] == []

    def declare_by_another(self, _: Any) -> None:
        options = {name: value for name, value in self.options.items() if name != "mode"}
        with connected("blocking", URL, self.queue, print, **options) as other:
            other.declare()

    def stranger(self, _: Any) -> None:
        """Goes on as a user who may configure nothing."""
        self.topology = self.client.retrier.topology
        self.stop(True)
        user = self.namespace
        permission = {"user": user, "vhost": "/", "configure": "^$", "write": ".*", "read": ".*"}
        users = [{"name": user, "password": "secret", "tags": ""}]
        import_definitions(json.dumps({"users": users, "permissions": [permission]}))
        self.url = URL.replace("guest:guest", f"{user}:secret")

    def import_topology(self, _: Any) -> None:
        import_definitions(self.topology.definitions())

    def release(self, _: Any) -> None:
        assert self.proxy
        self.proxy.release()

    def cut(self, _: Any) -> None:
        assert self.proxy
        self.is_cut = True
        self.proxy.cut()
        self.proxy.release()

    def break_channel(self, _: Any) -> None:
        break_channel(self.client, self.health)

    def note_channels(self, _: Any) -> None:
        self.channels = channels_of(self.client)

    def same_channels(self, _: Any) -> None:
        self.until(lambda: channels_of(self.client) == self.channels)

    def look(self, _: Any) -> None:
        """The fixture makes looks due all the time."""

    def breaker(self, change: str) -> None:
        getattr(self.flow, change)()

    def breaker_state(self, wanted: str, key: str = "") -> None:
        self.until(lambda: (self.flow.state_of(key) if key else self.flow.state) == wanted)

    def refused(self, more: int) -> None:
        least = self.downs + more
        self.until(lambda: self.downs >= least)

    def up(self, _: Any) -> None:
        self.is_up = True

    def handled(self, wanted: dict[str, int]) -> None:
        def number_of(name: str) -> int:
            return sum(body.startswith(name) for body in [*self.done])

        self.until(lambda: all(number_of(name) == number for name, number in wanted.items()))

    def counted(self, _: Any) -> None:
        assert self.wrong == []

    def spared(self, sent: int) -> None:
        """Calls that were permitted before it opened may end later: two rounds of handlers. Then come probes."""
        rounds = 2 * min(100 if self.kind == "wrap" else 20, sent)
        assert self.downs <= 3 + rounds + (time.monotonic() - self.began) / 0.3 + 2

    def deferred_only(self, name: str) -> None:
        assert {number for body, number in self.done.items() if not body.startswith(name)} == {0}
        assert max(number for body, number in self.done.items() if body.startswith(name)) > 0


def rehearsed(case: Any) -> None:
    """Plays a case that publishes, starts and compares calls."""
    play = Play.__new__(Play)
    play.case, play.seen, play.times, play.done = case, [], [], {}
    play.failures, play.wrong, play.lock, play.downs = Counter(), [], threading.Lock(), 0
    play.queue, play.namespace, play.others = "work", "rehearsed", {}
    first, _, *checks = play.filled(case["steps"])
    given = {"headers": first["headers"], "properties": first["properties"]}
    rehearse(play, first["publish"].encode(), queue="work", policy=policy_of(FILE["policy"]), **given)
    for (verb, value), *_ in (step.items() for step in checks):
        getattr(play, verb)(value)


def missing(case: Any, carrier: str) -> bool:
    keys = (*case.get("without", {}),)
    return CLASSES[carrier] not in case["of"] or any(fnmatch(f"python/{carrier}", key) for key in keys)


def plays() -> list[Any]:
    found = []
    for case in FILE["cases"]:
        for carrier, kind in CLASSES.items():
            marks = [] if carrier in FIRST else [pytest.mark.long]
            marks += [needs_worker] if kind == "worker" else []
            marks += [pytest.mark.control, pytest.mark.long] if "control" in case else []
            for each, since in case.get("each", {"": ""}).items():
                made = {**case, "options": {**case["options"], "strategy": each}} if each else case
                mark = [pytest.mark.since(since)] if since else []
                if not missing(case, carrier):
                    name = f"{case['id']} {each}".strip()
                    found.append(pytest.param(made, carrier, id=f"{name}, {carrier}", marks=marks + mark))
    return found


@pytest.mark.skipif(not PATH.exists(), reason="the cases are not beside these tests")
@pytest.mark.parametrize(("case", "carrier"), plays())
def test_steps(case: Any, carrier: str, broker: Broker, own_namespace: str, request: pytest.FixtureRequest) -> None:
    if CLASSES[carrier] == "rehearsal":
        rehearsed(case)
        return
    looks: Looks | None = request.getfixturevalue("looks") if case.get("looks") else None
    play = Play(case, carrier, broker, request.getfixturevalue("proxy") if case.get("proxy") else None, own_namespace)
    play.stack.callback(looks.end if looks else int)
    play.run()
