"""Python's interface as Markdown, which griffe reads from its sources: no package has to be built for it."""

from __future__ import annotations

import inspect
from pathlib import Path

import griffe
from comments import entry
from griffe import ParameterKind as Kind

PARTS = ("", "pika", "aio_pika", "testing", "prometheus", "opentelemetry")
FIRST = ("Policy", "Retrier", "Worker", "Topology", "Message", "RetryAfter", "Throttled", "Park", "Drop", "Event")


def comment(thing: griffe.Object) -> str:
    return inspect.cleandoc(thing.docstring.value) if thing.docstring else ""


def written(each: griffe.Parameter, module: griffe.Module) -> str:
    """Returns a parameter as its definition has it. A constant of the module is shown as its value."""
    stars = {Kind.var_positional: "*", Kind.var_keyword: "**"}.get(each.kind, "")
    default = "" if stars or each.default is None else str(each.default)
    constant = module.members.get(default)
    value = str(constant.value) if constant and not constant.is_alias else default
    return f"{stars}{each.name}" + (f": {each.annotation}" if each.annotation else "") + (f" = {value}" if value else "")


def signature(function: griffe.Function, name: str) -> str:
    words = "async def " if "async" in function.labels else "def "
    given = [each for each in function.parameters if each.name not in ("self", "cls") and each.name[0] != "_"]
    texts, kinds = [written(each, function.module) for each in given], [each.kind for each in given]
    if Kind.keyword_only in kinds and Kind.var_positional not in kinds:
        texts.insert(kinds.index(Kind.keyword_only), "*")
    result = f" -> {function.returns}" if function.returns and function.name != "__init__" else ""
    line = f"{words}{name}({', '.join(texts)}){result}"
    return line if len(line) < 92 else f"{words}{name}(\n" + "".join(f"    {each},\n" for each in texts) + f"){result}"


def of_class(node: griffe.Class) -> str:
    """Documents a class, with the members of a base that is not public: BaseRetrier."""
    bases = [str(each) for each in node.bases if str(each).split("[")[0] not in ("Generic", "Protocol")]
    owners = [each for each in node.mro() if each.name.startswith("Base")]
    members = {name: each for owner in (*owners, node) for name, each in owner.members.items()}
    begin = members.pop("__init__", None)
    head = signature(begin, node.name).removeprefix("def ") if begin else f"class {node.name}({', '.join(bases)})"
    options = "\n" + comment(begin) if begin and begin.parent is not node else ""
    text = entry(3, node.name, "python", head, comment(node) + options)
    for name, each in members.items():
        if name.startswith("_") or not comment(each) or not (each.is_function or "property" in each.labels):
            continue
        shown = signature(each, name) if each.is_function else f"{name}: {each.annotation}"
        text += "\n" + entry(0, "", "python", shown, comment(each))
    return text


def markdown(project: Path) -> tuple[str, list[Path]]:
    sources = project / "python/src"
    package = griffe.load("backhop", search_paths=[sources], allow_inspection=False, resolve_aliases=True)
    modules = [package[part] if part else package for part in PARTS]
    text = ""
    for module in modules:
        text += "\n" + entry(2, module.path, "", "", comment(module))
        for name in sorted(module.exports, key=lambda name: (FIRST.index(name) if name in FIRST else len(FIRST), name)):
            found = module[name]
            thing = found.final_target if found.is_alias else found
            if thing.is_class:
                text += "\n" + of_class(thing)
            elif thing.is_function:
                text += "\n" + entry(3, name, "python", signature(thing, name), comment(thing))
    return text, list(sources.rglob("*.py"))
