"""Puts each page into the site as Markdown too, with its interfaces, and llms.txt, which lists the pages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sphinx.application import Sphinx


def write_page(app: Sphinx, page: str, source: list[str]) -> None:
    target = Path(app.outdir) / f"{page}.md"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(source[0].replace("](path:", "]("))


def write_list(app: Sphinx, exception: Exception | None) -> None:
    if exception:
        return
    pages = sorted(app.env.found_docs)
    lines = "".join(f"- [{app.env.titles[page].astext()}]({page}.md)\n" for page in pages)
    text = f"# Backhop\n\n> Retries for RabbitMQ consumers, in C, Python, Ruby and Node.\n\n## Pages\n\n{lines}"
    (Path(app.outdir) / "llms.txt").write_text(text)


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("source-read", write_page, priority=900)  # after the interfaces are in it
    app.connect("build-finished", write_list)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
