"""Plays a script on a broker. tests/vectors/broker/README.md describes the steps."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import time
from typing import Any

import amqp
from control import Control
from link import LIMIT_S, Channel, Closed, Ended, Failure, Item, Link, said

VERSIONS = ("3.8", "3.10", "4.0", "4.3")
TYPES = ("classic", "quorum")
ABSENT = object()
UNANSWERED = (
    "publish",
    "ack",
    "nack",
    "reject",
    "send",
    "frame",
    "octets",
    "closed",
    "ended",
)  # steps
POLL_S = 0.01
MOST_SKIPPED_S = 3600  # the most that the model's clock may be ahead

DEATH_TYPES = {
    "count": "int64",
    "reason": "string",
    "queue": "string",
    "time": "timestamp",
    "exchange": "string",
    "routing-keys": "array",
    "original-expiration": "string",
}
SHOWN = 700  # characters of a value in a report


# ------------------------------------------------------------------- by version and type of queue


def holds(condition: str, version: str, kind: str) -> bool | None:
    """Returns whether a key such as "3.10 4.0" or "4.3 quorum" holds; None: it is no condition."""
    words = condition.split()
    versions = [each for each in words if each in VERSIONS]
    types = [each for each in words if each in TYPES]
    if not words or len(versions) + len(types) < len(words):
        return None
    return (not versions or version in versions) and (not types or kind in types)


def resolve(value: Any, version: str, kind: str) -> Any:
    """Chooses by version and type. ABSENT: no key holds."""
    if isinstance(value, list):
        chosen: list[Any] = []
        for each in value:
            found = resolve(each, version, kind)
            is_choice = isinstance(each, dict) and is_conditional(each)
            if found is ABSENT:
                continue
            if is_choice and isinstance(found, list) and found and isinstance(found[0], dict):
                chosen += found  # several steps
            else:
                chosen.append(found)
        return chosen
    if not isinstance(value, dict):
        return value
    if is_conditional(value):
        for condition, inner in value.items():
            if condition == "else" or holds(condition, version, kind):
                return resolve(inner, version, kind)
        return ABSENT
    found_all = {key: resolve(inner, version, kind) for key, inner in value.items()}
    return {key: inner for key, inner in found_all.items() if inner is not ABSENT}


def is_conditional(value: dict[str, Any]) -> bool:
    keys = [key for key in value if key != "else"]
    return bool(keys or "else" in value) and all(holds(key, "", "") is not None for key in keys)


# ------------------------------------------------------------------------------------ comparisons


def show(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= SHOWN else text[:SHOWN] + " ..."


def is_text(expected: Any, found: Any) -> bool:
    """Compares a text; "start..." is compared as a beginning, and "start......" as one that the broker cut."""
    if isinstance(expected, str) and expected.endswith("......") and isinstance(found, str):
        return found.startswith(expected[:-6]) and found.endswith("...")
    if isinstance(expected, str) and expected.endswith("...") and isinstance(found, str):
        return found.startswith(expected[:-3])
    return bool(expected == found)


def full(value: Any) -> Any:
    """Returns a typed value in full, with those inside."""
    whole = amqp.typed(value)
    [(kind, inner)] = whole.items()
    if kind == "array":
        return {"array": [full(each) for each in inner]}
    if kind == "table":
        return {"table": [[name, full(each)] for name, each in amqp.entries(inner)]}
    if kind in ("string", "bytes"):
        return {kind: amqp.readable(amqp.octets(inner))}
    return whole


def full_entries(fields: Any) -> list[Any]:
    return [[name, full(value)] for name, value in amqp.entries(fields)]


class Play:
    """One script on one broker.

    :param prefix: stands for "~" in the script, so that scripts do not meet
    """

    def __init__(
        self,
        script: dict[str, Any],
        url: str,
        version: str,
        kind: str,
        prefix: str,
        control: Control,
    ):
        self.script, self.url, self.version, self.kind = script, url, version, kind
        self.prefix, self.control = prefix, control
        self.links: dict[str, Link] = {}
        self.channels: dict[str, Channel] = {}
        self.held: dict[str, tuple[str, int]] = {}  # messages by their bodies: channel and tag
        self.messages: dict[str, Item] = {}
        self.queues: set[str] = set()
        self.exchanges: set[str] = set()
        self.undo: list[dict[str, Any]] = []
        self.began = time.time()
        self.seen: list[Any] = []

    # names

    def out(self, value: Any) -> Any:
        """Puts the prefix in the place of "~"."""
        if isinstance(value, str):
            return value.replace("~", self.prefix)
        if isinstance(value, list):
            return [self.out(each) for each in value]
        if isinstance(value, dict):
            return {self.out(key): self.out(each) for key, each in value.items()}
        return value

    def back(self, value: Any) -> Any:
        """Puts "~" in the place of the prefix."""
        if isinstance(value, str):
            return value.replace(self.prefix, "~")
        if isinstance(value, list):
            return [self.back(each) for each in value]
        if isinstance(value, tuple):
            return [self.back(each) for each in value]
        if isinstance(value, dict):
            return {self.back(key): self.back(each) for key, each in value.items()}
        return value

    # connections and channels

    async def link(self, name: str) -> Link:
        link = self.links.get(name)
        if link is None or link.is_over:
            link = self.links[name] = Link(self.url)
            await link.connect(f"{self.prefix}{name}")
        return link

    async def channel(self, name: str) -> Channel:
        """Returns the channel "name", or "connection/name", and opens both if needed."""
        channel = self.channels.get(name)
        if channel is None or channel.is_closed or channel.link.is_over:
            link = await self.link(name.partition("/")[0] if "/" in name else "main")
            channel = self.channels[name] = await link.open()
        return channel

    # playing

    async def play(self) -> None:
        try:
            steps = resolve(self.script["steps"], self.version, self.kind)
            for number, step in enumerate(steps, 1):
                try:
                    await self.step(dict(step))
                except (
                    Failure,
                    Closed,
                    Ended,
                    RuntimeError,
                    ValueError,
                    KeyError,
                    AssertionError,
                ) as error:
                    reason = str(error) if not isinstance(error, KeyError) else f"unknown: {error}"
                    raise Failure(
                        f"step {number}, {show(step)}:\n    {self.back(reason)}"
                    ) from error
            await self.nothing_left()
        finally:
            await self.clean()

    async def step(self, step: dict[str, Any]) -> None:
        verb = next(iter(step))
        if not hasattr(self, f"do_{verb}"):
            raise ValueError(f"no step is called {verb}: the first key names the step")
        step.pop("note", None)
        closes, ends = step.pop("closes", None), step.pop("ends", None)
        function = getattr(self, f"do_{verb}")
        subject = self.out(step.pop(verb))
        options = {key.replace("-", "_"): self.out(value) for key, value in step.items()}
        if verb != "control":
            try:
                inspect.signature(function).bind(subject, **options)
            except TypeError as error:
                raise ValueError(f"{verb} has other options: {error}") from None
        on = await self.channel_name(verb, subject, options)
        try:
            await function(subject, **options)
            if (closes or ends) is not None and verb not in UNANSWERED:
                raise Failure("the broker answered, and closed nothing")
            if closes is not None:
                item = await (await self.channel(on)).next()
                raise Failure(f"in place of a close came {show(self.shown(item))}")
            if ends is not None:
                await self.links[on.partition("/")[0] if "/" in on else "main"].wait(
                    lambda: False, "a close"
                )
        except Closed as error:
            if closes is None:
                raise
            self.compare_close(closes, error.item)
        except Ended as error:
            if ends is None:
                raise
            for name in [name for name, channel in self.channels.items() if channel.link.is_over]:
                del self.channels[name]
            if error.item is None:
                if ends != "cut":
                    raise
                return
            self.compare_close(ends, error.item)

    async def channel_name(self, verb: str, subject: Any, options: dict[str, Any]) -> str:
        if verb == "connect":
            return f"{subject}/a"
        if verb in ("confirm_select", "nothing", "sync", "close_channel", "closed"):
            return str(subject)
        if verb == "ended":
            return f"{subject}/a" if subject != "main" else "a"
        default = "publisher" if verb == "publish" else "a"
        if verb in ("ack", "nack", "reject") and isinstance(subject, str) and subject in self.held:
            default = self.held[subject][0]
        return str(options.get("on", default))

    def compare_close(self, expected: Any, item: Item) -> None:
        found = self.back(said(item))
        same = [is_text(wanted, got) for wanted, got in zip(expected, found, strict=False)]
        if not all(same):
            raise Failure(f"the close is {show(found)}")

    async def nothing_left(self) -> None:
        """An event that no step expected fails the script."""
        for name, channel in self.channels.items():
            if not channel.is_closed and not channel.link.is_over:
                try:
                    await self.do_nothing(name)
                except (Failure, Closed) as error:
                    raise Failure(f"at the end: {self.back(str(error))}") from error

    async def clean(self) -> None:
        for link in self.links.values():
            await link.cut()
        for undo in self.undo:
            word = undo.pop("word")
            if not (self.control.is_model and word == "delete_user"):
                await self.control.execute(word, **undo)
        if not self.queues and not self.exchanges:
            return
        link = Link(self.url)
        with contextlib.suppress(Ended):
            await link.connect(f"{self.prefix}clean")
            names = [("queue", name) for name in self.queues]
            channel = await link.open()
            for what, name in names + [("exchange", name) for name in self.exchanges]:
                try:
                    await channel.call(f"{what}.delete", **{what: name})
                except Closed:
                    channel = await link.open()
            await link.close()
        await link.cut()

    # messages

    def shown(self, item: Item) -> Any:
        return self.back([item.name, item.fields, item.properties, amqp.readable(item.body)])

    def take(self, item: Item, on: str) -> None:
        body = item.body.decode("utf-8", "replace")
        self.messages[body] = item
        if "tag" in item.fields:
            self.held[body] = (on, item.fields["tag"])

    def compare(self, expected: Any, item: Item) -> None:
        """Compares a message with the keys that the script gives of it."""
        wanted = {"body": expected} if not isinstance(expected, dict) else dict(expected)
        if not isinstance(expected, str) and set(wanted) <= {"times", "text", "join", "hex"}:
            wanted = {"body": expected}
        wrong: list[str] = []

        def check(what: str, want: Any, found: Any) -> None:
            if want != found:
                wrong.append(f"{what} is {show(found)}, not {show(want)}")

        headers = item.properties.get("headers", [])
        if "body" in wanted:
            body = amqp.octets(wanted.pop("body"))
            if body != item.body:
                wrong.append(
                    f"the body is {show(amqp.readable(item.body))}, not {show(amqp.readable(body))}"
                )
        for key in ("exchange", "key", "redelivered", "consumer", "tag", "remaining"):
            if key in wanted:
                check(key, wanted.pop(key), item.fields.get(key))
        if "properties" in wanted:
            found = {key: value for key, value in item.properties.items() if key != "headers"}
            check("properties", wanted.pop("properties"), found)
        if "headers" in wanted:
            want = wanted.pop("headers")
            check(
                "headers",
                None if want is None else full_entries(want),
                item.properties.get("headers"),
            )
        for name, value in full_entries(wanted.pop("headers_with", {})):
            found_values = [each for key, each in headers if key == name]
            if [value] != found_values:
                wrong.append(f"header {name} is {show(found_values)}, not {show(value)}")
        for name in wanted.pop("headers_without", []):
            found_values = [each for key, each in headers if key == name]
            if found_values:
                wrong.append(f"header {name} is there: {show(found_values)}")
        if "header_names" in wanted:
            check("the names of headers", wanted.pop("header_names"), [key for key, _ in headers])
        if "deaths" in wanted:
            self.compare_deaths(wanted.pop("deaths"), headers, wrong)
        if "death_fields" in wanted:
            rows = [value for key, value in headers if key == "x-death"]
            names = [[key for key, _ in row["table"]] for row in rows[0]["array"]] if rows else []
            check("the order of x-death's fields", wanted.pop("death_fields"), names)
        if wanted:
            raise ValueError(f"no message has the key {', '.join(wanted)}")
        if wrong:
            raise Failure("; ".join(wrong))

    def compare_deaths(self, expected: list[Any], headers: list[Any], wrong: list[str]) -> None:
        """Compares x-death, row by row, and the types of its fields."""
        found = [value for key, value in headers if key == "x-death"]
        if len(found) != 1 or "array" not in found[0]:
            wrong.append(f"x-death is {show(found)}")
            return
        rows: list[dict[str, Any]] = []
        for each in found[0]["array"]:
            row = {}
            for key, value in each["table"]:
                [(kind, inner)] = value.items()
                if DEATH_TYPES.get(key) != kind:
                    wrong.append(f"x-death's {key} is {show(value)}")
                row[key] = (
                    [text.get("string", text) for text in inner] if kind == "array" else inner
                )
            if not {"count", "reason", "queue", "time", "exchange", "routing-keys"} <= set(row):
                wrong.append(f"x-death's row lacks a field: {show(row)}")
                return
            rows.append(row)
        if len(rows) != len(expected):
            wrong.append(f"x-death has {len(rows)} rows: {show(rows)}")
            return
        for want, row in zip(expected, rows, strict=True):
            row.setdefault("original-expiration", None)
            if (
                "time" not in want
                and not self.began - 3 <= row["time"] <= self.began + MOST_SKIPPED_S
            ):
                wrong.append(f"x-death's time is not now, in {show(row)}")
            for key, value in {"original-expiration": None, **want}.items():
                if row.get(key) != value:
                    wrong.append(
                        f"x-death's {key} is {show(row.get(key))}, not {show(value)}, in {show(row)}"
                    )

    # steps: queues and exchanges

    async def do_declare(
        self,
        queue: str,
        type: Any = ABSENT,  # noqa: A002
        passive: bool = False,
        durable: bool = True,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: Any = None,
        ready: int | None = None,
        consumers: int | None = None,
        on: str = "a",
    ) -> None:
        fields = amqp.entries(arguments)
        kind = self.kind if type is ABSENT else type
        if kind and not passive:
            fields = [("x-queue-type", {"string": kind}), *fields]
        channel = await self.channel(on)
        if not passive:
            self.queues.add(queue)
        reply = await channel.call(
            "queue.declare",
            queue=queue,
            passive=passive,
            durable=durable,
            exclusive=exclusive,
            auto_delete=auto_delete,
            arguments=[[name, value] for name, value in fields],
        )
        if queue and reply.fields["queue"] != queue:
            raise Failure(f"declare-ok names {reply.fields['queue']}")
        if not queue:
            if not reply.fields["queue"].startswith("amq.gen-"):
                raise Failure(f"declare-ok names {reply.fields['queue']}")
        for key, count in (("ready", ready), ("consumers", consumers)):
            if count is not None and reply.fields[key] != count:
                raise Failure(f"{key} is {reply.fields[key]}")

    async def do_exchange(
        self,
        exchange: str,
        type: str = "direct",  # noqa: A002
        passive: bool = False,
        durable: bool = True,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Any = None,
        on: str = "a",
    ) -> None:
        if self.prefix in exchange and not passive:
            self.exchanges.add(exchange)
        await (await self.channel(on)).call(
            "exchange.declare",
            exchange=exchange,
            type=type,
            passive=passive,
            durable=durable,
            auto_delete=auto_delete,
            internal=internal,
            arguments=arguments,
        )

    async def do_bind(
        self, queue: str, to: str, key: str = "", arguments: Any = None, on: str = "a"
    ) -> None:
        await (await self.channel(on)).call(
            "queue.bind", queue=queue, exchange=to, key=key, arguments=arguments
        )

    async def do_unbind(
        self, queue: str, to: str, key: str = "", arguments: Any = None, on: str = "a"
    ) -> None:
        await (await self.channel(on)).call(
            "queue.unbind", queue=queue, exchange=to, key=key, arguments=arguments
        )

    async def do_bind_exchange(
        self, exchange: str, to: str, key: str = "", arguments: Any = None, on: str = "a"
    ) -> None:
        await (await self.channel(on)).call(
            "exchange.bind", destination=exchange, source=to, key=key, arguments=arguments
        )

    async def do_unbind_exchange(
        self, exchange: str, to: str, key: str = "", arguments: Any = None, on: str = "a"
    ) -> None:
        await (await self.channel(on)).call(
            "exchange.unbind", destination=exchange, source=to, key=key, arguments=arguments
        )

    async def do_delete(
        self,
        queue: str,
        if_unused: bool = False,
        if_empty: bool = False,
        count: int | None = None,
        on: str = "a",
    ) -> None:
        reply = await (await self.channel(on)).call(
            "queue.delete", queue=queue, if_unused=if_unused, if_empty=if_empty
        )
        if count is not None and reply.fields["count"] != count:
            raise Failure(f"delete-ok counts {reply.fields['count']}")

    async def do_delete_exchange(
        self, exchange: str, if_unused: bool = False, on: str = "a"
    ) -> None:
        await (await self.channel(on)).call(
            "exchange.delete", exchange=exchange, if_unused=if_unused
        )

    async def do_purge(self, queue: str, count: int | None = None, on: str = "a") -> None:
        reply = await (await self.channel(on)).call("queue.purge", queue=queue)
        if count is not None and reply.fields["count"] != count:
            raise Failure(f"purge-ok counts {reply.fields['count']}")

    async def do_depth(
        self, queue: str, ready: int | None = None, consumers: int | None = None, on: str = "look"
    ) -> None:
        """Waits until a queue has so many messages and consumers."""
        end = time.monotonic() + LIMIT_S
        while True:
            reply = await (await self.channel(on)).call("queue.declare", queue=queue, passive=True)
            counts = {"ready": ready, "consumers": consumers}
            if all(count in (None, reply.fields[key]) for key, count in counts.items()):
                return
            if time.monotonic() > end:
                raise Failure(
                    f"ready is {reply.fields['ready']}, consumers {reply.fields['consumers']}"
                )
            await asyncio.sleep(POLL_S)

    async def do_gone(self, queue: str) -> None:
        """Waits until there is no such queue."""
        end = time.monotonic() + LIMIT_S
        while True:
            try:
                await (await self.channel("look")).call("queue.declare", queue=queue, passive=True)
            except Closed as error:
                if error.item.fields["code"] == 404:
                    return
                if error.item.fields["code"] != 405:  # locked by a connection that is not closed yet
                    raise
            if time.monotonic() > end:
                raise Failure("the queue is still there")
            await asyncio.sleep(POLL_S)

    # steps: publishing

    async def do_publish(
        self,
        body: Any,
        exchange: str = "",
        key: str = "",
        properties: dict[str, Any] | None = None,
        headers: Any = None,
        copy_of: str | None = None,
        mandatory: bool = False,
        immediate: bool = False,
        confirm: bool = True,
        answer: Any = "ack",
        returned: list[Any] | None = None,
        frame_size: int | None = None,
        on: str = "publisher",
    ) -> None:
        """Publishes and waits for the answer. Several bodies are published at once."""
        channel = await self.channel(on)
        if confirm and not channel.is_confirming:
            await channel.call("confirm.select")
            channel.is_confirming = True
        sent = dict(properties or {})
        if copy_of is not None:
            sent = {**self.messages[copy_of].properties, **sent}
        if headers is not None:
            sent["headers"] = amqp.entries(sent.get("headers")) + amqp.entries(headers)
        bodies = body if isinstance(body, list) else [body]
        tags = []
        for each in bodies:
            data = amqp.octets(each)
            channel.send(
                "basic.publish",
                exchange=exchange,
                key=key,
                mandatory=mandatory,
                immediate=immediate,
            )
            most = frame_size or channel.link.frame_max - 8
            channel.link.write(
                amqp.content(channel.number, amqp.encode_properties(sent), data, most=most)
            )
            channel.published += channel.is_confirming
            tags.append(channel.published)
        if not confirm or answer is None:
            return
        if returned is not None:
            for each in bodies:
                await self.was_returned(channel, each, returned, exchange, key, sent)
        await self.confirmed(channel, dict(zip(tags, bodies, strict=True)), answer)

    async def was_returned(
        self,
        channel: Channel,
        body: Any,
        returned: list[Any],
        exchange: str,
        key: str,
        sent: dict[str, Any],
    ) -> None:
        item = await channel.next()
        found = [item.fields.get(each) for each in ("code", "text", "exchange", "key")]
        if item.name != "basic.return" or found != [*returned, exchange, key]:
            raise Failure(f"in place of a return came {show(self.shown(item))}")
        want = amqp.decode_properties(amqp.Reader(amqp.encode_properties(sent)))
        if item.body != amqp.octets(body) or item.properties != want:
            raise Failure(f"the returned message is {show(self.shown(item))}")

    async def confirmed(self, channel: Channel, tags: dict[int, Any], answer: Any) -> None:
        """Waits for the confirms of these tags, which may come together and in any order."""
        answers: dict[int, str] = {}
        while len(answers) < len(tags):
            item = await channel.next()
            name = item.name.removeprefix("basic.")
            if name not in ("ack", "nack"):
                raise Failure(f"in place of a confirm came {show(self.shown(item))}")
            tag = item.fields["tag"]
            covered = [
                each for each in tags if each == tag or (item.fields["multiple"] and each < tag)
            ]
            if not covered or tag not in tags:
                raise Failure(f"the {name} has the tag {tag}")
            for each in covered:
                answers.setdefault(each, name)
        wanted = answer if isinstance(answer, list) else [answer] * len(tags)
        found = [answers[tag] for tag in tags]
        if wanted != found:
            raise Failure(f"the answers are {show(found)}")

    async def do_confirm_select(self, on: str) -> None:
        channel = await self.channel(on)
        await channel.call("confirm.select")
        channel.is_confirming = True

    async def do_returned(
        self, body: str, code: int, text: str, exchange: str, key: str, on: str
    ) -> None:
        """The next item is a basic.return."""
        await self.was_returned(await self.channel(on), body, [code, text], exchange, key, {})

    # steps: consuming

    async def do_get(self, queue: str, message: Any, no_ack: bool = False, on: str = "a") -> None:
        """Gets a message, waiting for it; null: the queue is empty now."""
        end = time.monotonic() + LIMIT_S
        while True:
            item = await (await self.channel(on)).call("basic.get", queue=queue, no_ack=no_ack)
            if item.name == "basic.get-ok" or message is None:
                break
            if time.monotonic() > end:
                raise Failure("the queue is empty")
            await asyncio.sleep(POLL_S)
        if message is None:
            if item.name == "basic.get-ok":
                raise Failure(f"the queue has {show(self.shown(item))}")
            return
        self.take(item, on)
        self.compare_back(message, item)

    def compare_back(self, expected: Any, item: Item) -> None:
        """Compares a message with what the script has, prefix and all."""
        fields, properties = self.back(item.fields), self.back(item.properties)
        self.compare(self.back(expected), Item(item.name, fields, properties, item.body))

    async def do_consume(
        self,
        queue: str,
        tag: str = "consumer",
        no_ack: bool = False,
        exclusive: bool = False,
        arguments: Any = None,
        on: str = "a",
    ) -> None:
        reply = await (await self.channel(on)).call(
            "basic.consume",
            queue=queue,
            consumer=tag,
            no_ack=no_ack,
            exclusive=exclusive,
            arguments=arguments,
        )
        if tag and reply.fields["consumer"] != tag:
            raise Failure(f"consume-ok names {reply.fields['consumer']}")
        if not tag and not reply.fields["consumer"].startswith("amq.ctag-"):
            raise Failure(f"consume-ok names {reply.fields['consumer']}")

    async def do_delivery(self, message: Any, on: str = "a") -> None:
        """The next item of a channel is this delivery."""
        item = await (await self.channel(on)).next()
        if item.name != "basic.deliver":
            raise Failure(f"in place of a delivery came {show(self.shown(item))}")
        self.take(item, on)
        self.compare_back(message, item)

    async def do_deliveries(
        self, messages: list[Any], on: str = "a", any_order: bool = False
    ) -> None:
        if not any_order:
            for each in messages:
                await self.do_delivery(each, on)
            return
        channel = await self.channel(on)
        left = list(messages)
        while left:
            item = await channel.next()
            if item.name != "basic.deliver":
                raise Failure(f"in place of a delivery came {show(self.shown(item))}")
            self.take(item, on)
            body = item.body.decode()
            found = [
                each for each in left if (each["body"] if isinstance(each, dict) else each) == body
            ]
            if not found:
                raise Failure(f"{show(self.shown(item))} came")
            left.remove(found[0])
            self.compare_back(found[0], item)

    async def settle(self, name: str, which: Any, on: str | None, **options: Any) -> None:
        """Settles a message that is named by its body, or a tag."""
        if isinstance(which, int):
            channel, tag = await self.channel(on or "a"), which
        else:
            held_on, tag = self.held[which]
            channel = await self.channel(on or held_on)
        channel.send(name, tag=tag, **options)

    async def do_ack(self, which: Any, multiple: bool = False, on: str | None = None) -> None:
        await self.settle("basic.ack", which, on, multiple=multiple)

    async def do_nack(
        self, which: Any, requeue: bool, multiple: bool = False, on: str | None = None
    ) -> None:
        await self.settle("basic.nack", which, on, multiple=multiple, requeue=requeue)

    async def do_reject(self, which: Any, requeue: bool, on: str | None = None) -> None:
        await self.settle("basic.reject", which, on, requeue=requeue)

    async def do_qos(self, count: int, size: int = 0, all: bool = False, on: str = "a") -> None:  # noqa: A002
        await (await self.channel(on)).call("basic.qos", count=count, size=size, **{"global": all})

    async def do_recover(self, requeue: bool, on: str = "a") -> None:
        await (await self.channel(on)).call("basic.recover", requeue=requeue)

    async def do_cancel(self, tag: str, on: str = "a") -> None:
        """Cancels a consumer."""
        reply = await (await self.channel(on)).call("basic.cancel", consumer=tag)
        if reply.fields["consumer"] != tag:
            raise Failure(f"cancel-ok names {reply.fields['consumer']}")

    async def do_cancelled(self, tag: str, on: str = "a") -> None:
        """The next item is the broker's basic.cancel."""
        item = await (await self.channel(on)).next()
        if item.name != "basic.cancel" or item.fields["consumer"] != tag:
            raise Failure(f"in place of a cancel came {show(self.shown(item))}")

    async def do_nothing(self, on: str) -> None:
        """All that the broker sent on a channel was expected."""
        channel = await self.channel(on)
        item = await channel.call(
            "exchange.declare", exchange="amq.direct", passive=True, type="direct"
        )
        if channel.inbox:
            raise Failure(f"{show([self.shown(each) for each in channel.inbox])} came on {on}")
        assert item

    async def do_sync(self, on: str) -> None:
        """Waits until the broker has read everything on a channel."""
        await (await self.channel(on)).call(
            "exchange.declare", exchange="amq.direct", passive=True, type="direct"
        )

    # steps: channels and connections

    async def do_close_channel(self, on: str) -> None:
        channel = await self.channel(on)
        await channel.call("channel.close", code=200)
        channel.is_closed = True
        channel.link.channels.pop(channel.number)

    async def do_connect(
        self,
        name: str,
        user: str | None = None,
        password: str | None = None,
        vhost: str | None = None,
        header: Any = None,
        mechanism: str = "PLAIN",
        response: Any = None,
        capabilities: dict[str, bool] | None = None,
        tune: dict[str, int] | None = None,
        tuned: dict[str, int] | None = None,
        server: dict[str, Any] | None = None,
        mechanisms: list[str] | None = None,
        answer: Any = None,
    ) -> None:
        """Opens a connection.

        :param answer: what the broker sends in place of a frame
        """
        link = self.links[name] = Link(self.url)
        link.user, link.password = (
            user or link.user,
            link.password if password is None else password,
        )
        link.vhost = link.vhost if vhost is None else vhost
        extra = {} if header is None else {"header": amqp.octets(header)}
        try:
            await link.connect(
                f"{self.prefix}{name}",
                capabilities=capabilities,
                mechanism=mechanism,
                response=response,
                tune=tune,
                **extra,
            )
        except Failure:
            if answer is None or link.stray != amqp.octets(answer):
                raise
            return
        found = {key.replace("-", "_"): value for key, value in link.tuned.items()}
        if tuned is not None and tuned != found:
            raise Failure(f"the broker tunes {show(found)}")
        if mechanisms is not None and mechanisms != sorted(link.server["mechanisms"].split()):
            raise Failure(f"the broker's mechanisms are {link.server['mechanisms']}")
        properties = dict(amqp.entries(link.server["server-properties"]))
        for key, value in full_entries(server or {}):
            got = properties.get(key)
            [(kind, want)] = value.items()
            if not (
                got and kind in got and is_text(want, got[kind])
                if kind == "string"
                else got == value
            ):
                raise Failure(f"the server's {key} is {show(got)}")

    async def do_disconnect(self, name: str) -> None:
        """Closes a connection in order."""
        await self.links[name].close()
        self.links[name].is_over = True

    async def do_cut(self, name: str) -> None:
        """Closes a socket without a word."""
        await self.links[name].cut()
        self.links[name].is_over = True

    async def do_closed(self, on: str) -> None:
        """Waits for a close of a channel: see `closes`."""
        if on not in self.channels or self.channels[on].is_closed:
            raise Failure("the channel is not open")

    async def do_ended(self, name: str) -> None:
        """Waits for the end of a connection: see `ends`."""

    async def do_send(
        self,
        name: str,
        with_: dict[str, Any] | None = None,
        on: str | None = "a",
        number: int | None = None,
        **options: Any,
    ) -> None:
        """Sends a method with these fields, on a channel or on a channel's number."""
        given = {
            key.replace("-", "_"): value for key, value in {**(with_ or {}), **options}.items()
        }
        channel = await self.channel(on or "a")
        channel.link.write(
            amqp.encode_method(channel.number if number is None else number, name, **given)
        )

    async def do_octets(self, data: Any, on: str = "a") -> None:
        """Sends bytes as they are."""
        (await self.channel(on)).link.write(amqp.octets(data))

    async def do_frame(self, kind: int, payload: Any, on: str = "a", end: str = "ce") -> None:
        channel = await self.channel(on)
        frame = amqp.frame(kind, channel.number, amqp.octets(payload))
        channel.link.write(frame[:-1] + bytes.fromhex(end))

    async def do_item(self, name: str, fields: dict[str, Any] | None = None, on: str = "a") -> None:
        """The next item of a channel is this method."""
        item = await (await self.channel(on)).next()
        found = self.back(item.fields)
        if item.name != name or any(
            found.get(key) != value for key, value in self.back(fields or {}).items()
        ):
            raise Failure(f"{show(self.shown(item))} came")

    async def do_blocked(self, name: str, reason: str) -> None:
        """The broker reports an alarm to a connection."""
        item = await self.links[name].control_reply("connection.blocked")
        if item.fields["reason"] != reason:
            raise Failure(f"the reason is {item.fields['reason']}")

    async def do_unblocked(self, name: str) -> None:
        await self.links[name].control_reply("connection.unblocked")

    # steps: the operator's

    async def do_control(self, word: str, **options: Any) -> None:
        if not self.control.program:
            raise Failure("BACKHOP_BROKER_CTL names no program")
        if word == "close":
            await self.control.close(self.prefix + options["connection"], options["text"])
            return
        if word in ("policy", "vhost", "user"):
            extra = {"operator": True} if options.get("operator") else {}
            self.undo.insert(0, {"word": f"delete_{word}", "name": options["name"], **extra})
        await self.control.execute(word, **options)
        for undo in list(self.undo):
            if undo["word"] == word and undo["name"] == options.get("name"):
                self.undo.remove(undo)
