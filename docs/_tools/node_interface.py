"""Node's interface as Markdown, from its type declarations."""

from __future__ import annotations

import re
from pathlib import Path

from comments import entry

PARTS = {
    "backhop": [
        "policy", "options", "worker", "topology", "message", "outcomes", "health", "observe/event", "delivery", "history", "plan",
        "errors", "types", "build-info",
    ],
    "backhop/amqplib": ["adapters/amqplib/index", "adapters/retrier"],
    "backhop/amqp": ["adapters/amqp/index"],
    "backhop/testing": ["testing"],
    "backhop/prom-client": ["observe/prom-client"],
    "backhop/opentelemetry": ["observe/opentelemetry"],
}


def plain(comment: str | None) -> str:
    return "\n".join(re.sub(r"^ *\* ?", "", line) for line in (comment or "").strip().split("\n"))


def things(text: str) -> list[tuple[str, str, str]]:
    """Returns name, declaration and comment of what a file exports."""
    found = []
    for each in re.finditer(r"^export (?:declare )?(?:abstract )?(interface|class|function|type|const) (\w+)", text, re.M):
        before = text[: each.start()]
        comment = re.search(r"/\*\*((?:(?!\*/).)*)\*/\n$", before, re.S)
        rest = text[each.start() :]
        if each[1] in ("interface", "class"):
            end = re.search(r"^\}$|\{\s*\}$", rest, re.M)
        else:
            end = re.search(r"\n(?=\n|/\*\*|export |$)", rest)
        declaration = rest[: end.end()] if end else rest
        found.append((each[2], declaration.rstrip(), plain(comment[1]) if comment else ""))
    return found


def first_comment(text: str) -> str:
    found = re.match(r"(?:import .*\n|\s)*/\*\*((?:(?!\*/).)*@packageDocumentation.*?)\*/", text, re.S)
    return plain(found[1]) if found else ""


def markdown(project: Path) -> tuple[str, list[Path]]:
    files = []
    text = ""
    for part, names in PARTS.items():
        paths = [project / "node/lib" / f"{name}.d.ts" for name in names]
        files += paths
        about = first_comment((project / "node/lib/index.d.ts" if part == "backhop" else paths[0]).read_text())
        text += "\n" + entry(2, part, "", "", about)
        for path in paths:
            for name, declaration, comment in things(path.read_text()):
                text += "\n" + entry(3, name, "ts", declaration, comment)
    return text, files
