"""The shared vectors of the silence, over the extension module: it has no class of its own."""

from __future__ import annotations

from typing import Any

import vectors

from backhop import _backhop as c

CODES = {c.bh_status_name(code): code for code in range(-40, 1)}


def _call(silence: c.Silence, now_ms: int, verb: str, *arguments: str) -> int:
    """Returns the event to emit."""
    if verb == "check":
        return c.Silence_check(silence, len(arguments), now_ms)
    if verb == "end":
        return c.Silence_end(silence, CODES[arguments[0]])
    if verb == "begin":
        c.Silence_begin(silence, now_ms)
    else:
        c.Silence_lost(silence)
    return c.BH_EVENT_LAST


@vectors.cases("silence")
def test_a_vector(case: vectors.Case) -> None:
    vectors.only(case, "name timeout_ms expect")
    vectors.only(case["expect"], "history")
    status, silence = c.bh_silence_new(case["timeout_ms"])
    assert status == 0
    now_ms = compared = 0
    for row in case["expect"]["history"]:
        vectors.only(row, "at_ms do event due_ms pause_ms is_silent text")
        now_ms = row.get("at_ms", now_ms)
        if "do" in row:
            event = c.bh_event_name(_call(silence, now_ms, *row["do"]))
            assert event == (row.get("event", event) or ""), row
        found: dict[str, Any] = {
            "due_ms": c.Silence_due_ms(silence),
            "pause_ms": c.Silence_pause_ms(silence),
            "is_silent": bool(c.Silence_is_silent(silence)),
            "text": c.Silence_text(silence),
        }
        for key in found.keys() & row.keys():
            assert found[key] == (-1 if row[key] is None else row[key]), row
            compared += 1
    assert compared
