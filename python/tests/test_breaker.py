"""The shared vectors of the breaker, over the extension module: it has no class of its own yet."""

from __future__ import annotations

from typing import Any

import vectors

from backhop import _backhop as c

SETTINGS = [
    "window_ms",
    "least_calls",
    "failure_percent",
    "row_failures",
    "slow_ms",
    "slow_percent",
    "probe_successes",
    "probe_timeout_ms",
    "ramp_calls",
    "throttled_opens",
]
STATES = ["closed", "open", "half-open", "disabled"]
KINDS = ["success", "failure", "ignored", "throttled"]
PAUSES = {"kind": "fixed", "initial_ms": 10000, "jitter": "none"}
ROW = (
    "at_ms open_until_ms close disable permit record calls kind duration_ms retry_after_ms whole_queue error counts "
    "refused_until_ms state reason until_ms limit pauses generation window"
)


def _time(given: int | None) -> int:
    return -1 if given is None else given


class Sequence:
    """A breaker, and the permits that have names."""

    def __init__(self, breaker: c.Breaker) -> None:
        self.breaker = breaker
        self.permits: dict[str, c.Permit] = {}
        self.now_ms = 0
        self.compared = 0

    def play(self, row: dict[str, Any]) -> None:
        vectors.only(row, ROW)
        self.now_ms = row.get("at_ms", self.now_ms)
        if "open_until_ms" in row:
            assert c.Breaker_open(self.breaker, "", _time(row["open_until_ms"]), self.now_ms) == 0
        if "close" in row:
            c.Breaker_close(self.breaker, "", self.now_ms)
        if "disable" in row:
            c.Breaker_disable(self.breaker, "", self.now_ms)
        for name in row.get("permit", []):
            self.permits[name] = self._granted()
        for name in row.get("record", []):
            self._record(row, self.permits[name])
        for _ in range(row.get("calls", 0)):
            self._record(row, self._granted())
        if "refused_until_ms" in row:
            generation, _, until_ms = c.Breaker_permit(self.breaker, "", self.now_ms)
            self._same((generation, until_ms), (0, _time(row["refused_until_ms"])))
        self._compare(row)

    def _compare(self, row: dict[str, Any]) -> None:
        state, generation, until_ms, limit, pauses, *window, _, reason = c.Breaker_read(self.breaker, "", self.now_ms)
        found = {
            "state": STATES[state],
            "generation": generation,
            "until_ms": None if until_ms == -1 else until_ms,
            "limit": limit,
            "pauses": pauses,
            "window": window,
            "reason": reason,
        }
        for key in found.keys() & row.keys():
            self._same(found[key], row[key])

    def _same(self, got: Any, expected: Any) -> None:
        assert got == expected
        self.compared += 1

    def _granted(self) -> c.Permit:
        permit = c.Breaker_permit(self.breaker, "", self.now_ms)
        assert permit[0] != 0
        return permit

    def _record(self, row: dict[str, Any], permit: c.Permit) -> None:
        counted = c.Breaker_record(
            self.breaker,
            "",
            permit[0],
            permit[1],
            KINDS.index(row.get("kind", "success")),
            row.get("duration_ms", 0),
            row.get("retry_after_ms", 0),
            int(row.get("whole_queue", False)),
            row.get("error", ""),
            self.now_ms,
        )
        self._same(bool(counted), row.get("counts", True))


@vectors.cases("breaker")
def test_a_vector(case: vectors.Case) -> None:
    vectors.only(case, "name settings pauses random expect")
    vectors.only(case.get("settings", {}), " ".join(SETTINGS))
    given = dict(zip(SETTINGS, c.bh_breaker_defaults(), strict=True)) | case.get("settings", {})
    random = vectors.raw(case["random"]) if "random" in case else bytes(8)
    settings: Any = [given[name] for name in SETTINGS]
    pauses = case.get("pauses", PAUSES)
    arguments: Any = ["", *settings, 0, pauses and vectors.back_off(pauses), random]
    status, breaker = c.bh_breaker_new(*arguments)
    assert c.bh_status_name(status) == vectors.status(case)
    error = c.bh_breaker_settings_error("", *settings)
    if status:
        vectors.only(case["expect"], "status error")
        assert error == case["expect"]["error"]
        return
    assert error == ""
    vectors.only(case["expect"], "history")
    sequence = Sequence(breaker)
    for row in case["expect"]["history"]:
        sequence.play(row)
    assert sequence.compared
