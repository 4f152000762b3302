"""Python's interface as Markdown, from its sources: no package has to be built for it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from comments import entry

PARTS = {
    "backhop": "__init__.py",
    "backhop.pika": "pika.py",
    "backhop.aio_pika": "aio_pika.py",
    "backhop.testing": "testing.py",
    "backhop.prometheus": "prometheus.py",
    "backhop.opentelemetry": "opentelemetry.py",
}
FIRST = ("Policy", "Retrier", "Worker", "Topology", "Message", "RetryAfter", "Throttled", "Park", "Drop", "Event")
Def = ast.FunctionDef | ast.AsyncFunctionDef


class Source:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.files: dict[Path, ast.Module] = {}

    def tree(self, path: Path) -> ast.Module:
        if path not in self.files:
            self.files[path] = ast.parse(path.read_text())
        return self.files[path]

    def find(self, path: Path, name: str) -> ast.stmt | None:
        """Returns the definition of a name, which another module may have."""
        for node in self.tree(path).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
                return node
            if isinstance(node, ast.ImportFrom) and node.level and any((each.asname or each.name) == name for each in node.names):
                (original,) = (each.name for each in node.names if (each.asname or each.name) == name)
                folder = path.parent
                for _ in range(node.level - 1):
                    folder = folder.parent
                target = folder.joinpath(*(node.module or "").split("."))
                for file in (target.with_suffix(".py"), target / "__init__.py"):
                    if file.exists() and (found := self.find(file, original)):
                        return found
        return None


def signature(node: Def, name: str) -> str:
    words = "async def " if isinstance(node, ast.AsyncFunctionDef) else "def "
    arguments = node.args
    plain = [*arguments.posonlyargs, *arguments.args]
    defaults: list[ast.expr | None] = [None] * (len(plain) - len(arguments.defaults)) + list(arguments.defaults)
    items = [(each, default) for each, default in zip(plain, defaults) if each.arg not in ("self", "cls")]
    texts = [written(*each) for each in items]
    if arguments.vararg or arguments.kwonlyargs:
        texts.append("*" + (written(arguments.vararg, None) if arguments.vararg else ""))
    texts += [written(*each) for each in zip(arguments.kwonlyargs, arguments.kw_defaults)]
    if arguments.kwarg:
        texts.append("**" + written(arguments.kwarg, None))
    result = f" -> {ast.unparse(node.returns)}" if node.returns and node.name != "__init__" else ""
    line = f"{words}{name}({', '.join(texts)}){result}"
    return line if len(line) < 92 else f"{words}{name}(\n" + "".join(f"    {each},\n" for each in texts) + f"){result}"


def written(argument: ast.arg, default: ast.expr | None) -> str:
    text = argument.arg + (f": {ast.unparse(argument.annotation)}" if argument.annotation else "")
    return text + (f" = {ast.unparse(default)}" if default else "")


def is_property(node: Def) -> bool:
    return any(ast.unparse(each) in ("property", "cached_property") for each in node.decorator_list)


def of_class(source: Source, node: ast.ClassDef) -> str:
    begin = next((each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"), None)
    bases = [ast.unparse(each) for each in node.bases if ast.unparse(each).split("[")[0] not in ("Generic", "Protocol")]
    head = signature(begin, node.name).removeprefix("def ") if begin else f"class {node.name}({', '.join(bases)})"
    text = entry(3, node.name, "python", head, ast.get_docstring(node) or "")
    for each in node.body:
        if not isinstance(each, Def) or each.name.startswith("_") or not ast.get_docstring(each):
            continue
        shown = f"{each.name}: {ast.unparse(each.returns)}" if is_property(each) and each.returns else signature(each, each.name)
        text += "\n" + entry(0, "", "python", shown, ast.get_docstring(each) or "")
    return text


def public(module: ast.Module) -> list[str]:
    for node in module.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names = [str(each) for each in ast.literal_eval(node.value)]
            return sorted(names, key=lambda name: (FIRST.index(name) if name in FIRST else len(FIRST), name))
    return []


def with_constants(text: str, module: ast.Module) -> str:
    """Replaces a private constant of the module by its value."""
    for node in module.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            text = re.sub(rf"= {ast.unparse(node.targets[0])}\b", f"= {ast.unparse(node.value)}", text)
    return text


def markdown(project: Path) -> tuple[str, list[Path]]:
    source = Source(project / "python/src/backhop")
    text = ""
    for part, file in PARTS.items():
        path = source.root / file
        text += "\n" + entry(2, part, "", "", ast.get_docstring(source.tree(path)) or "")
        for name in public(source.tree(path)):
            node = source.find(path, name)
            if isinstance(node, ast.ClassDef):
                module = next(each for each in source.files.values() if node in each.body)
                text += "\n" + with_constants(of_class(source, node), module)
            elif isinstance(node, Def):
                text += "\n" + entry(3, name, "python", signature(node, name), ast.get_docstring(node) or "")
    return text, list(source.files)
