"""The search finds numbers of three digits too, as HTTP's statuses. docs/_tools/search.js does so in the browser."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sphinx.application import Sphinx
from sphinx.domains.c import CDomain
from sphinx.search.en import SearchEnglish

DIGITS = 3


class Search(SearchEnglish):
    def word_filter(self, word: str) -> bool:
        return (word.isdigit() and len(word) == DIGITS) or super().word_filter(word)


class C(CDomain):
    """C. The search leaves out parameters of functions and members of structs: it finds their page."""

    def get_objects(self) -> Iterator[tuple[str, str, str, str, str, int]]:
        for name, shown, kind, page, anchor, priority in super().get_objects():
            yield name, shown, kind, page, anchor, -1 if kind in ("functionParam", "member") else priority


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_search_language(Search)
    app.add_domain(C, override=True)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
