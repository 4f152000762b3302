"""The scenarios of the rogue broker. Each one is honest but for the answers that it replaces."""

from __future__ import annotations

import random
import struct
import time
from typing import Any

from amqp import (
    BODY,
    HEADER,
    HEARTBEAT,
    METHOD,
    channel_close,
    connection_close,
    content,
    frame,
    long,
    method,
    short,
    table,
)
from broker import (
    PREFETCH,
    Cut,
    Peer,
    Reset,
    Scenario,
    message_properties,
    start,
    tune,
)

TERMINAL = "\x1b]0;PWN\x07\x1b[2J\x9b31m\u202eevil\u2028\r\n".encode()
LARGE = 64 * 2**20 + 1
ALL: list[Scenario] = []


def acked(count: int) -> Any:
    return lambda run: run.broker.acks >= count


def connected(count: int) -> Any:
    return lambda run: run.broker.connects >= count


def saw(event: str, count: int = 1) -> Any:
    return lambda run: run.events.get(event, 0) >= count


def failed(run: Any) -> bool:
    """An event said that something does not work."""
    return any(
        run.events.get(each)
        for each in ("disconnected", "unavailable", "cancelled", "unconfirmed", "refused")
    )


def scenario(name: str, until: Any = None, **settings: Any) -> None:
    answers = settings.pop("answers", {})
    is_silent = silence in answers.values() and "start" not in answers
    settings.setdefault("is_for_command", not is_silent)
    ALL.append(Scenario(name, answers, until or acked(PREFETCH), **settings))


def cut(at: int) -> Any:
    return lambda peer, channel, honest: Cut(honest[:at])


def silence(peer: Peer, channel: int, honest: bytes) -> bytes:
    return b""


def before(data: bytes) -> Any:
    return lambda peer, channel, honest: data + honest


def after(data: bytes) -> Any:
    return lambda peer, channel, honest: honest + data


def all_deliveries(peer: Peer, channel: int, **how: Any) -> bytes:
    return b"".join(peer.deliver(channel, tag, **how) for tag in range(1, PREFETCH + 1))


def deliveries(**how: Any) -> Any:
    return lambda peer, channel, honest: all_deliveries(peer, channel, **how)


def then(end: Any) -> Any:
    """All deliveries, and then an end: of the connection or of the channel."""
    return lambda peer, channel, honest: (
        all_deliveries(peer, channel) + (end(channel) if callable(end) else end)
    )


def nested(levels: int, kind: bytes) -> bytes:
    """A table with so many tables or arrays in each other, with its length."""
    inner = b""
    for level in range(levels):
        name = short("x") if kind == b"F" or level == levels - 1 else b""
        inner = name + kind + long(inner)
    return long(inner)


# ----------------------------------------------------------------------------------------- honest

scenario("honest")
scenario("honest, a byte at a time", pace=(7, 0))
scenario("frame_max of 4096 bytes", answers={"tune": tune(frame_max=4096)})
scenario("frame_max without a limit", answers={"tune": tune(frame_max=0)})
scenario("no heartbeats", answers={"tune": tune(heartbeat=0)})

# ---------------------------------------------------------------------------------------- framing

scenario("start is cut", connected(4), answers={"start": cut(20)})
scenario("start is cut after a byte", connected(4), answers={"start": cut(1)})
scenario("nothing but a close", connected(4), answers={"start": cut(0)})
scenario("a reset in place of start", connected(4), answers={"start": Reset(b"")})
scenario(
    "deliveries are cut",
    connected(6),
    answers={"deliveries": lambda p, c, h: Cut(all_deliveries(p, c)[:-3])},
)
scenario(
    "a frame of four gigabytes",
    connected(4),
    answers={"deliveries": b"\x01\0\x04\xff\xff\xff\xffx"},
)
scenario(
    "a body in a frame of more than 64 MiB, and frames have no limit",
    lambda run: connected(4)(run) and saw("disconnected")(run),
    answers={
        "tune": tune(frame_max=0),
        "deliveries": lambda peer, channel, honest: (
            peer.deliver(channel, 1, size=LARGE, body=b"")
            + struct.pack(">BHI", BODY, channel, LARGE)
            + b"x" * 2**20  # the rest would come if the client waited for it
        ),
    },
    is_for_python=False,  # there a client reads it
    is_for_command=False,
)
scenario(
    "a frame is shorter than it says",
    failed,
    answers={"open-ok": b"\x01\0\0\0\0\0\x06\0\x0a\0\x29\0\xce"},
    is_for_command=False,
)
scenario(
    "a frame is longer than it says",
    connected(4),
    answers={"open-ok": b"\x01\0\0\0\0\0\x04\0\x0a\0\x29\0\xce"},
)
scenario(
    "a frame with another end",
    connected(4),
    answers={"open-ok": b"\x01\0\0\0\0\0\x05\0\x0a\0\x29\0\xcd"},
)
scenario("a frame of an unknown type", connected(4), answers={"deliveries": frame(9, 4, b"x")})
scenario(
    "HTTP", connected(4), answers={"start": Cut(b"HTTP/1.1 400 Bad Request\r\n\r\n" + TERMINAL)}
)
scenario("another AMQP", connected(4), answers={"start": Cut(b"AMQP\0\0\x09\x02")})
scenario("a TLS alert", connected(4), answers={"start": Cut(b"\x15\x03\x03\0\x02\x02\x16")})
scenario("an empty method", connected(4), answers={"deliveries": frame(METHOD, 4, b"")})
scenario(
    "an unknown method",
    connected(4),
    answers={"deliveries": method(4, 0xFFFF, 0xFFFF, b"x" * 1000)},
)
scenario(
    "a method that a client sends",
    connected(4),
    answers={"deliveries": method(4, 50, 10, b"\0" * 40)},
)
scenario(
    "a frame of channel 65535",
    answers={
        "deliveries": lambda p, c, h: (
            method(65535, 60, 60, b"") * 0 + content(65535, b"\0\0", b"x") + all_deliveries(p, c)
        )
    },
)
scenario(
    "heartbeats with a body",
    answers={"deliveries": lambda p, c, h: frame(HEARTBEAT, 5, b"x" * 100) + all_deliveries(p, c)},
)
scenario(
    "100,000 heartbeats",
    answers={
        "deliveries": lambda p, c, h: frame(HEARTBEAT, 0, b"") * 100000 + all_deliveries(p, c)
    },
)
scenario(
    "a body without a header",
    connected(4),
    answers={"deliveries": lambda p, c, h: frame(BODY, c, b"x")},
)
scenario(
    "a header without a delivery",
    connected(4),
    answers={"deliveries": lambda p, c, h: content(c, b"\0\0", b"x")},
)


def two_headers(peer: Peer, channel: int, honest: bytes) -> bytes:
    header = frame(HEADER, channel, struct.pack(">HHQ", 60, 0, 5) + b"\0\0")
    return peer.deliver(channel, 1, size=5)[: -len(frame(BODY, 0, b"body"))] + header


scenario("two headers", connected(4), answers={"deliveries": two_headers})
scenario(
    "a body longer than its header says",
    connected(4),
    answers={"deliveries": deliveries(body=b"x" * 100, size=99)},
)
scenario(
    "a delivery in a delivery",
    answers={
        "deliveries": lambda p, c, h: (
            method(c, 60, 60, short(p.consumer_tag) + b"\0" * 8 + b"\1\0\0") + all_deliveries(p, c)
        )
    },
)
for label, size in (
    ("2^64 - 1", 2**64 - 1),
    ("2^63", 2**63),
    ("a terabyte", 2**40),
    ("a byte more than 512 MiB", 2**29 + 1),
):
    scenario(f"a body of {label}", connected(4), answers={"deliveries": deliveries(size=size)})
scenario(
    "a body of 512 MiB that never comes",
    connected(4),
    answers={"deliveries": lambda p, c, h: Cut(p.deliver(c, 1, size=2**29))},
    is_for_python=False,
)
scenario(
    "a content header of the wrong class",
    answers={
        "deliveries": lambda p, c, h: all_deliveries(p, c).replace(
            struct.pack(">HHQ", 60, 0, 4), struct.pack(">HHQ", 10, 9, 4)
        )
    },
)
scenario("no bodies", answers={"deliveries": deliveries(body=b"")})
scenario(
    "bodies of a megabyte", answers={"deliveries": deliveries(body=b"x" * 1048576)}, most_mib=320, is_patient=True
)


def tiny_frames(peer: Peer, channel: int, honest: bytes) -> bytes:
    whole = peer.deliver(channel, 1, body=b"", size=20000)
    return (
        whole
        + frame(BODY, channel, b"x") * 20000
        + b"".join(peer.deliver(channel, tag) for tag in range(2, 21))
    )


scenario("a body in frames of a byte", answers={"deliveries": tiny_frames})
scenario(
    "a body in empty frames",
    answers={
        "deliveries": lambda p, c, h: (
            p.deliver(c, 1, body=b"", size=1)
            + frame(BODY, c, b"") * 5000
            + frame(BODY, c, b"x")
            + b"".join(p.deliver(c, t) for t in range(2, 21))
        )
    },
)

# --------------------------------------------------------------------------------------- contents

for label, properties in (
    ("end too early", b"\xff\xfc"),
    ("have more flags", b"\x00\x03"),
    ("have a table longer than the frame", b"\x20\x00\xff\xff\xff\xff"),
    ("have an unknown type", b"\x20\x00" + table({"x": b"?abc"})),
):
    scenario(
        f"properties that {label}",
        saw("refused", 3),
        answers={"deliveries": deliveries(properties=properties)},
    )
scenario(
    "headers of a whole frame, nested",
    acked(1),
    answers={
        "deliveries": lambda p, c, h: p.deliver(
            c, 1, properties=message_properties(f"m{p.broker.next_id}", nested(18000, b"F"))
        )
    },
    is_for_python=False,
)
scenario(
    "headers of a megabyte",
    saw("refused"),
    answers={
        "deliveries": lambda p, c, h: p.deliver(
            c,
            1,
            properties=message_properties(
                "m1", table({f"h{i}": b"S" + long("x" * 4000) for i in range(250)})
            ),
        )
    },
)
scenario(
    "terminal controls in a message",
    answers={"deliveries": deliveries(exchange=TERMINAL, key=TERMINAL, consumer=TERMINAL)},
)
scenario("terminal controls in an id", answers={"deliveries": deliveries(mark=TERMINAL.decode())})

# ------------------------------------------------------------------------------------------ login


def no_password(run: Any) -> str:
    return "the password was sent" if run.broker.passwords else ""


for label, mechanisms in (
    ("EXTERNAL", b"EXTERNAL"),
    ("none", b""),
    ("terminal controls", TERMINAL + b" AMQPLAIN"),
    ("100 KB of names", b"X " * 50000),
):
    scenario(
        f"X6: mechanisms: {label}",
        connected(3),
        answers={"start": start(mechanisms)},
        check=no_password,
    )
for label, kind, levels in (("tables", b"F", 18000), ("arrays", b"A", 26000)):
    scenario(
        f"X8: nested {label} in the server properties",
        connected(3),
        answers={"start": start(properties=nested(levels, kind))},
        check=no_password,
    )
scenario(
    "server properties of other types",
    failed,
    answers={
        "start": start(
            properties=table(
                {"product": b"I\0\0\0\1", "version": b"F" + table({}), "cluster_name": b"t\1"}
            )
        )
    },
)
scenario(
    "server properties with an unknown type",
    connected(3),
    answers={"start": start(properties=table({"product": b"?"}))},
)
scenario(
    "server properties longer than the frame",
    connected(3),
    answers={"start": start(properties=b"\xff\xff\xff\xff")},
)
scenario(
    "terminal controls in product and version",
    answers={
        "start": start(
            product=TERMINAL + b"RabbitMQ" + TERMINAL, version=b"4.3.6" + TERMINAL, cluster=TERMINAL
        )
    },
    until=lambda run: acked(PREFETCH)(run) or failed(run),
)
scenario("terminal controls in the cluster's name", answers={"start": start(cluster=TERMINAL * 5)})
scenario("a version of years ago", failed, answers={"start": start(version=b"2.8.7")})
scenario("start twice", answers={"start": start() + start()})
scenario("silence in place of start", failed, answers={"start": silence})
scenario("a byte a second", failed, pace=(1, 1.0), is_for_command=False)
scenario("silence in place of tune", failed, answers={"tune": silence})
scenario(
    "secure in place of tune",
    failed,
    answers={"tune": method(0, 10, 20, long(b"x" * 1000))},
    is_for_command=False,
)
scenario("frame_max of a byte", connected(4), answers={"tune": tune(frame_max=1)})
scenario("a single channel", answers={"tune": tune(channels=1)})
scenario("two channels", answers={"tune": tune(channels=2)})
scenario(
    "the login is refused",
    connected(3),
    answers={"tune": Cut(connection_close(403, b"ACCESS_REFUSED" + TERMINAL))},
)
scenario(
    "the vhost is refused",
    connected(3),
    answers={"open-ok": connection_close(530, b"NOT_ALLOWED" + TERMINAL)},
)
scenario("silence in place of open-ok", failed, answers={"open-ok": silence})
scenario(
    "silence after a heartbeat of a second",
    saw("disconnected"),
    answers={"tune": tune(heartbeat=1), "deliveries": silence},
)

# ---------------------------------------------------------------------------------------- channels

for name in (
    "channel.open-ok",
    "exchange.declare-ok",
    "queue.declare-ok",
    "queue.bind-ok",
    "qos-ok",
    "consume-ok",
):
    scenario(f"{name}: silence", failed, answers={name: silence})
    scenario(
        f"{name}: a close",
        connected(3),
        answers={name: Cut(connection_close(541, b"INTERNAL_ERROR" + TERMINAL))},
    )
    scenario(f"{name}: cut", connected(3), answers={name: cut(5)})
scenario(
    "a clash, with terminal controls",
    saw("unavailable", 2),
    answers={
        "queue.declare-ok": lambda p, c, h: channel_close(
            c, 406, b"PRECONDITION_FAILED - " + TERMINAL + b"\xff" + b"y" * 200
        )
    },
)
scenario(
    "consuming is refused",
    saw("unavailable", 2),
    answers={
        "consume-ok": lambda p, c, h: channel_close(c, 403, b"ACCESS_REFUSED" + TERMINAL),
        "deliveries": silence,
    },
)
scenario(
    "absurd counts",
    answers={"queue.declare-ok": lambda p, c, h: method(c, 50, 11, short("work") + b"\xff" * 8)},
    is_for_command=False,
)
scenario(
    "declare-ok of another queue",
    answers={"queue.declare-ok": lambda p, c, h: method(c, 50, 11, short(TERMINAL) + b"\0" * 8)},
)
scenario(
    "each answer twice",
    answers={
        name: lambda p, c, h: h + h
        for name in (
            "channel.open-ok",
            "exchange.declare-ok",
            "queue.declare-ok",
            "queue.bind-ok",
            "qos-ok",
            "consume-ok",
            "select-ok",
        )
    },
)
scenario(
    "consume-ok of another consumer",
    answers={"consume-ok": lambda p, c, h: method(c, 60, 21, short(TERMINAL))},
)


def cancel(peer: Peer, channel: int, honest: bytes) -> bytes:
    return method(channel, 60, 30, short(peer.consumer_tag) + b"\1")


scenario("the consumer is cancelled at once", saw("cancelled", 3), answers={"deliveries": cancel})
scenario(
    "another consumer is cancelled",
    answers={
        "deliveries": lambda p, c, h: (
            method(c, 60, 30, short("other") + b"\1") + all_deliveries(p, c)
        )
    },
)


def is_deleted_late(peer: Peer, channel: int, honest: bytes) -> bytes:
    """The queue is found once after the cancel, and then it is missing until it is declared."""
    looks = peer.broker.looks
    if looks is None:
        return honest
    peer.broker.looks = looks + 1
    missing = channel_close(channel, 404, "NOT_FOUND - no queue 'work' in vhost '/'")
    return missing if looks == 1 else honest


def deliver_and_delete(peer: Peer, channel: int, honest: bytes) -> bytes:
    if peer.broker.looks is not None:
        return b""
    peer.broker.looks = 0
    return all_deliveries(peer, channel) + cancel(peer, channel, honest)


scenario(
    "a queue is found while it is being deleted",
    answers={"deliveries": deliver_and_delete, "queue.declare-ok": is_deleted_late},
    check=lambda run: f"{run.broker.requeues} messages given up" if run.broker.requeues else "",
    is_for_python=False,
)

# -------------------------------------------------------------------------------------- deliveries


def losses(run: Any) -> list[str]:
    """The lines of lost connections and consumers that a back-off follows."""
    lines = [line.split(" ", 2) for line in run.output.splitlines()]
    return [
        " ".join(line)
        for line in lines
        if line[0] in ("disconnected", "cancelled") and line[1:2] != ["0"]
    ]


def grew(line: str) -> bool:
    return int(line.split(" ")[1]) >= 400  # ms; the first delays are at most 200


def names_the_cause(line: str) -> bool:
    return "an AMQP 1.0 client" in line


def at_a_loss(is_sign: Any) -> Any:
    return lambda run: any(map(is_sign, losses(run)))


def within_five_losses(is_sign: Any) -> Any:
    """Five more for each 10 s: a back-off starts again after a connection that lasted so long."""

    def check(run: Any) -> str:
        found = list(map(is_sign, losses(run)))
        most = 5 * (1 + int(time.monotonic() - run.begun) // 10)
        return "" if any(found[:most]) else f"no {is_sign.__name__} in {most} losses"

    return check


scenario(
    "W6: an internal error at each delivery",
    at_a_loss(names_the_cause),
    answers={"deliveries": then(connection_close(541, b"INTERNAL_ERROR"))},
    check=within_five_losses(names_the_cause),
    takes=False,
    is_for_python=False,
)
for label, ending in (
    ("a close after the deliveries", then(connection_close())),
    ("a cut after the deliveries", lambda p, c, h: Cut(all_deliveries(p, c))),
    ("all deliveries have tag 1", lambda p, c, h: p.deliver(c, 1) * 5),
):
    scenario(
        f"X5: {label}",
        at_a_loss(grew),
        answers={"deliveries": ending},
        check=within_five_losses(grew),
        takes=False,
    )
scenario(
    "X5: the channel is closed after the deliveries",
    saw("cancelled", 4),
    answers={"deliveries": then(channel_close)},
    takes=False,
)
for label, tag in (("0", 0), ("2^63", 2**63), ("2^64 - 1", 2**64 - 1), ("2", 2)):
    scenario(
        f"a delivery with tag {label}",
        connected(4),
        answers={"deliveries": lambda p, c, h, tag=tag: p.deliver(c, tag)},
    )


async def beyond_prefetch(peer: Peer, channel: int, honest: bytes) -> bytes:
    for tag in range(1, 4001):
        await peer.send(peer.deliver(channel, tag, body=b"x" * 65536))
    return b""


scenario(
    "X9: 4,000 messages of 64 KiB",
    lambda run: "ignores the prefetch" in run.output,
    answers={"deliveries": beyond_prefetch},
    takes=False,
    most_mib=200,
)
scenario(
    "X9: twice the prefetch",
    acked(2 * PREFETCH),
    answers={
        "deliveries": lambda p, c, h: b"".join(
            p.deliver(c, tag) for tag in range(1, 2 * PREFETCH + 1)
        )
    },
)
scenario(
    "deliveries on another channel",
    acked(PREFETCH),
    answers={"deliveries": lambda p, c, h: p.deliver(c + 1, 1) + all_deliveries(p, c)},
)
scenario("redelivered for ever", answers={"deliveries": deliveries(redelivered=True)})

# ---------------------------------------------------------------------------------------- confirms


def confirm(*tags: int, lies: bytes = b"", **how: Any) -> Any:
    """Confirms of these tags at each publish, and then the true one."""

    def answer(peer: Peer, channel: int, honest: bytes) -> bytes:
        lie = b"".join(peer.confirm(channel, tag, **how) for tag in tags)
        return lie + peer.confirm(channel, len(peer.publishing[channel].ids))

    return answer


def last(peer: Peer, channel: int) -> int:
    return len(peer.publishing[channel].ids)


scenario("no confirm", saw("unconfirmed"), answers={"confirm": silence})
scenario("confirms of tag 2^63", answers={"confirm": confirm(2**63)})
scenario("confirms of tag 2^64 - 1", answers={"confirm": confirm(2**64 - 1)})
scenario(
    "only confirms of unknown tags",
    saw("unconfirmed"),
    answers={"confirm": lambda p, c, h: p.confirm(c, last(p, c) + 1000)},
)
scenario(
    "confirms of tag 0", saw("unconfirmed"), answers={"confirm": lambda p, c, h: p.confirm(c, 0)}
)
scenario("confirms twice", answers={"confirm": lambda p, c, h: p.confirm(c, last(p, c)) * 2})
scenario(
    "confirms of tags to come",
    answers={
        "select-ok": lambda p, c, h: (
            h + b"".join(method(c, 60, 80, struct.pack(">QB", t, 1)) for t in (50, 1000))
        ),
        "confirm": confirm(),
    },
)
scenario(
    "a nack, then an ack",
    answers={
        "confirm": lambda p, c, h: p.confirm(c, last(p, c), is_ack=False) + p.confirm(c, last(p, c))
    },
    until=saw("nacked"),
)
scenario(
    "an ack, then a nack",
    answers={
        "confirm": lambda p, c, h: p.confirm(c, last(p, c)) + p.confirm(c, last(p, c), is_ack=False)
    },
)
scenario(
    "nacks for ever",
    saw("nacked", 3),
    answers={"confirm": lambda p, c, h: p.confirm(c, last(p, c), is_ack=False)},
)
scenario(
    "confirms on another channel",
    saw("unconfirmed"),
    answers={"confirm": lambda p, c, h: method(c + 7, 60, 80, struct.pack(">QB", last(p, c), 0))},
)
scenario(
    "confirms of several",
    answers={
        "confirm": lambda p, c, h: (
            p.confirm(c, last(p, c), multiple=True) if last(p, c) % 2 == 0 else b""
        )
    },
    until=acked(4),
)


def returned(
    peer: Peer, channel: int, has_content: bool = True, message_id: str | None = None
) -> bytes:
    arguments = struct.pack(">H", 312) + short(b"NO_ROUTE" + TERMINAL) + short("") + short(TERMINAL)
    its_id = peer.publishing[channel].ids[-1] if message_id is None else message_id
    its_content = content(channel, message_properties(its_id), b"body") if has_content else b""
    return method(channel, 60, 50, arguments) + its_content


scenario(
    "foreign returns",
    answers={
        "confirm": lambda p, c, h: returned(p, c, message_id="stranger") + p.confirm(c, last(p, c))
    },
    until=saw("returned", PREFETCH),
)
scenario(
    "a return without content",
    answers={"confirm": lambda p, c, h: returned(p, c, False) + p.confirm(c, last(p, c))},
    until=lambda run: acked(PREFETCH)(run) or failed(run),
)
scenario(
    "a return with the content of a delivery",
    connected(3),
    answers={"confirm": lambda p, c, h: returned(p, c, False) + frame(BODY, c, b"x")},
)
scenario(
    "C5: a publish closes the connection",
    connected(6),
    answers={"confirm": Cut(connection_close(541, "INTERNAL_ERROR"))},
)
scenario(
    "a publish closes the channel",
    failed,
    answers={"confirm": lambda p, c, h: channel_close(c, 406, b"PRECONDITION_FAILED" + TERMINAL)},
)
scenario("a publish cuts the connection", connected(6), answers={"confirm": Cut(b"")})
scenario(
    "an acknowledgement closes the connection",
    connected(5),
    answers={"ack": Cut(connection_close(541))},
)
scenario("an acknowledgement resets the connection", connected(5), answers={"ack": Reset(b"")})
scenario(
    "blocked, with terminal controls",
    saw("blocked"),
    answers={
        "confirm": lambda p, c, h: method(0, 10, 60, short(TERMINAL)) if last(p, c) == 1 else b""
    },
)
scenario(
    "blocked and unblocked 1,000 times",
    answers={
        "select-ok": lambda p, c, h: (
            h + (method(0, 10, 60, short("memory")) + method(0, 10, 61)) * 1000
        ),
        "confirm": confirm(),
    },
    check=lambda run: "",
)

# ---------------------------------------------------------------------------------------- the end

scenario("no answer to cancel", answers={"cancel-ok": silence})
scenario("no answer to close", answers={"close-ok": silence})
scenario(
    "deliveries after the cancel",
    answers={"cancel-ok": lambda p, c, h: p.deliver(c, PREFETCH + 1) + h},
)
scenario("a close in place of cancel-ok", answers={"cancel-ok": Cut(connection_close())})

# ----------------------------------------------------------------------------------------- garbage


def garbage(seed: int, name: str) -> Any:
    return lambda peer, channel, honest: Cut(random.Random(seed).randbytes(5000))


def mutated(seed: int) -> Any:
    """Honest bytes with some of them changed."""

    def answer(peer: Peer, channel: int, honest: bytes) -> bytes:
        source = random.Random(seed * 1000 + peer.number)
        data = bytearray(honest or all_deliveries(peer, channel))
        for _ in range(source.randint(1, 3)):
            data[source.randrange(len(data))] = source.randrange(256)
        return bytes(data) + connection_close()

    return answer


def methods(seed: int) -> Any:
    """Well-formed frames of random methods."""

    def answer(peer: Peer, channel: int, honest: bytes) -> bytes:
        source = random.Random(seed * 1000 + peer.number)
        known = [
            (10, 41),
            (10, 61),
            (20, 11),
            (20, 41),
            (50, 11),
            (60, 11),
            (60, 21),
            (60, 31),
            (60, 60),
            (60, 72),
            (60, 80),
            (85, 11),
        ]
        frames = [
            method(
                source.choice((0, channel, 2, 3)),
                *source.choice(known),
                source.randbytes(source.randint(0, 60)),
            )
            for _ in range(50)
        ]
        return b"".join(frames) + connection_close()

    return answer


for seed in range(3):
    for name in ("start", "open-ok", "deliveries"):
        scenario(
            f"garbage {seed} in place of {name}", connected(4), answers={name: garbage(seed, name)}
        )
    for name in ("start", "tune", "deliveries"):
        scenario(f"{name}, mutated by seed {seed}", connected(5), answers={name: mutated(seed)})
    scenario(f"random methods by seed {seed}", connected(4), answers={"deliveries": methods(seed)})
assert len({each.name for each in ALL}) == len(ALL)
