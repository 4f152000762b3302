"""The shared vectors of the calls of handlers, over the extension module: it has no class of its own."""

from __future__ import annotations

from typing import Any

import vectors

import backhop
from backhop import _backhop as c

ACTIONS = ["none", "ack", "retry", "reject", "return", "park", "drop", "replay", "defer"]


class Sequence:
    """Calls, and the numbers of what has a name."""

    def __init__(self, messages: dict[str, Any]) -> None:
        status, self.calls = c.bh_calls_new(b"0123456789abcdef")
        assert status == 0
        self.messages = messages
        self.numbers: dict[str, int] = {}
        self.now_ms = 0
        self.compared = 0

    def play(self, row: dict[str, Any]) -> None:
        vectors.only(row, "at_ms do arrival")
        self.now_ms = row.get("at_ms", self.now_ms)
        verb, name, *arguments = row["do"]
        if verb == "open_channel":
            self.numbers[name] = c.Calls_open_channel(self.calls)
        elif verb == "arrive":
            assert self._arrive(self.numbers[name], *arguments) == row["arrival"], row
            self.compared += 1
        elif verb == "end":
            c.Calls_end(self.calls, self.numbers[name], ACTIONS.index(arguments[0]), self.now_ms)
        else:
            assert verb == "lose_channel"
            c.Calls_lose_channel(self.calls, self.numbers[name], arguments[0], self.now_ms)

    def _arrive(self, channel: int, message: str, redelivered: bool, name: str) -> list[str]:
        given = self.messages[message]
        vectors.only(given, "delivery queue body")
        history = backhop.History(vectors.delivery(given))
        kind, call, action = c.Calls_arrive(
            self.calls,
            channel,
            history._handle,
            given.get("queue", "orders"),
            given.get("body", "body"),
            int(redelivered),
            self.now_ms,
        )
        if kind == c.BH_ARRIVAL_CALL:
            self.numbers[name] = call
            return ["call", "kept" if call else "not kept"]
        if kind == c.BH_ARRIVAL_ACK:
            return ["ack", ACTIONS[action]]
        names = {number: name for name, number in self.numbers.items() if not name.startswith("channel")}
        return ["wait", names[call]]


@vectors.cases("calls")
def test_a_vector(case: vectors.Case) -> None:
    vectors.only(case, "name messages expect")
    vectors.only(case["expect"], "history")
    sequence = Sequence(case["messages"])
    for row in case["expect"]["history"]:
        sequence.play(row)
    assert sequence.compared
