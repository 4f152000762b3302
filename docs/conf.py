"""The site: `make docs` builds it into build/docs."""

from __future__ import annotations

import sys
from pathlib import Path

DOCS = Path(__file__).parent
PROJECT = DOCS.parent
sys.path.insert(0, str(DOCS / "_tools"))

project = "Backhop"
author = "The Backhop contributors"
version = release = (PROJECT / "VERSION").read_text().strip()
html_title = f"Backhop {version}"
html_last_updated_fmt = None
html_show_copyright = False

extensions = ["myst_parser", "sphinx_design", "breathe", "interfaces", "markdown_pages", "search"]
exclude_patterns = ["requirements.txt", "_templates"]
nitpicky = False
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4
# A page has its programs as text, so that it is readable as a file too. The test `samples` compares them with their files.
highlight_language = "text"
suppress_warnings = [
    "misc.highlighting_failure",  # a console's output is no code
    "myst.header",  # a generated part begins below its page's heading
]

breathe_projects = {part: str(PROJECT / "build/docs-cache" / part) for part in ("core", "adapter")}
breathe_default_project = "core"
breathe_domain_by_extension = {"h": "c"}
breathe_show_include = False

html_theme = "furo"
html_static_path = ["_static", "../build/docs-cache/static"]  # the second has the playground
html_search_scorer = str(DOCS / "_tools/search.js")
html_css_files = ["site.css"]
html_js_files = ["versions.js"]
templates_path = ["_templates"]
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "sidebar/search.html",
        "sidebar/versions.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
    ]
}
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "navigation_with_keys": True,
    # The theme's own fonts are the system's: nothing is loaded from elsewhere.
    "light_css_variables": {"color-brand-primary": "#0b5cad", "color-brand-content": "#0b5cad"},
    "dark_css_variables": {"color-brand-primary": "#6cb6ff", "color-brand-content": "#6cb6ff"},
}
