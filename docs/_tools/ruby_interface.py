"""Ruby's interface as Markdown: its signatures (ruby/sig) with the comments of its sources (ruby/lib)."""

from __future__ import annotations

import re
from pathlib import Path

from comments import entry

FILES = [
    "policy", "bunny", "kicks", "worker", "retrier", "topology", "message", "outcomes", "observe", "testing", "delivery", "history",
    "plan", "errors", "backhop",
]
HEAD = re.compile(r"^( *)(class|module|interface) ([\w:]+)(?: < ([\w:]+))?")
METHOD = re.compile(r"^ *(?:def |attr_reader |attr_accessor )(?:self\??\.)?([\w?!=]+)")


def comments(folder: Path) -> tuple[dict[str, str], list[Path]]:
    """Returns the comment above each class, module and method, by "Class#method" and "Class"."""
    found: dict[str, str] = {}
    files = sorted(folder.rglob("*.rb"))
    for file in files:
        lines: list[str] = []
        owner = ""
        for line in file.read_text().split("\n"):
            if part := re.match(r"^ *# ?(.*)", line):
                lines.append(part[1])
                continue
            if head := re.match(r"^ *(?:class|module) ([\w:]+)", line):
                owner = head[1].split("::")[-1]
                found.setdefault(owner, "\n".join(lines))
            elif method := METHOD.match(line) or re.match(r"^ *attr_\w+ :(\w+)", line):
                found.setdefault(f"{owner}#{method[1]}", "\n".join(lines))
            lines = []
    return {name: text for name, text in found.items() if text and "@api private" not in text}, files


def declarations(text: str) -> list[tuple[str, str, str]]:
    """Returns owner, name and signature of each class and method; the name of a class is empty."""
    found = []
    owners: list[tuple[int, str]] = []
    lines = iter(text.split("\n"))
    for line in lines:
        if head := HEAD.match(line):
            owners = [each for each in owners if each[0] < len(head[1])] + [(len(head[1]), head[3])]
            found.append((head[3], "", line.strip()))
        elif (method := METHOD.match(line)) and owners:
            signature = line.strip()
            while signature.count("(") > signature.count(")"):
                signature += "\n" + next(lines).strip()
            signature = re.sub(r"\n(?!\))", "\n  ", signature)
            found.append((owners[-1][1], method[1], signature))
    return found


def markdown(project: Path) -> tuple[str, list[Path]]:
    known, files = comments(project / "ruby/lib")
    text = ""
    for name in FILES:
        path = project / f"ruby/sig/{name}.rbs"
        files.append(path)
        part = ""
        for owner, method, signature in declarations(path.read_text()):
            if owner == "Backhop" and not method:
                continue
            if method:
                comment = known.get(f"{owner}#{method}", "")
                if comment:
                    part += "\n" + entry(0, "", "ruby", signature, comment)
            elif owner != "Backhop":
                part += "\n" + entry(3, owner.split("::")[-1], "", "", known.get(owner.split("::")[-1], "")) if known.get(owner.split("::")[-1]) else ""
        if part.strip():
            title = {"bunny": "Over Bunny", "kicks": "Kicks and Sneakers", "observe": "Events, metrics and traces", "backhop": "The module"}
            text += f"\n## {title.get(name, name.capitalize())}\n" + part
    return text, files
