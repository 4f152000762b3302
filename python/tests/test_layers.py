"""The package's modules stand on floors: imports go down, and never in a circle."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import backhop

PACKAGE = Path(backhop.__file__).parent

FLOORS = [
    {"_backhop", "_native"},
    {"_amqp", "_build", "_checks", "_core", "_errors", "_exceptions", "_handlers", "_times"},
    {"_broker"},
    {"delivery"},
    {"preview"},
    {"policy"},
    {"topology"},
    {"history", "explanation"},
    {"plan"},
    {"outcomes"},
    {"decider", "message"},
    {"breaker"},
    {"observe"},
    {"adapters", "worker"},
    {"aio_pika", "opentelemetry", "pika", "prometheus", "testing"},
    {"__init__", "__main__", "_pytest_plugin"},
]


def modules() -> dict[str, Path]:
    """The package's modules by their dotted names, relative to the package."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        found[".".join(parts)] = path
    return found


def imports(name: str, text: str, known: set[str]) -> set[str]:
    """The modules of the package that a module imports, also for types alone or within a function."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.ImportFrom) or not node.level:
            continue
        base = name.split(".")[: -node.level]
        target = [*base, *(node.module.split(".") if node.module else [])]
        for alias in node.names:
            inner = ".".join([*target, alias.name])
            package = ".".join([*target, "__init__"]) if target else "__init__"
            one = next(each for each in (inner, ".".join(target), package) if each in known | {"_backhop", "_native"})
            found.add(one)
    return found


def graph() -> dict[str, set[str]]:
    found = modules()
    return {name: imports(name, path.read_text(), set(found)) for name, path in found.items()}


def circle(graph: dict[str, set[str]]) -> list[str]:
    """The modules of a circle, the first one again at the end; none if there is no circle."""
    done: set[str] = set()

    def visit(name: str, way: list[str]) -> list[str]:
        if name in way:
            return [*way[way.index(name) :], name]
        if name in done:
            return []
        for each in sorted(graph.get(name, ())):
            if found := visit(each, [*way, name]):
                return found
        done.add(name)
        return []

    return next((found for name in sorted(graph) if (found := visit(name, []))), [])


def floor(name: str) -> int:
    return next(number for number, names in enumerate(FLOORS) if name.partition(".")[0] in names)


def test_every_module_has_a_floor() -> None:
    assert {name.partition(".")[0] for name in modules()} | {"_backhop"} == set().union(*FLOORS)


def test_no_module_imports_one_of_a_higher_floor() -> None:
    assert not [(name, each) for name, found in graph().items() for each in found if floor(each) > floor(name)]


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert circle(graph()) == []


def test_no_folders_import_each_other_in_a_circle() -> None:
    def folder(name: str) -> str:
        return name.rpartition(".")[0] or "backhop"

    folders: dict[str, set[str]] = {}
    for name, found in graph().items():
        known = folders.setdefault(folder(name), set())
        known |= {folder(each) for each in found} - {folder(name), "backhop"}
    del folders["backhop"]  # its modules are on several floors
    assert circle(folders) == []


def test_every_import_of_the_package_is_relative_so_that_the_graph_has_it() -> None:
    def is_absolute(node: ast.AST) -> bool:
        if isinstance(node, ast.ImportFrom):
            return not node.level and (node.module or "").partition(".")[0] == "backhop"
        return isinstance(node, ast.Import) and any(each.name.partition(".")[0] == "backhop" for each in node.names)

    trees = {name: ast.parse(path.read_text()) for name, path in modules().items()}
    assert not [name for name, tree in trees.items() if any(map(is_absolute, ast.walk(tree)))]


def test_the_worker_and_the_adapters_do_not_import_each_other() -> None:
    def sides(name: str) -> set[str]:
        return {name.partition(".")[0]} & {"adapters", "worker"}

    assert not [(name, each) for name, found in graph().items() for each in found if len(sides(name) | sides(each)) > 1]


@pytest.mark.parametrize(("text", "found"), [
    ("from . import topology", {"policy", "topology"}),
    ("if TYPE_CHECKING:\n    from .topology import Topology", {"policy", "topology"}),
    ("def preview():\n    from .topology import Topology", {"policy", "topology"}),
    ("from .preview import Preview", set()),
])  # fmt: skip
def test_a_circle_is_found(text: str, found: set[str]) -> None:
    turned = imports("policy", text, set(modules()))
    assert set(circle({**graph(), "policy": turned})) == found
