"""Runs the shared vectors through the public classes; tests/vectors/README.md has the format."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest

import backhop
from backhop import _backhop as c

DIRECTORY = Path(os.environ.get("BACKHOP_VECTORS") or Path(__file__).parents[2] / "tests" / "vectors")

TYPES = [
    "boolean",
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "float",
    "double",
    "decimal",
    "string",
    "bytes",
    "timestamp",
    "void",
    "array",
    "table",
]
INTEGERS = frozenset(["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "timestamp"])

Case = dict[str, Any]


def cases(noun: str) -> pytest.MarkDecorator:
    """Parametrizes a test with every case of a noun."""
    found = []
    for path in sorted((DIRECTORY / noun).glob("*.json")):
        file = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_unique)
        only(file, "about defaults cases")
        given = [_merged(case, file.get("defaults", {})) for case in file["cases"]]
        names = [case["name"] for case in given]
        assert names, f"{path} has no cases"
        assert len(names) == len(set(names)), f"{path} has two cases of one name"
        found += [pytest.param(case, id=f"{path.stem}: {case['name']}") for case in given]
    assert found, f"there are no vectors in {DIRECTORY / noun}"
    return pytest.mark.parametrize("case", found)


def _merged(case: Case, defaults: Mapping[str, Any]) -> Case:
    """Returns the case with the defaults of its file."""
    only(defaults, "case headers")
    case = {**defaults.get("case", {}), **case}
    if "headers" in defaults and "headers" in case["expect"]:
        headers = _merged_headers(case["expect"]["headers"], defaults["headers"])
        case["expect"] = {**case["expect"], "headers": headers}
    return case


def _merged_headers(entries: list[Any], lists: Mapping[str, list[Any]]) -> list[Any]:
    merged: list[Any] = []
    for entry in entries:
        names = [each[0] for each in merged]
        if isinstance(entry, str):
            merged += lists[entry]
        elif entry[0] in names:
            merged[names.index(entry[0])] = entry
        else:
            merged.append(entry)
    return merged


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = [key for key, _ in pairs]
    assert len(keys) == len(set(keys)), f"a key comes twice: {keys}"
    return dict(pairs)


def only(given: Mapping[str, Any], known: str) -> None:
    """An unknown key fails the case."""
    unknown = given.keys() - set(known.split())
    assert not unknown, f"unknown keys: {unknown}"


def compare(expect: Mapping[str, Any], comparisons: Mapping[str, Callable[[Any], None]]) -> None:
    """Runs the comparison of each key that is expected; no comparison at all fails the case."""
    compared = 0
    for key, expected in expect.items():
        if key != "status":
            comparisons[key](expected)
            compared += 1
    assert compared or "status" in expect, "the case compares nothing"


def is_(get: Callable[[], Any], convert: Callable[[Any], Any] = lambda value: value) -> Callable[[Any], None]:
    """A comparison by equality with what ``convert`` makes of the expected value."""

    def comparison(expected: Any) -> None:
        assert get() == convert(expected)

    return comparison


def refused(case: Case, run: Callable[[], object]) -> backhop.Error:
    """The error that a case expects by its status."""
    with pytest.raises(backhop.Error) as raised:
        run()
    assert raised.value.code == case["expect"]["status"]
    return raised.value


def status(case: Case) -> str:
    """The status that is expected."""
    return str(case["expect"].get("status", "BH_OK"))


# --- Values ---------------------------------------------------------------------------------------


def integer(value: int | str) -> int:
    return int(value)


def fraction(value: float | str) -> float:
    return float(value)


def raw(value: Any) -> bytes:
    """Bytes in the vectors' notation."""
    if isinstance(value, str):
        return value.encode()
    if "hex" in value:
        only(value, "hex")
        return bytes.fromhex(value["hex"])
    if "times" in value:
        only(value, "times text")
        return raw(value["text"]) * integer(value["times"])
    only(value, "join")
    return b"".join(map(raw, value["join"]))


def text(value: Any) -> str:
    """Bytes as the package gives texts."""
    return raw(value).decode("utf-8", "surrogateescape")


def typed(value: Any) -> tuple[str, Any]:
    """The AMQP type of a value, and its content."""
    if isinstance(value, dict):
        ((kind, content),) = value.items()
        assert kind in TYPES, f"{kind} is no type"
        return kind, content
    if value is None:
        return "void", None
    short = {str: "string", bool: "boolean", int: "int64", float: "double"}
    return short[type(value)], value


def value(given: Any) -> backhop.Typed:
    """A typed value as the package takes it."""
    if isinstance(given, dict) and "nest" in given:
        return _nest(given)
    kind, content = typed(given)
    if kind in INTEGERS:
        return backhop.Typed(kind, integer(content))
    if kind in ("string", "bytes"):
        return backhop.Typed(kind, raw(content))
    if kind in ("float", "double"):
        return backhop.Typed(kind, fraction(content))
    if kind == "decimal":
        only(content, "places value")
        return backhop.Typed(kind, Decimal(integer(content["value"])).scaleb(-content["places"]))
    if kind == "array":
        return backhop.Typed(kind, list(chain.from_iterable(map(_elements, content))))
    if kind == "table":
        return backhop.Typed(kind, list(entries(content)))
    return backhop.Typed(kind, content)


def _nest(given: dict[str, Any]) -> backhop.Typed:
    only(given, "nest of")
    kind = given["of"]
    inner = backhop.Typed(kind, [])
    for _ in range(given["nest"] - 1):
        inner = backhop.Typed(kind, [("n", inner)] if kind == "table" else [inner])
    return inner


def _elements(given: Any) -> Iterator[backhop.Typed]:
    if isinstance(given, dict) and "times" in given:
        only(given, "times value")
        return repeat(value(given["value"]), integer(given["times"]))
    return iter([value(given)])


def entries(given: list[Any]) -> Iterator[tuple[bytes, backhop.Typed]]:
    """Headers, or the entries of a table."""
    for entry in given:
        if isinstance(entry, dict):
            only(entry, "times entry")
            name, content = raw(entry["entry"][0]), value(entry["entry"][1])
            for i in range(integer(entry["times"])):
                yield name + str(i).encode(), content
        else:
            name, content = entry
            yield raw(name), value(content)


# --- Inputs ---------------------------------------------------------------------------------------


def delivery(case: Case) -> backhop.Delivery:
    given = case.get("delivery", {})
    only(given, "exchange routing_key properties headers")
    return backhop.Delivery(
        raw(given.get("exchange", "events")),
        raw(given.get("routing_key", "order.created")),
        {
            name.replace("-", "_"): content if isinstance(content, int) else raw(content)
            for name, content in given.get("properties", {}).items()
        },
        list(entries(given["headers"])) if "headers" in given else None,
    )


def back_off(given: Case) -> c.Policy:
    """Returns the extension module's policy of a back-off or of a breaker's pauses."""
    only(given, "kind initial_ms max_ms jitter max_retry_after_ms")
    kinds = {"fixed": c.BH_KIND_FIXED, "linear": c.BH_KIND_LINEAR, "exponential": c.BH_KIND_EXPONENTIAL}
    jitters = {"none": c.BH_JITTER_NONE, "full": c.BH_JITTER_FULL, "decorrelated": c.BH_JITTER_DECORRELATED}
    _, made = c.bh_policy_new()
    kind, jitter = kinds[given["kind"]], jitters[given["jitter"]]
    max_ms = given.get("max_ms", c.bh_policy_defaults()[3])
    most_ms = given.get("max_retry_after_ms", 86_400_000)
    assert not c.Policy_set(
        made, kind, 0, given["initial_ms"], 0, 2.0, max_ms, b"", jitter, 0.0, 10, 0, most_ms, 5, 100
    )
    return made


def policy(case: Case) -> backhop.Policy:
    given = case.get("policy", {})
    only(
        given,
        "kind initial_ms factor max_ms steps_ms jitter ratio max_attempts max_age_ms max_retry_after_ms max_crashes "
        "max_deferrals",
    )
    fields: dict[str, Any] = {
        key.removesuffix("_ms"): integer(content) / 1000
        for key, content in given.items()
        if key in ("initial_ms", "max_ms", "max_age_ms", "max_retry_after_ms")
    }
    fields |= {key: integer(given[key]) for key in ("max_attempts", "max_crashes", "max_deferrals") if key in given}
    if "kind" in given:
        fields["kind"] = given["kind"]
    if "factor" in given and given.get("kind", "exponential") == "exponential":  # with another the package refuses it
        fields["factor"] = fraction(given["factor"])
    if "steps_ms" in given:
        fields["steps"] = list(chain.from_iterable(map(_steps, given["steps_ms"])))
        fields.setdefault("kind", "exponential")
    if "jitter" in given:
        fields["jitter"] = fraction(given["ratio"]) if "ratio" in given else given["jitter"]
        assert "ratio" not in given or given["jitter"] == "spread"
    assert "ratio" not in given or "jitter" in given
    return backhop.Policy(**fields)


def _steps(given: Any) -> Iterator[float]:
    if isinstance(given, dict):
        only(given, "times value")
        return repeat(integer(given["value"]) / 1000, integer(given["times"]))
    return iter([integer(given) / 1000])


def _policies(given: list[Any]) -> list[backhop.Policy]:
    return [policy({"policy": further}) for further in given]


def topology(case: Case, policy: backhop.Policy) -> backhop.Topology:
    given = case.get("topology", {})
    only(given, "queue strategy queue_type namespace series stripes work_queue_type work_queue_arguments policies")
    options = {key: given[key] for key in ("strategy", "queue_type", "series", "stripes") if key in given}
    if "namespace" in given:
        options["namespace"] = raw(given["namespace"])
    if "work_queue_type" in given:
        options["work_queue"] = given["work_queue_type"]
    if "work_queue_arguments" in given:
        options["work_queue_arguments"] = {
            raw(name): content if isinstance(content, int) else raw(content)
            for name, content in given["work_queue_arguments"]
        }
    if "policies" in given:
        options["policies"] = _policies(given["policies"])
    return backhop.Topology(raw(given.get("queue", "orders")), policy, **options)


def history(case: Case, delivery: backhop.Delivery, topology: backhop.Topology | None) -> backhop.History:
    return backhop.History(
        delivery,
        topology,
        legacy_counter=raw(case["legacy_counter"]) if "legacy_counter" in case else None,
        wait_queues=[raw(queue) for queue in case.get("wait_queues", ())],
    )
