"""The shared vectors of declaring, over the extension module, which alone has a dialect to choose."""

from __future__ import annotations

from typing import Any

import vectors

from backhop import _backhop as c

DIALECTS = {
    "c": c.BH_DIALECT_C,
    "python": c.BH_DIALECT_PYTHON,
    "ruby": c.BH_DIALECT_RUBY,
    "node": c.BH_DIALECT_NODE,
}
MODES = {"create": c.BH_MODE_CREATE, "verify": c.BH_MODE_VERIFY, "none": c.BH_MODE_NONE}
WHATS = {
    c.BH_DECLARE_EXCHANGE: "exchange",
    c.BH_DECLARE_QUEUE: "queue",
    c.BH_DECLARE_BINDING: "binding",
}


def row(step: tuple[Any, ...]) -> list[Any]:
    kind, name, *_, passive, unbind, arguments = step
    shown = [[key, number if tag == c.BH_TYPE_INT64 else text] for key, tag, text, number in arguments]
    does = "find" if passive else "unbind" if unbind else "declare"
    return [does, WHATS[kind], name, shown]


@vectors.cases("topology/declaring")
def test_a_vector(case: vectors.Case) -> None:
    vectors.only(case, "name policy topology dialect mode look rung_ms makes_rungs refusals then expect")
    expect = case["expect"]
    vectors.only(expect, "steps status text error")
    topology = vectors.topology(case, vectors.policy(case))
    status, handle = c.bh_declaring_new(topology._handle, DIALECTS[case.get("dialect", "c")])
    assert status == 0
    assert c.Declaring_set_makes_rungs(handle, int(case.get("makes_rungs", False))) == 0
    mode = MODES[case.get("mode", "create")]
    if case.get("look"):
        assert c.Declaring_look(handle, mode) == 0
    else:
        assert c.Declaring_begin(handle, mode, case.get("rung_ms", 0)) == 0
    refusals = {tuple(row[:3]): row[3:] for row in case.get("refusals", [])}
    steps = []
    while (step := c.Declaring_next(handle))[0] != c.BH_DECLARE_NONE:
        steps.append(row(step))
        refusal = refusals.get(tuple(steps[-1][:3]))
        if refusal:
            c.Declaring_refuse(handle, *refusal)
    if "then" in case:
        refusal, *arguments = case["then"]
        name = refusal.upper().replace("-", "_")
        c.Declaring_explain(handle, getattr(c, f"BH_REFUSAL_{name}"), *arguments)
    if "steps" in expect:
        assert [got[: len(row)] for got, row in zip(steps, expect["steps"], strict=True)] == expect["steps"]
    text = c.Declaring_error(handle)
    assert c.bh_status_name(c.Declaring_status(handle)) == expect.get("status", "BH_OK"), text
    assert text == expect.get("text", text)
    parts = expect.get("error", [])
    assert all(part in text for part in ([parts] if isinstance(parts, str) else parts)), text
