"""The chaos run itself, for a cluster of three nodes that tests/broker started: see README.md and `run`."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pika
import pika.exceptions
from accountant import MAX_ATTEMPTS, Account, Journal, Message, account, seen_by_others
from brokers import URLS, VERSION, Unanswered, ask, connect, ctl, depth_of, queues_like, take_all

HERE = Path(__file__).resolve().parent
BUILD = HERE.parents[1] / "build"
EXCHANGE, AUDIT, UNROUTABLE, RUNGS = "chaos", "chaos.audit", "backhop.unroutable", "backhop.wait."
QUORUM = {"x-queue-type": "quorum", "x-quorum-initial-group-size": 3}
WORK_QUEUE = {**QUORUM, "x-delivery-limit": 1_000_000}  # RabbitMQ 4 would drop a message at its 21st delivery
PREFETCH = 20
MESSAGES = 240
PER_SECOND = 20.0
QUIET_S = 5.0  # so long nothing is handled at the end: longer than the longest delay
DRAIN_LIMIT_S = 540.0  # RabbitMQ itself can take three to six minutes after a fault, before 4.3 longer
UNROUTABLE_S = 90.0  # consumers read the unroutable queue once a minute, and return their own
WAY_LIMIT_S = 120.0  # until all consumers are connected at first

CLIENTS: dict[str, list[str]] = {
    "worker": [str(BUILD / "release/chaos-worker")],
    "pika": [sys.executable, str(HERE / "consumers/pika_consumer.py")],
    "aio-pika": [sys.executable, str(HERE / "consumers/aio_pika_consumer.py")],
    "Bunny": ["ruby", str(HERE / "consumers/bunny_consumer.rb")],
    "amqplib": ["node", str(HERE / "consumers/amqplib_consumer.js")],
}


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def queue_of(client: str) -> str:
    return f"chaos.{client.lower()}"


class Consumers:
    """A process for each client."""

    def __init__(self, clients: Sequence[str], directory: Path) -> None:
        self.clients = clients
        self.directory = directory
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.environment = {**os.environ, "BACKHOP_CHAOS_PREFETCH": str(PREFETCH)}
        self.environment["GEM_HOME"] = str(BUILD / "ruby/default")
        for name in ("GEM_PATH", "RUBYLIB", "RUBYOPT"):
            self.environment.pop(name, None)

    def journal(self, client: str) -> Path:
        return self.directory / f"{client}.journal"

    def start(self, client: str) -> None:
        with open(self.directory / f"{client}.log", "ab") as log:
            command = [*CLIENTS[client], queue_of(client), str(self.journal(client)), *URLS]
            self.processes[client] = subprocess.Popen(command, env=self.environment, stdout=log, stderr=log)

    def kill(self, client: str) -> None:
        process = self.processes.pop(client, None)
        if process:
            process.kill()
            process.wait()

    def restart(self, client: str) -> None:
        self.kill(client)
        self.start(client)

    def await_connections(self, number: int) -> None:
        """Returns when each client has connected that often in all."""
        limit = time.monotonic() + WAY_LIMIT_S
        for client in self.clients:
            while Journal.read(self.journal(client)).connections < number:
                if time.monotonic() > limit or self.processes[client].poll() is not None:
                    log = (self.directory / f"{client}.log").read_text()[-2000:]
                    raise Unanswered(f"{client} did not connect {number} times within {WAY_LIMIT_S:.0f} s:\n{log}")
                time.sleep(0.1)

    def that_ended(self) -> list[str]:
        return [client for client, process in self.processes.items() if process.poll() is not None]

    def __enter__(self) -> Consumers:
        for client in self.clients:
            self.start(client)
        return self

    def __exit__(self, *_: object) -> None:
        for client in self.clients:
            self.kill(client)


class Publisher(threading.Thread):
    """Publishes messages and waits for each one's confirm. Without a confirm it stays unsure; another is published."""

    def __init__(self, number: int, seed: int) -> None:
        super().__init__(daemon=True)
        self.number = number
        self.random = random.Random(f"{seed}-{number}")
        self.sure: dict[str, Message] = {}
        self.unsure: dict[str, Message] = {}

    def message(self, serial: int) -> Message:
        drawn = self.random.random()
        fails = 0 if drawn < 0.05 else 99 if drawn < 0.1 else self.random.randint(1, 4)
        id = f"{self.number}-{serial}"
        body = f"{id} {fails} {self.random.randbytes(24).hex()}"
        return Message(id, fails, body, f"purge.{self.random.randint(1, 9)}", self.random.randbytes(4).hex())

    def run(self) -> None:
        nodes = itertools.cycle(reversed(URLS))  # consumers begin with the first
        serials = itertools.count(1)
        while len(self.sure) < MESSAGES:
            try:
                connection = connect(next(nodes))
                channel = connection.channel()
                channel.confirm_delivery()
                while len(self.sure) < MESSAGES:
                    message = self.message(next(serials))
                    self.unsure[message.id] = message
                    properties = pika.BasicProperties(
                        message_id=message.id, delivery_mode=2, headers={"x-mark": message.mark}
                    )
                    channel.basic_publish(EXCHANGE, message.routing_key, message.body.encode(), properties, True)
                    self.sure[message.id] = self.unsure.pop(message.id)
                    connection.sleep(1 / PER_SECOND)
                connection.close()
            except (pika.exceptions.AMQPError, OSError):
                time.sleep(0.2)


@dataclass
class Stage:
    """The objects that a fault acts on."""

    consumers: Consumers
    random: random.Random
    happened: list[str]

    def tell(self, what: str) -> None:
        """Logs an action: for each of these a prefetch may come again."""
        self.happened.append(what)
        say(f"    {what}")

    def kill(self, *nodes: int) -> None:
        self.tell(f"SIGKILL to node {', '.join(map(str, nodes))}")
        ctl(",".join(map(str, nodes)), "kill")

    def start(self, *nodes: int) -> None:
        ctl(",".join(map(str, nodes)), "start")

    def kill_and_start(self, *nodes: int, after_s: float = 8) -> None:
        self.kill(*nodes)
        time.sleep(after_s)
        self.start(*nodes)


def node_of_consumers(stage: Stage) -> None:
    stage.kill_and_start(1)


def leader_of_work_queue(stage: Stage) -> None:
    queue = queue_of(stage.random.choice(list(stage.consumers.clients)))
    node = int(ctl("leader", queue))
    say(f"    node {node} leads {queue}")
    stage.kill_and_start(node)


def leader_of_rung(stage: Stage) -> None:
    rung = stage.random.choice(queues_like(RUNGS))
    node = int(ctl("leader", rung))
    say(f"    node {node} leads {rung}")
    stage.kill_and_start(node)


def two_of_three(stage: Stage) -> None:
    stage.kill_and_start(1, stage.random.choice((2, 3)))


def all_three(stage: Stage) -> None:
    stage.kill_and_start(1, 2, 3, after_s=2)


def partition(stage: Stage, length_s: float = 30) -> None:
    stage.tell(f"node 1 is cut off from the others for {length_s:.0f} s")
    ctl("partition", "1", "2,3")
    time.sleep(length_s)
    ctl("heal")


def cut_off(stage: Stage) -> None:
    partition(stage, 100)


def each_alone(stage: Stage) -> None:
    stage.tell("no node reaches another for 15 s")
    ctl("partition", "1", "2", "3")
    time.sleep(15)
    ctl("heal")


def killed_consumers(stage: Stage) -> None:
    stage.tell("SIGKILL to all consumers, five times")
    for number in range(2, 7):
        for client in stage.consumers.clients:
            stage.consumers.restart(client)
        stage.consumers.await_connections(number)
        time.sleep(3)


def standing_still(stage: Stage) -> None:
    stage.tell("node 1 stands still for 20 s (SIGSTOP)")
    ctl(1, "pause")
    time.sleep(20)
    ctl(1, "continue")


def rolling_restart(stage: Stage) -> None:
    for node in (1, 2, 3):
        stage.tell(f"node {node} is drained, stopped and started")
        ctl(node, "drain")
        ctl(node, "stop")
        ctl(node, "start")


def alarm(stage: Stage) -> None:
    stage.tell("a memory alarm for 8 s")
    ctl(stage.random.randint(1, 3), "set-alarm")
    time.sleep(8)
    ctl("clear-alarm")


def moves(stage: Stage) -> None:
    for _ in range(2):
        for queue in (
            queue_of(stage.random.choice(list(stage.consumers.clients))),
            stage.random.choice(queues_like(RUNGS)),
        ):
            node = stage.random.choice([each for each in (1, 2, 3) if each != int(ctl("leader", queue))])
            stage.tell(f"{queue}: leads from node {node}, then loses its member there, and gets it back")
            ctl("move-leader", queue, node)
            time.sleep(1)
            ctl("delete-member", queue, node)
            time.sleep(1)
            ctl("add-member", queue, node)


def mixed(stage: Stage) -> None:
    choices = [node_of_consumers, leader_of_work_queue, leader_of_rung, two_of_three, each_alone, alarm, standing_still]
    for fault in stage.random.sample(choices, 4):
        fault(stage)
        settle()
        for client in stage.random.sample(list(stage.consumers.clients), min(2, len(stage.consumers.clients))):
            stage.tell(f"SIGKILL to {client}")
            stage.consumers.restart(client)


FAULTS: dict[
    str, tuple[str, Callable[[Stage], None], int]
] = {  # by name: for the table; the action; about how long, in s
    "node": ("the consumers' node killed", node_of_consumers, 45),
    "queue-leader": ("leader of a work queue killed", leader_of_work_queue, 45),
    "rung-leader": ("leader of a rung killed", leader_of_rung, 45),
    "two": ("two of three killed", two_of_three, 60),
    "all": ("all three killed", all_three, 60),
    "partition": ("partition of 30 s, consumers in the minority", partition, 75),
    "alone": ("partition of 15 s, each node alone", each_alone, 60),
    "cut-off": ("one node cut off for 100 s, consumers on it reach all", cut_off, 180),
    "consumers": ("consumers killed every 3 s, five times", killed_consumers, 40),
    "pause": ("the consumers' node stands still for 20 s", standing_still, 60),
    "restart": ("rolling restart", rolling_restart, 75),
    "alarm": ("memory alarm", alarm, 35),
    "moves": ("leaders moved, members deleted and added", moves, 45),
    "mixed": ("mixed", mixed, 150),
}


def settle() -> None:
    """Mends the cluster: all nodes run, and reach each other."""
    ctl("heal")
    for node in (1, 2, 3):
        try:
            ctl(node, "rabbitmqctl", "--silent", "--timeout", "60", "await_startup")
        except Unanswered:
            for order in ("kill", "start"):
                ctl(node, order)


def declare(clients: Sequence[str]) -> None:
    def act(channel: Any) -> None:
        channel.exchange_declare(EXCHANGE, "topic", durable=True)
        for queue, arguments in [(AUDIT, QUORUM), *((queue_of(client), WORK_QUEUE) for client in clients)]:
            channel.queue_declare(queue, durable=True, arguments=arguments)
            channel.queue_bind(queue, EXCHANGE, "#")

    ask(act)


class Round:
    """One fault: consumers, messages, the fault, and the account."""

    def __init__(self, number: int, fault: str, clients: Sequence[str], seed: int, directory: Path) -> None:
        self.fault = fault
        self.title, self.act, _ = FAULTS[fault]
        self.clients = clients
        self.directory = directory / f"{number}-{fault}"
        self.directory.mkdir(parents=True)
        self.publisher = Publisher(number, seed)
        self.happened: list[str] = []
        self.random = random.Random(f"{seed}-{number}-{fault}")
        self.parked: dict[str, list[tuple[Any, bytes]]] = {client: [] for client in clients}
        self.unroutable: list[tuple[Any, bytes]] = []
        self.drained_s = 0.0
        self.accounts: dict[str, Account] = {}
        self.notes: list[str] = []

    def run(self) -> None:
        say(f"{self.title}")
        with Consumers(self.clients, self.directory) as consumers:
            consumers.await_connections(1)
            self.publisher.start()
            self.await_half(consumers)
            self.act(Stage(consumers, self.random, self.happened))
            ended = time.time()
            settle()
            if crashed := consumers.that_ended():
                self.notes.append(f"consumers ended by themselves: {', '.join(crashed)}")
            self.await_end(ended)
        left = self.take_the_rest()
        self.close_the_books(left)

    def await_half(self, consumers: Consumers) -> None:
        """Waits until messages are in hand, wait, and are on their way."""
        limit = time.monotonic() + WAY_LIMIT_S
        while len(self.publisher.sure) < MESSAGES / 3:
            if time.monotonic() > limit:
                raise Unanswered(f"only {len(self.publisher.sure)} messages were published in {WAY_LIMIT_S:.0f} s")
            time.sleep(0.1)

    def await_end(self, ended: float) -> None:
        """Waits until every message is done or parked, and then until nothing moves."""
        limit = ended + DRAIN_LIMIT_S
        told, last, most = time.time(), ended, 0
        strayed = ended  # when the unroutable queue last got longer: before 4.3 that can be late
        while time.time() < limit:
            time.sleep(0.5)
            if (depth := ask(partial(depth_of, queue=UNROUTABLE))) > most:
                most, strayed = depth, time.time()
                say(f"    {depth} unroutable")
            is_quiet = time.time() > max(ended, last, strayed) + UNROUTABLE_S
            open_ids = {client: self.open_ids(client, is_quiet) for client in self.clients}
            last = max(journal.last_ms for journal in self.journals().values()) / 1000
            if not self.publisher.is_alive() and not any(open_ids.values()):
                self.drained_s = max(0.0, last - ended)
                if time.time() > last + QUIET_S:
                    return
            elif time.time() > told + 30:
                told = time.time()
                say(f"    still open: { ({client: len(ids) for client, ids in open_ids.items()}) }")
        self.drained_s = DRAIN_LIMIT_S
        self.notes.append(f"not drained within {DRAIN_LIMIT_S:.0f} s")

    def journals(self) -> dict[str, Journal]:
        return {client: Journal.read(self.directory / f"{client}.journal") for client in self.clients}

    def open_ids(self, client: str, is_quiet: bool) -> set[str]:
        """Returns the ids that are not done, parked or unroutable. Takes parked messages.

        If is_quiet is set, also takes unroutable messages: no worker returns them any more."""
        journal = Journal.read(self.directory / f"{client}.journal")
        undone = {id for id in list(self.publisher.sure) if not journal.is_done(id)}
        left = undone - self.found(client)
        if any(len(journal.handlings.get(id, ())) >= MAX_ATTEMPTS for id in left):
            self.parked[client] += ask(partial(take_all, queue=f"{queue_of(client)}.parked"))
        elif left and is_quiet and not self.publisher.is_alive():
            self.unroutable += ask(partial(take_all, queue=UNROUTABLE))
        return undone - self.found(client)

    def found(self, client: str) -> set[str]:
        """Returns the ids that were parked or unroutable when last looked at."""
        bodies = [body for _, body in self.parked[client]] + self.unroutable_of(client)
        return {body.decode().split()[0] for body in bodies}

    def unroutable_of(self, client: str) -> list[bytes]:
        queue = queue_of(client)
        return [body for properties, body in self.unroutable if properties.headers.get("backhop-queue") == queue]

    def take_the_rest(self) -> dict[str, list[str]]:
        """Takes what still is in work queues and rungs; returns the ids by work queue."""
        left: dict[str, list[str]] = {queue_of(client): [] for client in self.clients}
        for queue in [*left, *queues_like(RUNGS)]:
            for properties, body in ask(partial(take_all, queue=queue)):
                owner = queue if queue in left else properties.headers.get("backhop-queue", "")
                left.setdefault(owner, []).append(body.decode().split()[0])
        return left

    def close_the_books(self, left: dict[str, list[str]]) -> None:
        sure, unsure = self.publisher.sure, self.publisher.unsure
        audit = ask(partial(take_all, queue=AUDIT))
        self.unroutable += ask(partial(take_all, queue=UNROUTABLE))
        others, notes = seen_by_others({**sure, **unsure}, sure, audit)
        self.notes += notes
        for client, journal in self.journals().items():
            queue = queue_of(client)
            self.parked[client] += ask(partial(take_all, queue=f"{queue}.parked"))
            unroutable = [body.decode().split()[0] for body in self.unroutable_of(client)]
            result = account(sure, unsure, journal, self.parked[client], unroutable, left[queue])
            result.seen_by_others = others
            result.in_hand = PREFETCH * (len(self.happened) + journal.connections - 1)
            result.in_hand += MAX_ATTEMPTS * journal.returned
            self.accounts[client] = result
            line = (
                f"done {result.done}, parked {result.parked}, waiting {result.waiting}, unroutable {result.unroutable}"
            )
            line += f", handled {result.calls} times, returned {journal.returned}"
            line += f", duplicates {result.duplicates} of at most {result.in_hand}"
            line += "".join(f", {name.upper()} {count}" for name, count in result.faults.items())
            say(f"    {client}: {line}, connections {journal.connections}")
            for note in result.notes[:5]:
                say(f"        {note}")
        for note in self.notes[:5]:
            say(f"    {note}")
        details = {client: vars(each) for client, each in self.accounts.items()}
        (self.directory / "accounts.json").write_text(json.dumps([self.happened, self.notes, details], indent=1))

    @property
    def is_right(self) -> bool:
        wrong = any(each.faults or each.duplicates > each.in_hand for each in self.accounts.values())
        return not wrong and not self.strays and not self.notes

    @property
    def strays(self) -> int:
        """The messages that ended in the unroutable queue, although their work queues live."""
        return sum(each.unroutable for each in self.accounts.values())

    def row(self) -> str:
        duplicates = " / ".join(
            f"**{each.duplicates}**" if each.duplicates > each.in_hand else str(each.duplicates)
            for each in self.accounts.values()
        )
        wrong = {name: count for each in self.accounts.values() for name, count in each.faults.items()}
        verdict = ", ".join(f"{name} {count}" for name, count in wrong.items()) or "0"
        return f"| {self.title} | {verdict} | {self.strays} | {duplicates} | {self.drained_s:.0f} s |"


def table(rounds: Sequence[Round], clients: Sequence[str]) -> str:
    order = list(FAULTS)
    rows = [each.row() for each in sorted(rounds, key=lambda each: order.index(each.fault))]
    title = (
        f"| fault on RabbitMQ {VERSION}, {MESSAGES} messages a client | lost, changed, early, wrong, seen by others |"
    )
    title += f" unroutable | duplicates, {' / '.join(clients)} | drained, from the fault's end |"
    return "\n".join([title, "|---|---|---|---|---|", *rows])


def main() -> int:
    parser = argparse.ArgumentParser(prog="run", description="A chaos run on a cluster of three nodes.")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000), help="what is drawn; default: any")
    parser.add_argument("--minutes", type=float, default=4, help="no fault begins that would end later; default 4")
    parser.add_argument("--version", help="of RabbitMQ: 3.10, 4.0 or 4.3, the default")
    parser.add_argument("--own-resend", help="unconfirmed dead letters again after 180 s, not 30 s", action="store_true")
    parser.add_argument("--only", nargs="+", choices=list(FAULTS), help="these faults, in this order")
    parser.add_argument("--clients", nargs="+", choices=list(CLIENTS), default=list(CLIENTS))
    parser.add_argument("--out", type=Path, default=BUILD / "chaos", help="where journals, logs and the table go")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    start = time.monotonic()
    say(f"RabbitMQ {VERSION}, seed {options.seed}; again: tests/chaos/run --seed {options.seed} --version {VERSION}")
    order = options.only or random.Random(options.seed).sample(list(FAULTS), len(FAULTS))
    directory = options.out / VERSION
    shutil.rmtree(directory, ignore_errors=True)
    declare(options.clients)
    rounds: list[Round] = []
    for number, fault in enumerate(order, 1):
        left_s = options.minutes * 60 - (time.monotonic() - start)
        if not options.only and rounds and left_s < FAULTS[fault][2]:
            continue
        each = Round(number, fault, options.clients, options.seed, directory)
        each.run()
        rounds.append(each)
        text = table(rounds, options.clients)
        (directory / "table.md").write_text(text + "\n")
    print(f"\n{text}\n")
    calls = sum(account.calls for each in rounds for account in each.accounts.values())
    wrong = [each.fault for each in rounds if not each.is_right]
    messages = sum(len(each.publisher.sure) for each in rounds)
    say(f"{len(rounds)} faults, {messages} messages to {len(options.clients)} clients, {calls} handler calls")
    if wrong:
        say(f"FAILED: {', '.join(wrong)}; journals and logs are in {directory}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
