"""Breaks of a topology, one at a time: `doctor` finds each, and calls nothing else a problem."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
import time
import urllib.parse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness import LIMIT_S, UNAVAILABLE, broker_ctl, long, managed, rig, run
from live.test_management import URL, Managed



Wanted = str | tuple[str, ...]  # the problems; "re:" begins a pattern


class Broken:
    """A healthy topology of its own, which a case breaks."""

    def __init__(self, case: Managed) -> None:
        self.case, self.queue, self.ns = case, case.queue(), case.queue()
        self.wait = f"{self.ns}.wait.7000"
        self.parked = f"{self.queue}.parked"
        self.returns = f"{self.ns}.return"
        self.options: list[object] = ["--namespace", self.ns, "--policy", self.policy_file("0s")]
        self.management, self.patience = URL, "0s"
        self.differs = f'The topology of "{self.queue}" is not as it has to be.'

    def policy_file(self, max_retry_after: str) -> str:
        """Writes a policy with one wait queue, and others on demand for RetryAfter. Returns its path."""
        path = Path(self.case.enterContext(tempfile.TemporaryDirectory()), "policy.json")
        path.write_text(json.dumps({"steps": "7s", "jitter": "none", "max-retry-after": max_retry_after}))
        return str(path)

    def declare(self, *work: str, kind: str = "quorum", **properties: Any) -> None:
        """Declares the topology, around a work queue with these arguments, as NAME=VALUE."""
        arguments = {name: int(value) if value.isdigit() else value for name, value in (each.split("=") for each in work)}
        usual = {"x-delivery-limit": 1000000000} if kind == "quorum" else {}
        self.put(self.queue, {"x-queue-type": kind, **usual, **arguments}, **properties)
        self.case.ok("topology", "declare", self.queue, *self.options)

    def put(self, queue: str, arguments: dict[str, Any], **properties: Any) -> None:
        self.case.tell("PUT", f"queues/%2F/{queue}", {"durable": True, "arguments": arguments, **properties})

    def declare_again(self, queue: str, **changes: Any) -> None:
        """Declares a queue again with changed arguments (x_NAME; None: without it), and binds it as it was."""
        bindings = [each for each in self.case.get(f"queues/%2F/{queue}/bindings") if each["source"]]
        arguments = self.case.get(f"queues/%2F/{queue}")["arguments"]
        arguments.update({name.replace("_", "-"): value for name, value in changes.items()})
        rig("delete", queue)
        self.put(queue, {name: value for name, value in arguments.items() if value is not None})
        for each in bindings:
            self.bind(queue, each["source"], each["routing_key"])

    def bind(self, queue: str, exchange: str, key: str) -> None:
        self.case.tell("POST", f"bindings/%2F/e/{exchange}/q/{queue}", {"routing_key": key})

    def unbind(self, queue: str, exchange: str) -> None:
        for each in self.case.get(f"bindings/%2F/e/{exchange}/q/{queue}"):
            key = urllib.parse.quote(each["properties_key"], "")
            self.case.tell("DELETE", f"bindings/%2F/e/{exchange}/q/{queue}/{key}")

    def policy(self, name: str, kind: str = "policies", apply_to: str = "queues", whole: bool = False, **definition: Any) -> None:
        """Sets a policy for names that begin with `name`, or for it alone if it is whole."""
        path = f"{kind}/%2F/{self.ns}"
        settings = {key.replace("_", "-"): value for key, value in definition.items()}
        self.case.tell("PUT", path, {"pattern": f"^{re.escape(name)}{'$' * whole}", "definition": settings, "apply-to": apply_to})
        self.case.addCleanup(self.case.tell, "DELETE", path)

    def stranger(self) -> str:
        """Declares a queue that is not Backhop's."""
        name = self.case.queue()
        self.put(name, {})
        return name

    def problems(self) -> set[str]:
        ran = run("doctor", self.queue, *self.options, "--patience", self.patience, "-m", self.management, "--json")
        found = {each["finding"] for each in ran.objects if each["severity"] == "problem"}
        self.case.assertEqual(ran.returncode, UNAVAILABLE if found else 0, ran.stderr)
        return found


# Each break declares, breaks, and gives the problem that doctor finds.


def unbound(it: Broken) -> str:
    return f'Queue "{it.queue}" is not bound to exchange "{it.returns}" with routing key "backhop:{it.queue}".'


def binding(it: Broken) -> Wanted:
    it.declare()
    it.unbind(it.queue, it.returns)
    return unbound(it)


def binding_of_a_rung(it: Broken) -> Wanted:
    it.declare()
    it.unbind(it.wait, it.wait)
    return f'Queue "{it.wait}" is not bound to exchange "{it.wait}" with routing key "".'


def ttl_of_a_rung(it: Broken) -> Wanted:
    it.declare()
    it.declare_again(it.wait, x_message_ttl=1)
    return it.differs, f'Queue "{it.wait}" has x-message-ttl 1, and needs 7000.'


def expires_of_a_rung(it: Broken) -> Wanted:
    it.declare()
    it.declare_again(it.wait, x_expires=3600000)
    return it.differs, f'Queue "{it.wait}" was declared with x-expires 3600000.'


def target_of_a_rung(it: Broken) -> Wanted:
    it.declare()
    it.declare_again(it.wait, x_dead_letter_exchange="amq.fanout")
    return it.differs, f'Queue "{it.wait}" has x-dead-letter-exchange "amq.fanout", and needs "{it.returns}".'


def parked_is_classic(it: Broken) -> Wanted:
    it.declare()
    rig("delete", it.parked)
    it.put(it.parked, {"x-queue-type": "classic"})
    limit = f'Queue "{it.parked}" has x-delivery-limit nothing, and needs 1000000000.'
    return it.differs, limit, f'Queue "{it.parked}" has x-queue-type "classic", and needs "quorum".'


def deleted(what: str) -> Callable[[Broken], Wanted]:
    def delete(it: Broken) -> Wanted:
        it.declare()
        name = {"exchange": it.returns, "parked": it.parked, "unroutable": f"{it.ns}.unroutable"}[what]
        it.case.tell("DELETE", f"{'exchanges' if what == 'exchange' else 'queues'}/%2F/{name}")
        return (it.differs, unbound(it)) if what == "exchange" else it.differs

    return delete


def policy(on: str, key: str, value: object, kind: str = "policies") -> Callable[[Broken], Wanted]:
    def set_policy(it: Broken) -> Wanted:
        it.declare()
        name = {"wait": it.wait, "work": it.queue, "parked": it.parked}[on]
        it.policy(name, kind, whole=on != "wait", **{key: value})
        who = "Operator policy" if kind == "operator-policies" else "Policy"
        where = f'wait queues, as "{it.wait}"' if on == "wait" else f'queue "{name}"'
        text = f'"{value}"' if isinstance(value, str) else value
        return f'{who} "{it.ns}" sets {key.replace("_", "-")} {text} on {where}.'

    return set_policy


def argument_of_the_work_queue(argument: str) -> Callable[[Broken], Wanted]:
    def declare(it: Broken) -> Wanted:
        it.declare(argument)
        return f'Queue "{it.queue}" was declared with {argument.replace("=", " ")}.'

    return declare


def no_consumer(it: Broken) -> Wanted:
    it.declare()
    rig("fill", it.queue, 3)
    return f'"{it.queue}" has 3 messages.'


def consumer_of_a_rung(it: Broken) -> Wanted:
    it.declare()
    consumer = subprocess.Popen([rig.program, "consume", it.wait, "9"], stdout=subprocess.PIPE, text=True)
    it.case.addCleanup(consumer.communicate)
    it.case.addCleanup(consumer.kill)
    consumer.stdout.readline()
    return f'1 consumer takes messages from wait queue "{it.wait}".'


def alarm(it: Broken) -> Wanted:
    it.declare()
    broker_ctl("set-alarm")
    it.case.addCleanup(broker_ctl, "clear-alarm")
    it.patience = "10s"
    return "re:The broker has a memory or disk alarm"


def members(it: Broken) -> Wanted:
    it.declare()

    def edit(path: str, answer: Any) -> Any:
        if path == "nodes":
            return [{**answer[0], "name": f"rabbit@{number}"} for number in range(3)]
        if path.startswith("queues/") and isinstance(answer, dict) and it.wait not in path:
            answer["members"] = ["rabbit@0", "rabbit@1", "rabbit@2"]
        return answer

    it.management = it.case.enterContext(it.case.edited(edit))
    return f'Queue "{it.wait}" has 1 of 3 members that this cluster of 3 nodes can have.'


def no_permission(it: Broken) -> Wanted:
    it.declare()
    user = it.ns.replace(".", "-")
    it.case.tell("PUT", f"users/{user}", {"password": "pw", "tags": ""})
    it.case.addCleanup(it.case.tell, "DELETE", f"users/{user}")
    it.case.tell("PUT", f"permissions/%2F/{user}", {"configure": ".*", "write": "amq.default|amq.gen", "read": ".*"})
    it.options += ["--uri", os.environ["AMQP_URL"].replace("guest:guest", f"{user}:pw")]
    return f'This user may not publish to exchange "{it.wait}".'


def foreign_binding(it: Broken) -> Wanted:
    it.declare()
    stranger = it.stranger()
    it.bind(stranger, it.returns, f"backhop:{it.queue}")
    return f'Queue "{stranger}" is bound to exchange "{it.returns}" with routing key "backhop:{it.queue}".'


def leftover_rung(it: Broken) -> Wanted:
    it.declare()
    other = f"{it.ns}.wait.5000"
    it.put(other, {"x-queue-type": "quorum"})
    rig("fill", other, 3)
    return f'Wait queue "{other}" keeps 3 messages.'


def limit_of_queues(it: Broken) -> Wanted:
    it.declare()
    it.options += ["--policy", it.policy_file("1h")]  # these rungs are declared on demand
    it.case.tell("PUT", "vhost-limits/%2F/max-queues", {"value": 1})
    it.case.addCleanup(it.case.tell, "DELETE", "vhost-limits/%2F/max-queues")
    return r"re:The vhost has \d+ queues of at most 1 \(max-queues\); \d+ wait queues are not made yet\."


def stream(it: Broken) -> Wanted:
    it.declare(kind="stream")
    return f'Work queue "{it.queue}" is a stream.'


def auto_delete(it: Broken) -> Wanted:
    it.declare(kind="classic", auto_delete=True)
    return f'Work queue "{it.queue}" is deleted with its last consumer (auto-delete).'


def dead_letters_to_return(it: Broken) -> Wanted:
    it.declare(f"x-dead-letter-exchange={it.returns}", kind="classic")
    return f'Work queue "{it.queue}" dead-letters to exchange "{it.returns}".'


def rejected(it: Broken) -> Wanted:
    it.declare()
    it.put(f"{it.ns}.rejected", {})
    it.case.addCleanup(rig, "delete", f"{it.ns}.rejected")
    rig("fill", f"{it.ns}.rejected", 1)
    return f'1 message in queue "{it.ns}.rejected", which no relay reads.'


def other_stripes(it: Broken) -> Wanted:
    it.declare()
    it.options += ["--stripes", "2"]
    return it.differs


BREAKS: dict[str, Callable[[Broken], Wanted]] = {
    "the return binding is gone": binding,
    "a rung's TTL": ttl_of_a_rung,
    "a policy with max-length": policy("wait", "max_length", 5),
    "a policy with message-ttl": policy("wait", "message_ttl", 20),
    "a policy with delivery-limit": policy("work", "delivery_limit", 3),
    "a policy with max-length-bytes": policy("parked", "max_length_bytes", 500),
    "an operator policy": policy("parked", "message_ttl", 3600000, "operator-policies"),
    "the exchange is deleted": deleted("exchange"),
    "the parked queue is deleted": deleted("parked"),
    "the unroutable queue is deleted": deleted("unroutable"),
    "the parked queue is classic": parked_is_classic,
    "no consumer": no_consumer,
    "stripes": other_stripes,
    "a consumer on a rung": consumer_of_a_rung,
    "max-length on the work queue": argument_of_the_work_queue("x-max-length=100"),
    "a TTL on the work queue": argument_of_the_work_queue("x-message-ttl=3600000"),
    "x-expires": expires_of_a_rung,
    "a rung dead-letters elsewhere": target_of_a_rung,
    "a rung's binding": binding_of_a_rung,
    "a memory alarm": alarm,
    "1 of 3 members": members,
    "12: no permission to write to rungs": no_permission,
    "15: a leftover rung with messages": leftover_rung,
    "19: a foreign queue at the return exchange": foreign_binding,
    "27: F4-0": policy("wait", "overflow", "drop-head"),
    "28: max-queues": limit_of_queues,
    "30: a stream": stream,
    "31: dead letters to the return exchange": dead_letters_to_return,
    "34b: no relay": rejected,
    "W3: auto-delete": auto_delete,
}


def alternate_exchange(it: Broken) -> None:
    it.declare()
    it.policy(it.ns, apply_to="exchanges", alternate_exchange="amq.fanout")


def second_namespace(it: Broken) -> None:
    it.declare()
    other = Broken(it.case)
    it.case.ok("topology", "declare", it.queue, "--namespace", other.ns)


def leftover_stripe(it: Broken) -> None:
    it.declare()
    it.put(f"{it.wait}.2", it.case.get(f"queues/%2F/{it.wait}")["arguments"])


def other_key(it: Broken) -> None:
    it.declare()
    it.bind(it.stranger(), it.returns, "of nobody")


HARMLESS: dict[str, Callable[[Broken], None]] = {
    "nothing": Broken.declare,
    "a policy's alternate-exchange": alternate_exchange,
    "a second namespace": second_namespace,
    "a leftover stripe": leftover_stripe,
    "another key at the return exchange": other_key,
}


@managed
@long
class Breaks(Managed):
    def found(self, it: Broken, wanted: tuple[str, ...]) -> list[str]:
        """Runs doctor until it finds the problems: the management API counts every five seconds."""
        end = time.monotonic() + LIMIT_S
        while True:
            problems = it.problems()
            if all(any(map(self.fits(each), problems)) for each in wanted) or time.monotonic() > end:
                return sorted(problems)
            time.sleep(0.2)

    @staticmethod
    def fits(wanted: str) -> Callable[[str], object]:
        pattern = wanted.removeprefix("re:") if wanted.startswith("re:") else re.escape(wanted) + "$"
        return re.compile(pattern).match

    def test_doctor_finds_each_break_and_nothing_else(self) -> None:
        for name, break_it in BREAKS.items():
            with self.subTest(name):
                it = Broken(self)
                wanted = break_it(it)
                wanted = (wanted,) if isinstance(wanted, str) else wanted
                problems = self.found(it, wanted)
                self.assertEqual([each for each in problems if not any(self.fits(one)(each) for one in wanted)], [])
                self.assertEqual(len(problems), len(wanted), problems)
            self.doCleanups()

    def test_doctor_calls_no_harmless_change_a_problem(self) -> None:
        for name, change in HARMLESS.items():
            with self.subTest(name):
                it = Broken(self)
                change(it)
                self.assertEqual(it.problems(), set())
            self.doCleanups()
