"""Puts each page into the site as Markdown too, and llms.txt, which lists them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx


def write(app: Sphinx, exception: Exception | None) -> None:
    if exception or app.builder.format != "html":
        return
    lines = ["# Backhop", "", "> Retries for RabbitMQ consumers, in C, Python, Ruby and Node.", "", "## Pages", ""]
    for name in sorted(app.env.found_docs):
        source = Path(app.env.doc2path(name))
        target = Path(app.outdir) / f"{name}.md"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(source.read_text())
        title: nodes.title = app.env.titles[name]
        lines.append(f"- [{title.astext()}]({name}.md)")
    (Path(app.outdir) / "llms.txt").write_text("\n".join(lines) + "\n")


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("build-finished", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
