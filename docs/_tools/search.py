"""The search finds numbers of three digits too, as HTTP's statuses. docs/_tools/search.js does so in the browser."""

from __future__ import annotations

from typing import Any

from sphinx.application import Sphinx
from sphinx.search.en import SearchEnglish

DIGITS = 3


class Search(SearchEnglish):
    def word_filter(self, word: str) -> bool:
        return (word.isdigit() and len(word) == DIGITS) or super().word_filter(word)


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_search_language(Search)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
