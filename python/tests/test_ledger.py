"""The shared vectors of the ledger, over the extension module: it has no class of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import vectors

from backhop import _backhop as c

ACTIONS = ["none", "ack", "retry", "reject", "return", "park", "drop", "replay", "defer"]
ENDINGS = ["orderly", "cut", "error", "missing"]
STATES = [
    "none",
    "arrived",
    "taken",
    "settled",
    "due",
    "sent",
    "waiting",
    "confirmed",
    "abandoned",
    "acknowledged",
    "rejected",
    "given-back",
]
STEPS = ["rest", "emit", "ack", "nack", "reject", "give_back", "open", "declare", "publish"]
CODES = {c.bh_status_name(code): code for code in range(-40, 1)}


class Sequence:
    """A ledger, and the numbers of what has a name."""

    def __init__(self, case: vectors.Case) -> None:
        policy = vectors.back_off(case.get("policy", {"kind": "fixed", "initial_ms": 100, "jitter": "none"}))
        random = vectors.raw(case["random"]) if "random" in case else bytes(8)
        status, self.ledger = c.bh_ledger_new(policy, random)
        assert status == 0
        self.numbers: dict[str, int] = {}
        self.now_ms = 0
        self.compared = 0

    def play(self, row: dict[str, Any]) -> None:
        vectors.only(row, "at_ms do status may_publish step steps due_ms states counts copies")
        self.now_ms = row.get("at_ms", self.now_ms)
        if "do" in row:
            verb, *arguments = row["do"]
            assert self._call(verb, arguments) == CODES[row.get("status", "BH_OK")], row
        may_publish = int(row.get("may_publish", True))
        if "step" in row:
            self._same(self._step(self._next(may_publish)), row["step"])
        if "steps" in row:
            steps = []
            while (step := self._next(may_publish))[0] != c.BH_STEP_REST:
                steps.append(self._step(step))
                assert len(steps) < 200
            self._same(steps, row["steps"])
        for name, state in row.get("states", {}).items():
            self._same(STATES[c.Ledger_state(self.ledger, self.numbers[name])], state)
        for state, count in row.get("counts", {}).items():
            self._same(c.Ledger_count(self.ledger, STATES.index(state)), count)
        getters: dict[str, Callable[[c.Ledger], Any]] = {
            "due_ms": lambda ledger: None if c.Ledger_due_ms(ledger) == -1 else c.Ledger_due_ms(ledger),
            "copies": c.Ledger_copies,
        }
        for key, get in getters.items():
            if key in row:
                self._same(get(self.ledger), row[key])

    def _next(self, may_publish: int) -> c.Step:
        return c.Ledger_next(self.ledger, self.now_ms, may_publish)

    def _same(self, got: Any, expected: Any) -> None:
        assert got == expected
        self.compared += 1

    def _number(self, name: str | int) -> int:
        return name if isinstance(name, int) else self.numbers[name]

    def _keep(self, name: str, result: tuple[int, int]) -> int:
        status, number = result
        assert (status == 0) == (number != 0)
        if number:
            self.numbers[name] = number
        return status

    def _call(self, verb: str, arguments: list[Any]) -> int:
        ledger = self.ledger
        if verb in ("open_channel", "open_publisher"):
            return self._keep(arguments[0], getattr(c, f"Ledger_{verb}")(ledger))
        if verb == "arrive":
            return self._keep(arguments[2], c.Ledger_arrive(ledger, self._number(arguments[0]), arguments[1]))
        if verb in ("close_channel", "lose_channel"):
            self._same(getattr(c, f"Ledger_{verb}")(ledger, self._number(arguments[0])), arguments[1])
        elif verb == "settle":
            entry, action, rung_ms, id_ = [*arguments, "id"][:4]
            return c.Ledger_settle(
                ledger, self._number(entry), ACTIONS.index(action), rung_ms, id_, "events", "order.created"
            )
        elif verb in ("acknowledge", "give_back"):
            return int(getattr(c, f"Ledger_{verb}")(ledger, self._number(arguments[0])))
        elif verb == "abandon":
            return int(c.Ledger_abandon(ledger, self._number(arguments[0]), self.now_ms))
        elif verb == "set_restores":
            c.Ledger_set_restores(ledger, int(arguments[0]))
        elif verb.startswith("set_"):
            return int(getattr(c, f"Ledger_{verb}")(ledger, *arguments))
        elif verb == "publisher_failed":
            c.Ledger_publisher_failed(ledger, CODES[arguments[0]], self.now_ms)
        elif verb == "close_publisher":
            ending = ENDINGS.index(arguments[1])
            told = c.Ledger_close_publisher(ledger, self._number(arguments[0]), ending, self.now_ms)
            self._same(bool(told), arguments[2])
        elif verb == "disconnect":
            c.Ledger_disconnect(ledger, ENDINGS.index(arguments[0]), self.now_ms)
        elif verb == "confirm":
            publisher, tag, multiple, is_ack = arguments + [False, True][len(arguments) - 2 :]
            c.Ledger_confirm(ledger, self._number(publisher), tag, int(multiple), int(is_ack), self.now_ms)
        elif verb == "return":
            publisher, id_, key = [*arguments, "order.created"][:3]
            c.bh_ledger_return(ledger, self._number(publisher), id_, "events", key)
        elif verb == "block":
            c.Ledger_block(ledger, int(arguments[0]), self.now_ms)
        elif verb == "rung":
            c.Ledger_rung(ledger, arguments[0], CODES[arguments[1]], self.now_ms)
        else:
            getattr(c, f"Ledger_{verb}")(ledger, *arguments)  # forget_rungs
        return 0

    def _step(self, step: c.Step) -> list[Any]:
        number, entry, channel, publisher, tag, multiple, event, status, delay_ms, count = step
        kind = STEPS[number]
        names = {0: "", **{number: name for name, number in self.numbers.items()}}
        if kind == "emit":
            return [kind, c.bh_event_name(event), names[entry], c.bh_status_name(status), delay_ms, count]
        if kind == "ack":
            return [kind, names[channel], tag, bool(multiple)]
        if kind == "open":
            return [kind]
        if kind == "declare":
            return [kind, delay_ms]
        if kind == "publish":
            return [kind, names[entry], names[publisher], tag]
        return [kind, names[channel], tag, names[entry]]


@vectors.cases("ledger")
def test_vector(case: vectors.Case) -> None:
    vectors.only(case, "name policy random expect")
    vectors.only(case["expect"], "history")
    sequence = Sequence(case)
    for row in case["expect"]["history"]:
        sequence.play(row)
    assert sequence.compared
