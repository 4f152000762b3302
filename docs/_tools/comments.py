"""Turns the comments of the packages into Markdown. The tags of the three languages become lists."""

from __future__ import annotations

import re

TAG = re.compile(
    r"^(?::(?P<python>param|raises|returns?|yields?)\b ?(?P<named>[\w, ]*):|@(?P<other>param|raise|throws|returns?|yield\w*|example|overload)\b) ?(?P<rest>.*)$"
)
WORDS = {"raises": "Raises", "raise": "Raises", "throws": "Throws", "return": "Returns", "returns": "Returns"}


def escaped(text: str) -> str:
    """Keeps Markdown from reading a placeholder as HTML, and a plain asterisk as emphasis. A link of YARD becomes code."""
    text = re.sub(r"\{((?:[A-Z][\w:]*)?#[\w?!]+|[A-Z][\w:.]*)\}", r"`\1`", text)
    parts = re.split(r"(``.+?``|`[^`]+`)", text)
    return "".join(each if i % 2 else re.sub(r"([<*_\[\]])", r"\\\1", each) for i, each in enumerate(parts))


def item(found: re.Match[str]) -> str:
    word, rest = found["python"] or found["other"], found["rest"].strip()
    named = (found["named"] or "").strip()
    rest = re.sub(r"\{@link (\w+)\}", r"`\1`", rest)
    if word == "param":
        if not named:
            named, _, rest = rest.partition(" ")
        return f"- `{named}`: {escaped(rest)}"
    if named:
        rest = f"`{named}`: {rest}"
    return f"- {WORDS.get(word, word.capitalize())} {escaped(rest)}"


def markdown(comment: str) -> str:
    """Converts a comment. A line that is indented by four is code, or goes on with an item."""
    out: list[str] = []
    in_list = is_console = False
    for line in comment.strip("\n").split("\n"):
        if re.match(r"@(packageDocumentation|api|internal)\b", line.strip()):
            continue
        is_console = bool(line.strip()) and (is_console or line.startswith(">>>"))
        if is_console:
            out.append("    " + line)
        elif found := TAG.match(line):
            out += ([] if in_list else [""]) + [item(found)]
            in_list = True
        elif in_list and line.strip():
            out.append("  " + escaped(line.strip()))
        elif line.startswith("    "):
            out += ([] if not out or out[-1].startswith("    ") or not out[-1] else [""]) + [line]
        else:
            in_list = False
            out.append(escaped(re.sub(r"\{@link (\w+)\}", r"`\1`", line.strip())))
    return "\n".join(out).strip("\n")


def entry(level: int, title: str, language: str, signature: str, comment: str) -> str:
    """Returns one documented thing: a heading, its signature and its comment."""
    parts = [f"{'#' * level} {title}"] if level else []
    if signature:
        parts.append(f"```{language}\n{signature.rstrip()}\n```")
    if comment:
        parts.append(markdown(comment))
    return "\n\n".join(parts) + "\n"
