"""The contenders of the benchmark: the languages, their programs, and their targets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
TASKS = {"consume": "consume and acknowledge", "retry": "safe retry cycle"}


@dataclass(frozen=True)
class Contender:
    """A program that does a task."""

    label: str
    """The name, for people."""
    command: list[str]
    """The program, called with a task and a number of messages, which are in the work queue. It writes a JSON object.
    "messages" is their number. "seconds" is from the first message to the end of its connections. It also has processor
    time meanwhile, "cpu_seconds", and peak memory, "peak_kib". A language may add others."""
    targets: Mapping[str, float] = field(default_factory=dict)
    """By task: how often the base's rate is wanted, at least."""
    messages: Mapping[str, int] = field(default_factory=dict)
    """By task: as the language's, except for a contender that is too slow for as many."""


@dataclass(frozen=True)
class Language:
    """Contenders that take turns; the first is the base, what one would have without Backhop."""

    name: str
    contenders: dict[str, Contender]
    messages: dict[str, int]
    """By task: so many that connecting and draining do not count."""
    environment: Mapping[str, str] = field(default_factory=dict)
    decides: str = ""
    """The contender that has the task "decision": "microseconds", the median of one."""
    seen: str = ""
    """The contender that has the task "seen". It gets turns too, separated by commas. Each turn is a batch of failing
    messages, and the turns are repeated. "silent" is without events, "off" without a listener, "on" with metrics.
    "breaker" is "off" with a closed breaker.

    For each batch it writes "cpu_us", its processor time a message, and "took_us", the time that one took. Programs
    that take turns cannot measure this: one's rates, and its processor time, differ by a tenth between runs."""
    is_default: bool = True
    """Set if it is measured when no language is named."""

    @property
    def base(self) -> str:
        return next(iter(self.contenders))

    def messages_of(self, contender: str, task: str) -> int:
        return self.contenders[contender].messages.get(task, self.messages[task])


def breaker_cost(name: str, off: list[str], environment: Mapping[str, str] | None = None) -> Language:
    """Returns what a closed breaker costs. The second contender is the first once more: its ratio is the noise."""
    *command, contender = off
    on = [*off, "breaker"] if contender.endswith("bench-worker") else [*command, f"{contender}-breaker"]
    return Language(
        f"{name}, what a closed breaker costs",
        {
            "off": Contender("without a breaker", off),
            "again": Contender("without a breaker, again", off),
            "on": Contender("with a closed breaker", on, {"consume": 0.95, "retry": 0.95}),
        },
        {"consume": 50000, "retry": 40000},
        environment or {},
        is_default=False,
    )


def languages(programs: Path) -> dict[str, Language]:
    """All of them; programs is the directory with what bench/ was compiled to."""
    build = ROOT / "build"
    few = {"retry": 10000}
    python = [str(build / "python/default/bin/python"), str(ROOT / "bench/contend.py")]
    ruby = ["ruby", str(ROOT / "bench/contend.rb")]
    node = ["node", str(build / "node/default/bench/contend.js")]
    worker = [str(programs / "bench-worker")]
    gems = {"GEM_HOME": str(build / "ruby/default")}
    return {
        "c": Language(
            "C",
            {
                "librabbitmq": Contender(
                    "librabbitmq, a loop with batched acks and pipelined confirms", [str(programs / "bench-plain")]
                ),
                "backhop": Contender("worker", worker, {"consume": 0.9, "retry": 0.9}),
                "metrics": Contender(
                    "worker that counts metrics", [*worker, "metrics"], {"consume": 0.85, "retry": 0.85}
                ),
            },
            {"consume": 100000, "retry": 100000},
        ),
        "python": Language(
            "Python",
            {
                "pika": Contender("pika, a loop that waits for each confirm", [*python, "pika"], messages=few),
                "worker": Contender("backhop.Worker", [*python, "worker"], {"consume": 3, "retry": 25}),
                "blocking": Contender("backhop.pika, BlockingConnection", [*python, "blocking"], {"consume": 0.9}),
            },
            {"consume": 50000, "retry": 40000},
            decides="blocking",
        ),
        "python-select": Language(
            "Python, SelectConnection",
            {
                "pika": Contender("pika, a loop with confirm callbacks", [*python, "pika-select"]),
                "select": Contender("backhop.pika", [*python, "select"], {"consume": 0.9, "retry": 0.9}),
            },
            {"consume": 50000, "retry": 40000},
            seen="select",
        ),
        "python-worker-seen": Language(
            "Python, worker, what being seen costs",
            {
                "off": Contender("backhop.Worker, with nobody who listens", [*python, "worker"]),
                "on": Contender(
                    "backhop.Worker, with backhop.prometheus.Metrics", [*python, "worker-metrics"], {"retry": 0.95}
                ),
            },
            {"consume": 50000, "retry": 40000},
        ),
        "python-aio-pika": Language(
            "Python, aio-pika",
            {
                "aio-pika": Contender(
                    "aio-pika, a task a message that awaits its confirm", [*python, "plain-aio-pika"]
                ),
                "backhop": Contender("backhop.aio_pika", [*python, "aio-pika"], {"consume": 0.9, "retry": 0.9}),
            },
            {"consume": 50000, "retry": 40000},
        ),
        "ruby": Language(
            "Ruby",
            {
                "bunny": Contender("Bunny, a loop that waits for each confirm", [*ruby, "bunny"], messages=few),
                "worker": Contender("Backhop::Worker", [*ruby, "worker"], {"consume": 3, "retry": 25}),
                "adapter": Contender("Backhop::Bunny", [*ruby, "adapter"], {"consume": 0.9, "retry": 5}),
            },
            {"consume": 50000, "retry": 40000},
            gems,
            decides="adapter",
            seen="adapter",
        ),
        "ruby-worker-seen": Language(
            "Ruby, worker, what being seen costs",
            {
                "off": Contender("Backhop::Worker, with nobody who listens", [*ruby, "worker"]),
                "on": Contender("Backhop::Worker, with Backhop::Metrics", [*ruby, "worker-metrics"], {"retry": 0.95}),
            },
            {"consume": 50000, "retry": 40000},
            gems,
        ),
        "node": Language(
            "Node",
            {
                "amqplib": Contender("amqplib, a loop with confirm callbacks", [*node, "amqplib"]),
                "worker": Contender("Worker", [*node, "worker"], {"consume": 1.5, "retry": 1.5}),
                "adapter": Contender("backhop/amqplib", [*node, "adapter"], {"retry": 0.9}),
            },
            {"consume": 50000, "retry": 40000},
            decides="adapter",
            seen="adapter",
        ),
        "node-worker-seen": Language(
            "Node, worker, what being seen costs",
            {
                "off": Contender("Worker, with nobody who listens", [*node, "worker"]),
                "on": Contender("Worker, with backhop/prom-client", [*node, "worker-metrics"], {"retry": 0.95}),
            },
            {"consume": 50000, "retry": 40000},
        ),
        "c-worker-breaker": breaker_cost("C, worker", worker),
        "python-worker-breaker": breaker_cost("Python, worker", [*python, "worker"]),
        "python-blocking-breaker": breaker_cost("Python, BlockingConnection", [*python, "blocking"]),
        "python-select-breaker": breaker_cost("Python, SelectConnection", [*python, "select"]),
        "python-aio-pika-breaker": breaker_cost("Python, aio-pika", [*python, "aio-pika"]),
        "ruby-worker-breaker": breaker_cost("Ruby, worker", [*ruby, "worker"], gems),
        "ruby-bunny-breaker": breaker_cost("Ruby, Bunny", [*ruby, "adapter"], gems),
        "node-worker-breaker": breaker_cost("Node, worker", [*node, "worker"]),
        "node-amqplib-breaker": breaker_cost("Node, amqplib", [*node, "adapter"]),
    }
