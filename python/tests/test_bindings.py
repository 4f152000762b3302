"""Every function of the core's headers is in bindings/, and in the stub that bindings/stub makes for type checkers."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import backhop
from backhop import _backhop as c

HEADERS = Path(__file__).parents[2] / "core" / "include" / "backhop"
NOUNS = (
    "delivery",
    "history",
    "policy",
    "breaker",
    "flow",
    "subscription",
    "silence",
    "calls",
    "successes",
    "plan",
    "topology",
    "declared",
    "declaring",
    "ledger",
    "message",
    "worker",
    "event",
    "log",
    "metrics",
    "health",
)
LEFT_OUT = {
    "bh_delivery_read",  # Delivery.exchange and the like call it
    "bh_silence_read",  # Silence.due_ms and the like call it
    "bh_topology_defaults",  # Topology.set calls it
    "bh_worker_defaults",  # Worker.set calls it
    "bh_worker_run",  # it blocks, and calls back
    "bh_delivery_push",  # push_int and the like call it
    "bh_topology_add_work_queue_argument",  # add_work_queue_string and add_work_queue_int call it
}


def _headers() -> list[Path]:
    return list(HEADERS.rglob("*.h"))


def _functions() -> set[str]:
    names = set()
    for header in _headers():
        text = re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.DOTALL)
        names |= set(re.findall(r"BH_API [\w\s*]*?(bh_\w+)\(", text))
    return names


def _enumerators() -> set[str]:
    names = set()
    for header in _headers():
        text = re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.DOTALL)
        for body in re.findall(r"typedef enum bh_\w+ \{([^()]*?)\}", text):
            names |= set(re.findall(r"\b(BH_\w+)", body))
    return names - {"BH_DIALECT_COMMAND", "BH_DIALECT_RELAY"}  # the command's


def _bound(function: str) -> str:
    """Returns the extension's name: bh_policy_free is delete_Policy, bh_policy_check Policy_check."""
    noun, _, verb = function.removeprefix("bh_").partition("_")
    if noun not in NOUNS or verb == "new" or hasattr(c, function):
        return function
    return f"delete_{noun.capitalize()}" if verb == "free" else f"{noun.capitalize()}_{verb}"


@pytest.mark.skipif(not HEADERS.is_dir(), reason="the headers are not beside these tests")
class TestTable:
    def test_the_headers_are_read(self) -> None:
        assert {"bh_version", "bh_plan_make", "bh_worker_librabbitmq"} <= _functions()
        assert {"BH_KIND_STEPS", "BH_MODE_NONE"} <= _enumerators()

    def test_every_public_function_is_in_the_table(self) -> None:
        missing = {name for name in _functions() - LEFT_OUT if not hasattr(c, _bound(name))}
        assert not missing

    def test_what_is_left_out_is_in_the_headers(self) -> None:
        assert _functions() >= LEFT_OUT

    def test_every_enumerator_is_in_the_table(self) -> None:
        assert not {name for name in _enumerators() if not hasattr(c, name)}


def _stub() -> dict[str, ast.FunctionDef | None]:
    body = ast.parse((Path(backhop.__file__).parent / "_backhop.pyi").read_text()).body
    functions: dict[str, ast.FunctionDef | None] = {
        node.name: node for node in body if isinstance(node, ast.FunctionDef)
    }
    constants = [node.target for node in body if isinstance(node, ast.AnnAssign)]
    return functions | {target.id: None for target in constants if isinstance(target, ast.Name)}


def test_the_stub_names_what_the_extension_has() -> None:
    helpers = ("SWIG_", "delete_", "_swigregister")
    bound = {name for name in dir(c) if not name.startswith("__") and not any(part in name for part in helpers)}
    assert _stub().keys() == bound


def test_the_stub_counts_arguments_as_the_extension_does() -> None:
    for name, function in _stub().items():
        if function is None:
            continue
        count = len(function.args.posonlyargs)
        with pytest.raises(
            TypeError, match=f"{name}.* (takes no arguments|expected {count} arg|takes exactly one arg)"
        ):
            getattr(c, name)(*[object()] * (count + 1))
