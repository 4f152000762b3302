"""Random scripts that are played on two brokers and compared; a script that differs is shortened.

Messages are taken by basic.get, and after each step the player waits until nothing moves: so that both brokers show the
same, whatever their speed. TTLs are either short, and waited for, or too long to matter.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import secrets
import time
from typing import Any

import amqp
from control import Control
from link import Closed, Ended, Failure, Item, said
from player import Play

SHORT_MS, LONG_MS, MARKER_MS = 50, 600000, 250
PAUSE_S = 0.015
ROUNDS = 3  # equal looks at the depths, one after the other
STEPS = 24
EARLY = "ended early: "  # the beginning of a difference

Script = dict[str, Any]


def make(seed: str) -> Script:
    """Returns the script of a seed: queues and steps."""
    source = random.Random(seed)
    names = ["~a", "~b", "~c"]
    queues = []
    with_ttl = source.choice([*names, None])
    for name in names:
        kind = source.choice(["classic", "quorum"])
        arguments: dict[str, Any] = {"x-queue-type": kind}
        if name == with_ttl:
            arguments["x-message-ttl"] = SHORT_MS
        if source.random() < 0.8:
            arguments["x-dead-letter-exchange"] = source.choice(
                ["", "", "", "", "", "~x", "~x", "~none"]
            )
            if source.random() < 0.8:
                arguments["x-dead-letter-routing-key"] = source.choice([*names, *names, "k"])
        if kind == "quorum" and source.random() < 0.5:
            arguments["x-delivery-limit"] = source.choice([0, 1, 2, 100])
        if source.random() < 0.2:
            arguments["x-max-length"] = source.choice([1, 2])
            if kind == "classic" and source.random() < 0.5:
                arguments["x-overflow"] = source.choice(["reject-publish", "reject-publish-dlx"])
        if kind == "classic" and source.random() < 0.2:
            arguments["x-max-priority"] = 5
        queues.append([name, arguments])
    bound = [name for name in names if source.random() < 0.4]
    return {
        "seed": seed,
        "queues": queues,
        "bound": bound,
        "alternate": source.choice([*names, None, None]),
        "steps": [step(source, names, n) for n in range(STEPS)],
    }


def step(source: random.Random, names: list[str], number: int) -> list[Any]:
    kind = source.choices(
        ["publish", "get", "settle", "close", "purge", "copy", "declare", "consume"],
        [22, 30, 28, 3, 1, 8, 2, 6],
    )[0]
    name = source.choice(names)
    if kind in ("publish", "copy"):
        properties: dict[str, Any] = {}
        headers: dict[str, Any] = {}
        if source.random() < 0.2:
            properties["expiration"] = str(source.choice([SHORT_MS, LONG_MS, 0]))
        if source.random() < 0.2:
            properties["priority"] = source.randrange(10)
        if source.random() < 0.2:
            headers[source.choice(["CC", "BCC"])] = {"array": [source.choice(names)]}
        if source.random() < 0.3:
            headers.update({"z": 1, "a": {"int32": 2}})
        if "expiration" in properties and (kind == "copy" or {"CC", "BCC"} & set(headers)):
            properties["expiration"] = str(LONG_MS)  # dead letters of several queues would race
        exchange = source.choice(["", "", "", "~x"])
        where = [exchange, source.choice([name, "nowhere"]) if source.random() < 0.2 else name]
        return [
            kind,
            f"m{number}",
            *where,
            properties,
            headers,
            source.random() < 0.5,
            source.randrange(100),
        ]
    if kind == "settle":
        action = source.choice(["ack", "nack", "nack", "reject", "reject"])
        requeue, multiple = source.random() < 0.5, action != "reject" and source.random() < 0.2
        return [kind, action, source.randrange(100), requeue, multiple]
    if kind == "consume":
        return [kind, name, source.randrange(4), source.random() < 0.5]
    if kind == "declare":
        return [
            kind,
            name,
            source.choice(
                [{"x-max-length": 9}, {"x-message-ttl": SHORT_MS}, {"x-queue-type": "classic"}]
            ),
        ]
    return [kind, name]


class RandomPlay(Play):
    """Plays a random script, and returns the observations of each step."""

    def __init__(self, script: Script, url: str, control: Control):
        super().__init__({}, url, "", "", f"s{secrets.token_hex(3)}.", control)
        self.random = script
        self.holding: list[Item] = []
        self.queue_of: dict[int, str] = {}  # by delivery tag
        self.has_short_ttls = any(
            word in json.dumps(script) for word in ("x-message-ttl", f'"{SHORT_MS}"', '"0"')
        )

    async def seen_of_all(self) -> list[Any]:
        try:
            await self.begin()
            found = []
            for each in self.random["steps"]:
                try:
                    found.append(
                        self.back(await getattr(self, f"try_{each[0]}")(*self.out(each[1:])))
                    )
                except Closed as error:
                    self.holding = []
                    found.append(self.back(["closed", *said(error.item)]))
                await self.rest()
                found.append(await self.depths())
            return found
        except (Closed, Failure, Ended) as error:
            return [f"{type(error).__name__}: {self.back(str(error))}"]
        finally:
            await self.clean()

    async def begin(self) -> None:
        alternate = self.random.get("alternate")
        arguments = {"alternate-exchange": self.prefix + "alternate"} if alternate else None
        await self.do_exchange(self.prefix + "alternate", type="fanout")
        await self.do_exchange(self.prefix + "x", type="direct", arguments=arguments)
        marker = self.out(
            {
                "x-message-ttl": MARKER_MS,
                "x-dead-letter-exchange": "",
                "x-dead-letter-routing-key": "~seen",
            }
        )
        await self.do_declare(self.prefix + "seen", type="classic")
        await self.do_declare(self.prefix + "marker", type="classic", arguments=marker)
        for name, arguments in self.out(self.random["queues"]):
            await self.do_declare(name, type=None, arguments=arguments)
        if alternate:
            await self.do_bind(self.out(alternate), to=self.prefix + "alternate")
        for name in self.out(self.random["bound"]):
            await self.do_bind(name, to=self.prefix + "x", key="k")
            await self.do_bind(name, to=self.prefix + "x", key=name)

    async def depths(self) -> list[int]:
        channel = await self.channel("look")
        found = []
        for name, _ in self.out(self.random["queues"]):
            reply = await channel.call("queue.declare", queue=name, passive=True)
            found.append(reply.fields["ready"])
        return found

    async def rest(self) -> None:
        """Waits until short TTLs are over and nothing moves any more."""
        if self.has_short_ttls:
            await self.do_publish("marker", key=self.prefix + "marker", on="marker")
            await self.do_get(self.prefix + "seen", "marker", no_ack=True, on="marker")
        before, same = await self.depths(), 0
        while same < ROUNDS:
            await asyncio.sleep(PAUSE_S)
            now = await self.depths()
            same, before = (same + 1 if now == before else 0), now

    def message(self, item: Item) -> Any:
        """Returns what both brokers must show of a message."""
        properties = json.loads(json.dumps(item.properties))
        for name, value in properties.get("headers", []):
            if name == "x-death":
                for row in value.get("array", []):
                    row["table"] = [each for each in row.get("table", []) if each[0] != "time"]
        fields = {key: item.fields.get(key) for key in ("exchange", "key", "redelivered")}
        return [fields, properties, amqp.readable(item.body)]

    async def try_publish(
        self,
        body: str,
        exchange: str,
        key: str,
        properties: Any,
        headers: Any,
        mandatory: bool,
        _: int,
    ) -> Any:
        channel = await self.channel("publisher")
        if not channel.is_confirming:
            await channel.call("confirm.select")
            channel.is_confirming = True
        sent = {**properties, **({"headers": headers} if headers else {})}
        channel.send("basic.publish", exchange=exchange, key=key, mandatory=mandatory)
        channel.link.write(
            amqp.content(channel.number, amqp.encode_properties(sent), body.encode())
        )
        found: list[Any] = []
        while not found or found[-1] not in ("basic.ack", "basic.nack"):
            item = await channel.next()
            found.append(item.name)
        return found

    async def try_copy(
        self,
        body: str,
        exchange: str,
        key: str,
        properties: Any,
        headers: Any,
        mandatory: bool,
        which: int,
    ) -> Any:
        """Publishes a copy of a message that is in hand, with all that it has."""
        if not self.holding:
            return "nothing in hand"
        item = self.holding[which % len(self.holding)]
        whole = {**item.properties, **properties}
        inherited = amqp.entries(whole.pop("headers", None))
        mine = [each for each in amqp.entries(headers) if each[0] not in dict(inherited)]
        whole_headers = inherited + mine
        return await self.try_publish(body, exchange, key, whole, whole_headers, mandatory, which)

    async def try_get(self, queue: str) -> Any:
        """Gets a message of this queue, or else of the queues behind it."""
        names = [name for name, _ in self.out(self.random["queues"])]
        at = names.index(queue)
        for name in names[at:] + names[:at]:
            item = await (await self.channel("a")).call("basic.get", queue=name)
            if item.name == "basic.get-ok":
                self.holding.append(item)
                self.queue_of[item.fields["tag"]] = name
                return [name, *self.message(item)]
        return "empty"

    async def try_settle(self, action: str, which: int, requeue: bool, multiple: bool) -> Any:
        if not self.holding:
            return "nothing in hand"
        item = self.holding[which % len(self.holding)]
        at = self.holding.index(item)
        queues = {self.queue_of[each.fields["tag"]] for each in self.holding[: at + 1]}
        if not requeue and len(queues) > 1:
            multiple = False  # dead letters of several queues come in any order
        self.holding = (
            self.holding[at + 1 :]
            if multiple
            else [each for each in self.holding if each is not item]
        )
        options = {"requeue": requeue} if action != "ack" else {}
        if action != "reject":
            options["multiple"] = multiple
        (await self.channel("a")).send(f"basic.{action}", tag=item.fields["tag"], **options)
        await self.do_sync("a")
        return "settled"

    async def try_consume(self, queue: str, prefetch: int, acks: bool) -> Any:
        """Consumes up to a prefetch (0: all); may acknowledge these and consume again. Then ends the channel."""
        channel = await self.channel("consumer")
        await self.do_qos(prefetch, on="consumer")
        await self.do_consume(queue, on="consumer")
        found: list[Any] = []
        for _ in range(1 + acks):
            await self.rest()
            items, channel.inbox = channel.inbox, []
            found += [[self.message(item), item.fields["tag"]] for item in items]
            if acks and items:
                channel.send("basic.ack", tag=0, multiple=True)
        await self.do_close_channel("consumer")
        return found

    async def try_close(self, _: str) -> Any:
        self.holding = []
        await self.do_close_channel("a") if "a" in self.channels and not self.channels[
            "a"
        ].is_closed else None
        return "closed"

    async def try_purge(self, queue: str) -> Any:
        return (await (await self.channel("look")).call("queue.purge", queue=queue)).fields["count"]

    async def try_declare(self, queue: str, arguments: Any) -> Any:
        await (await self.channel("clash")).call(
            "queue.declare", queue=queue, durable=True, arguments=arguments
        )
        return "declared"


async def difference(script: Script, urls: list[str], control: Control) -> tuple[int, str] | None:
    """Plays a script on both brokers; returns the first step that differs, and both observations. None: no difference."""
    seen = await asyncio.gather(*(RandomPlay(script, url, control).seen_of_all() for url in urls))
    steps = script["steps"]
    for each in seen:
        if len(each) < 2 * len(steps):  # nothing was compared after that
            return max(len(each) - 1, 0) // 2, f"{EARLY}{each[-1] if each else ''}"
    for number, pair in enumerate(zip(*seen, strict=False)):
        if pair[0] != pair[1]:
            at = min(number // 2, len(steps) - 1)
            return (
                at,
                f"{json.dumps(steps[at])}:\n    {json.dumps(pair[0])}\n    {json.dumps(pair[1])}",
            )
    return None


async def still_differs(script: Script, urls: list[str], control: Control) -> bool:
    """Plays a shorter script. One that no broker plays to its end, as it declares an invalid queue, shows no difference."""
    found = await difference(script, urls, control)
    return found is not None and not found[1].startswith(EARLY)


async def shorten(script: Script, at: int, urls: list[str], control: Control) -> Script:
    """Removes steps in parts, then arguments of queues, as long as the brokers differ. Step `at` is the last that counts."""
    steps = script["steps"][: at + 1]
    size = len(steps) // 2
    while size:
        start = len(steps) - 1 - size
        while start > -size:
            fewer = steps[: max(start, 0)] + steps[start + size :]
            if await still_differs({**script, "steps": fewer}, urls, control):
                steps = fewer
            start -= size
        size //= 2
    script = {**script, "steps": steps}
    for index, (name, arguments) in enumerate(script["queues"]):
        for key in [each for each in arguments if each != "x-queue-type"]:
            fewer_arguments = {each: value for each, value in arguments.items() if each != key}
            queues = [*script["queues"]]
            queues[index] = [name, fewer_arguments]
            if await still_differs({**script, "queues": queues}, urls, control):
                script, arguments = {**script, "queues": queues}, fewer_arguments
    return script


async def compare(
    seed: str, count: int, seconds: float, urls: list[str], control: Control, jobs: int
) -> int:
    """Compares `count` scripts, or scripts for so many seconds; returns 1 if one differs."""
    until = time.monotonic() + seconds
    numbers = itertools.count()
    failed = played = 0

    async def one(number: int) -> None:
        nonlocal failed
        script = make(f"{seed}.{number}")
        found = await difference(script, urls, control)
        if not found:
            return
        found = await difference(script, urls, control)
        if not found:  # what shows only once is a matter of time
            return
        failed += 1
        short = await shorten(script, found[0], urls, control)
        last = await difference(short, urls, control)
        print(f"DIFFERS --random {seed}, script {number}\n{json.dumps(short)}")
        print(f"{(last or found)[1]}{'' if last else ' (of the whole script)'}", flush=True)

    async def some() -> None:
        nonlocal played
        while time.monotonic() < until if seconds else played < count:
            played += 1
            await one(next(numbers))

    await asyncio.gather(*(some() for _ in range(jobs)))
    print(f"{played} random scripts of the seed {seed}, {failed} differ")
    return 1 if failed else 0
