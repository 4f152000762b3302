"""A contender of the benchmark: does a task with the messages of the queue, and prints a JSON object.

    python contend.py CONTENDER TASK MESSAGES [TURNS]

Contenders:

- pika: a plain loop on its BlockingConnection, with manual acknowledgements, which waits for each confirm
- pika-select: a plain loop on its SelectConnection, which acknowledges as confirms come
- plain-aio-pika: a plain loop that awaits each confirm, a task a message
- blocking, select: backhop.pika
- aio-pika: backhop.aio_pika
- worker: backhop.Worker
- worker-metrics: with backhop.prometheus.Metrics
- worker-breaker, blocking-breaker, select-breaker, aio-pika-breaker: with a breaker, which stays closed

Tasks:

- consume: acknowledge each message
- retry: each message fails; a copy waits, confirmed, then the original is acknowledged
- seen, of select: retry, by retriers that take the TURNS, batch by batch, over and over. TURNS has commas between
  them: silent, as if it had no events; off, without a listener; on, with backhop.prometheus.Metrics; breaker, as off,
  with a breaker
- decision: no broker; an adapter's decision for a message with ten headers, one of them an x-death of five records

AMQP_URL names the broker; bench-broker declares the queues and publishes the messages, as bench/bench.h has them.
The object has these numbers:

- "messages"
- "seconds": from the first message to the end of the connections
- "cpu_seconds": this process's processor time meanwhile
- "peak_kib": the peak memory
- "cpu_us", for seen: the processor time a message in each batch
- "took_us", for seen: the time that a message took in each batch
- "microseconds", for decision: the median of one
"""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable
from datetime import datetime, timezone
from itertools import pairwise
from typing import Any

import aio_pika
import pika
import pika.compat
import pika.spec

import backhop
import backhop.aio_pika
import backhop.pika
from backhop.decider import Decider
from backhop.plan import Result

QUEUE, NAMESPACE = "backhop.bench.work", "backhop.bench"  # as bench/bench.h has them
PREFETCH = 1000
SEEN_PREFETCH, SEEN_BATCH = 100, 1000  # messages: those in hand at a batch's end count in the next one
ERROR = "507 queue is full"
URL = os.environ.get("AMQP_URL", "")
POLICY = backhop.Policy(initial=600, max=600, jitter="none", max_retry_after=0)
BREAKER = "-breaker"  # the end of a contender's name
OPTIONS: dict[str, Any] = {}  # of workers and retriers


class Task:
    """The handler's work, and how long it took from the first message on."""

    def __init__(self, name: str, messages: int) -> None:
        self.fails = name in ("retry", "seen")
        self.messages = messages
        self.done = 0
        self.start = 0.0
        self.batches: list[float] = []  # processor time at their beginnings
        self.moments: list[float] = []  # what a clock showed then

    def handle(self, _: object) -> None:
        if not self.done:
            self.start = time.perf_counter()
        if self.done % SEEN_BATCH == 0:
            self.batches.append(time.process_time())
            self.moments.append(time.perf_counter())
        self.done += 1
        if self.fails:
            raise RuntimeError(ERROR)

    @property
    def is_done(self) -> bool:
        return self.done >= self.messages


def run_pika(task: Task) -> None:
    """The loop that one writes: publish with a confirm, then acknowledge."""
    connection = pika.BlockingConnection(pika.URLParameters(URL))
    channel, publishing = connection.channel(), connection.channel()
    publishing.confirm_delivery()
    channel.basic_qos(prefetch_count=PREFETCH)

    def on_message(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        try:
            task.handle(body)
        except RuntimeError as error:
            headers = copy_headers(properties.headers, error)
            copy = pika.BasicProperties(
                "text/plain", headers=headers, delivery_mode=2, message_id=properties.message_id
            )
            publishing.basic_publish(f"{NAMESPACE}.wait.600000", method.routing_key, body, copy, mandatory=True)
        channel.basic_ack(method.delivery_tag)
        if task.is_done:
            channel.stop_consuming()

    channel.basic_consume(QUEUE, on_message)
    channel.start_consuming()
    connection.close()


def copy_headers(headers: Any, error: object) -> dict[str, Any]:
    """Returns the headers of a hand-written copy."""
    attempts = headers["backhop-attempts"] + 1
    return {**headers, "backhop-attempts": attempts, "backhop-error": str(error), "BCC": [f"backhop:{QUEUE}"]}


def run_plain_select(task: Task) -> None:
    """The loop that one writes: publish, and acknowledge when the confirm comes."""
    unconfirmed: dict[int, int] = {}  # delivery tags by the numbers of their copies
    channels: list[Any] = []
    published = settled = 0

    def on_open(connection: Any) -> None:
        connection.channel(on_open_callback=on_channel)

    def on_channel(channel: Any) -> None:
        channels.append(channel)
        if len(channels) == 1:
            channel.connection.channel(on_open_callback=on_channel)
            return
        channel.confirm_delivery(on_confirm)
        channels[0].basic_qos(prefetch_count=PREFETCH)
        channels[0].basic_consume(QUEUE, on_message)

    def on_message(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        nonlocal published
        try:
            task.handle(body)
        except RuntimeError as error:
            headers = copy_headers(properties.headers, error)
            copy = pika.BasicProperties(
                "text/plain", headers=headers, delivery_mode=2, message_id=properties.message_id
            )
            channels[1].basic_publish(f"{NAMESPACE}.wait.600000", method.routing_key, body, copy, mandatory=True)
            published += 1
            unconfirmed[published] = method.delivery_tag
        else:
            settle(method.delivery_tag)

    def on_confirm(frame: Any) -> None:
        method = frame.method
        last = method.delivery_tag
        for number in [each for each in unconfirmed if each <= last] if method.multiple else [last]:
            settle(unconfirmed.pop(number))

    def settle(tag: int) -> None:
        nonlocal settled
        channels[0].basic_ack(tag)
        settled += 1
        if settled == task.messages:
            channels[0].add_callback(lambda _: connection.close(), [pika.spec.Basic.GetEmpty])
            channels[0].basic_get(QUEUE, lambda *_: None)

    connection = pika.SelectConnection(
        pika.URLParameters(URL), on_open, on_close_callback=lambda connection, _: connection.ioloop.stop()
    )
    connection.ioloop.start()


def run_plain_aio_pika(task: Task) -> None:
    """The loop that one writes: await the confirm, then acknowledge."""

    async def run() -> None:
        connection = await aio_pika.connect_robust(URL)
        channel, publishing = await connection.channel(), await connection.channel()
        await channel.set_qos(prefetch_count=PREFETCH)
        exchange = await publishing.get_exchange(f"{NAMESPACE}.wait.600000", ensure=False)
        done = asyncio.Event()
        settled = 0

        async def on_message(incoming: aio_pika.abc.AbstractIncomingMessage) -> None:
            nonlocal settled
            try:
                task.handle(incoming)
            except RuntimeError as error:
                copy = aio_pika.Message(
                    incoming.body,
                    headers=copy_headers(incoming.headers, error),
                    content_type="text/plain",
                    delivery_mode=2,
                    message_id=incoming.message_id,
                )
                await exchange.publish(copy, incoming.routing_key or "", mandatory=True)
            await incoming.ack()
            settled += 1
            if settled == task.messages:
                done.set()

        queue = await channel.get_queue(QUEUE)
        await queue.consume(on_message)
        await done.wait()
        await queue.get(fail=False)  # as below
        await connection.close()

    asyncio.run(run())


def run_blocking(task: Task) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(URL))
    channel = connection.channel()
    channel.basic_qos(prefetch_count=PREFETCH)
    retrier = backhop.pika.Retrier(channel, QUEUE, POLICY, namespace=NAMESPACE, **OPTIONS)
    on_message = retrier.wrap(task.handle)

    def until_done(*delivery: Any) -> None:
        on_message(*delivery)
        if task.is_done:
            channel.stop_consuming()

    channel.basic_consume(QUEUE, until_done)
    channel.start_consuming()
    retrier.drain()
    channel.basic_get(QUEUE)  # as below
    connection.close()


def closed_breaker(package: Any) -> Any:
    """Returns a breaker that the failures leave closed."""
    return package.Breaker("bench", errors=(ConnectionError,))


def own_package() -> Any:
    """The package, with code for itself: what the interpreter learns of the calls of one makes no other slower or
    faster."""
    for name in [name for name in sys.modules if name.startswith("backhop") and not name.endswith("._backhop")]:
        del sys.modules[name]
    for name in ("backhop.pika", "backhop.prometheus"):
        importlib.import_module(name)
    return sys.modules["backhop"]


def silence(events: Any) -> None:
    """As if there were no events at all."""
    nothing = dict.fromkeys(("delivered", "succeeded", "failed", "count_copy"), lambda *_: None)
    members = {"__slots__": (), **nothing, "wants": lambda *_: False}
    events.__class__ = type("Silent", (type(events),), members)


def run_seen(task: Task, turns: list[str]) -> dict[str, list[float]]:
    """Measures the time of a message, in microseconds, in batches of retriers that take turns."""

    def retrier(channel: Any, name: str) -> Any:
        package = own_package()
        policy = package.Policy(initial=600, max=600, jitter="none", max_retry_after=0)
        listener = package.prometheus.Metrics() if name == "on" else None
        breaker = closed_breaker(package) if name == "breaker" else None
        options = {"namespace": NAMESPACE, "on_event": listener, "breaker": breaker}
        made = package.pika.Retrier(channel, QUEUE, policy, **options)
        if name == "silent":
            silence(made._events)
        return made

    def in_turn(channel: Any) -> list[Any]:
        made = {name: retrier(channel, name) for name in dict.fromkeys(turns)}
        return [made[name] for name in turns]

    run_select(task, in_turn, SEEN_PREFETCH)
    spent, took = (
        [(end - start) / SEEN_BATCH * 1e6 for start, end in pairwise(all_of_them)]
        for all_of_them in (task.batches, task.moments)
    )
    return {"cpu_us": spent, "took_us": took}


def one_retrier(channel: Any) -> list[backhop.pika.Retrier]:
    return [backhop.pika.Retrier(channel, QUEUE, POLICY, namespace=NAMESPACE, **OPTIONS)]


def run_select(
    task: Task, make: Callable[[Any], list[backhop.pika.Retrier]] = one_retrier, prefetch: int = PREFETCH
) -> None:
    def on_open(connection: Any) -> None:
        connection.channel(on_open_callback=on_channel)

    def on_channel(channel: Any) -> None:
        channel.basic_qos(prefetch_count=prefetch)
        retriers = make(channel)
        callback_of = {each: each.wrap(task.handle) for each in retriers}
        callbacks = [callback_of[each] for each in retriers]

        def end() -> None:
            if any(each.pending for each in retriers):
                connection.ioloop.call_later(0.001, end)
            else:
                channel.add_callback(lambda _: connection.close(), [pika.spec.Basic.GetEmpty])
                channel.basic_get(QUEUE, lambda *_: None)  # as below

        def until_done(*delivery: Any) -> None:
            callbacks[task.done // SEEN_BATCH % len(callbacks)](*delivery)
            if task.is_done:
                end()

        channel.basic_consume(QUEUE, until_done)

    connection = pika.SelectConnection(
        pika.URLParameters(URL), on_open, on_close_callback=lambda connection, _: connection.ioloop.stop()
    )
    connection.ioloop.start()


def run_aio_pika(task: Task) -> None:
    async def run() -> None:
        connection = await aio_pika.connect_robust(URL)
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=PREFETCH)
        retrier = backhop.aio_pika.Retrier(channel, QUEUE, POLICY, namespace=NAMESPACE, **OPTIONS)
        done = asyncio.Event()

        async def handle(message: object) -> None:
            try:
                task.handle(message)
            finally:
                if task.is_done:
                    done.set()

        queue = await channel.get_queue(QUEUE)
        await queue.consume(retrier.wrap(handle))
        await done.wait()
        await retrier.drain()
        await queue.get(
            fail=False
        )  # a channel that ends loses the acknowledgements that it has not handed to the queue
        await connection.close()

    asyncio.run(run())


def run_worker_metrics(task: Task) -> None:
    from backhop.prometheus import Metrics

    run_worker(task, Metrics())


def run_worker(task: Task, on_event: Any = None) -> None:
    topology = backhop.Topology(QUEUE, POLICY, namespace=NAMESPACE, work_queue="quorum")
    options = {"threads": 1, "prefetch": PREFETCH, "mode": "none", "on_event": on_event, **OPTIONS}
    worker = backhop.Worker(URL, topology=topology, **options)

    def handle(message: backhop.Message) -> None:
        try:
            task.handle(message)
        finally:
            if task.is_done:
                worker.stop()

    worker.run(handle)


def decide(count: int) -> float:
    """The median time of a decision, in microseconds: pika's properties in, pika's properties for the copy out."""
    moment = datetime(2026, 1, 1, tzinfo=timezone.utc)
    deaths = [
        {
            "count": 2,
            "reason": "expired",
            "queue": f"backhop.wait.{1000 * i}",
            "time": moment,
            "exchange": f"backhop.wait.{1000 * i}",
            "routing-keys": ["order.created", "backhop:orders"],
        }
        for i in range(1, 6)
    ]
    headers = {f"header-{i}": f"value {i}" for i in range(7)} | {"number": 7, "moment": moment, "x-death": deaths}
    original = pika.BasicProperties("text/plain", headers=headers, message_id="42", delivery_mode=2)
    decider = Decider(backhop.Topology("orders"))
    times = []
    for _ in range(count):
        start = time.perf_counter_ns()
        history = decider.read("orders", "order.created", original, original.headers)
        plan = decider.plan(history, Result("failed", ERROR))
        pika.BasicProperties(
            headers=plan.copy_headers(original.headers, integer=pika.compat.long),
            delivery_mode=2,
            expiration=plan.expiration,
            **{name: getattr(original, name) for name in plan.kept_properties},
        )
        times.append(time.perf_counter_ns() - start)
    return statistics.median(times) / 1000


CONTENDERS: dict[str, Callable[[Task], None]] = {
    "pika": run_pika,
    "pika-select": run_plain_select,
    "plain-aio-pika": run_plain_aio_pika,
    "blocking": run_blocking,
    "select": run_select,
    "aio-pika": run_aio_pika,
    "worker": run_worker,
    "worker-metrics": run_worker_metrics,
}


def main() -> None:
    contender, name, messages = sys.argv[1], sys.argv[2], int(sys.argv[3])
    logging.getLogger("backhop").setLevel(logging.ERROR)
    if name == "decision":
        print(json.dumps({"messages": messages, "microseconds": decide(messages)}))
        return
    task = Task(name, messages)
    if name == "seen":
        print(json.dumps({"messages": messages, **run_seen(task, sys.argv[4].split(","))}))
        return
    if contender.endswith(BREAKER):
        OPTIONS["breaker"] = closed_breaker(backhop)
    CONTENDERS[contender.removesuffix(BREAKER)](task)
    result = {
        "messages": messages,
        "seconds": time.perf_counter() - task.start,
        "cpu_seconds": time.process_time() - task.batches[0],
        "peak_kib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
