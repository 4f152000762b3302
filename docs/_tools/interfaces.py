"""Fills the reference of Python, Ruby and Node from what the packages declare, and resolves links to the rest of the project.

A marker in a page, <!-- interface: python -->, is replaced by the interface as Markdown. Python's comes from the signatures and
docstrings of python/src. Ruby's comes from the signatures of ruby/sig, with the comments of ruby/lib. Node's comes from
node/lib/**/*.d.ts.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import node_interface
import python_interface
import ruby_interface
from sphinx.application import Sphinx

PROJECT = Path(__file__).parents[2]
READERS: dict[str, Callable[[Path], tuple[str, list[Path]]]] = {
    "python": python_interface.markdown,
    "ruby": ruby_interface.markdown,
    "node": node_interface.markdown,
}
MARKER = re.compile(r"^<!-- interface: (\w+) -->$", re.M)
# MyST takes a link to a Markdown file for a page of the site. A file outside is shown as it is.
OUTSIDE = re.compile(r"\]\(((?:\.\./)+[\w./-]+\.md)(?:#[\w-]+)?\)")


def fill(app: Sphinx, page: str, source: list[str]) -> None:
    folder = Path(app.env.doc2path(page)).parent

    def interface(found: re.Match[str]) -> str:
        text, files = READERS[found[1]](PROJECT)
        for file in files:
            app.env.note_dependency(str(file))
        return text

    def link(found: re.Match[str]) -> str:
        target = (folder / found[1]).resolve()
        return found[0] if Path(app.srcdir).resolve() in target.parents else f"](path:{found[1]})"

    source[0] = OUTSIDE.sub(link, MARKER.sub(interface, source[0]))


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("source-read", fill)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
