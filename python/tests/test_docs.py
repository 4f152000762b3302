"""The docstrings show real results, and help() has a text for everything public."""

from __future__ import annotations

import doctest
import inspect
import json
import re
from pathlib import Path
from types import ModuleType

import pytest

import backhop
from backhop import explanation, policy

ROOT = Path(__file__).parents[2]
README = ROOT / "python/README.md"
GUIDE = ROOT / "docs/python.md"
STORY = {
    "backhop-attempts": 8,
    "backhop-first-failure": 1_794_694_400_000,
    "backhop-delay": 3_000_000,
    "backhop-error": "HTTPError: 507 queue is full",
    "backhop-parked": "exhausted",
    "backhop-exchange": "cdn",
    "backhop-routing-key": "purge.image",
    "backhop-id": "5f0c",
}


@pytest.mark.parametrize("module", [explanation, policy])
def test_the_examples_of_a_module_are_true(module: ModuleType) -> None:
    results = doctest.testmod(module)
    assert results.attempted
    assert not results.failed


@pytest.mark.parametrize("name", backhop.__all__)
def test_everything_public_is_documented(name: str) -> None:
    thing = getattr(backhop, name)
    assert inspect.getdoc(thing)
    members = vars(thing) if inspect.isclass(thing) else {}
    public = {
        member: value
        for member, value in members.items()
        if not member.startswith("_") and (inspect.isfunction(value) or isinstance(value, property | classmethod))
    }
    assert not [member for member in public if not inspect.getdoc(getattr(thing, member))]


@pytest.mark.skipif(not README.exists(), reason="the README is not beside these tests")
def test_the_readmes_table_is_what_its_policy_prints() -> None:
    preview = backhop.Policy(initial=10, factor=3, max=3600, jitter=0.2, max_attempts=8).preview()
    assert f"\n{preview}\n" in README.read_text()


@pytest.mark.skipif(not GUIDE.exists(), reason="the guide is not beside these tests")
def test_the_guides_story_is_what_headers_explain() -> None:
    assert f"\n{backhop.explain(STORY)}\n" in GUIDE.read_text()


@pytest.mark.skipif(not GUIDE.exists(), reason="the guide is not beside these tests")
def test_p4_20_the_pages_install_from_pypi_and_from_a_checkout() -> None:
    """tests/installed/commands runs the first ones, and tools/check release installs a checkout."""
    extras = set(re.findall(r"^([\w-]+) = \[\"", (ROOT / "python/pyproject.toml").read_text(), re.M))
    start, guide = (ROOT / "docs/start.md").read_text(), GUIDE.read_text()
    for page in (start, guide):
        found = re.findall(r"`pip install \"?(backhop|\./python)(?:\[([\w-]+)\])?\"?`", page)
        assert {place for place, _ in found} == {"backhop", "./python"}
        assert {extra for _, extra in found} - {""} <= extras


@pytest.mark.skipif(not GUIDE.exists(), reason="the guide is not beside these tests")
def test_p4_22_each_step_of_the_tutorial_links_a_whole_program_that_a_test_runs() -> None:
    tutorial = (ROOT / "docs/tutorial.md").read_text()
    tabs = re.findall(r"^:::\{tab-item\} Python$(.*?)^:::$", tutorial, re.M | re.S)
    with_code = [tab for tab in tabs if "```python" in tab]
    assert len(with_code) >= 4
    tested = Path(__file__).with_name("test_examples.py").read_text()
    for tab in with_code:
        (program,) = re.findall(r"^The whole file: \[([\w.]+)\]\(\.\./examples/python/\1\)$", tab, re.M)
        assert f'"{program}"' in tested
        assert (ROOT / "examples/python" / program).exists()


@pytest.mark.skipif(not GUIDE.exists(), reason="the guide is not beside these tests")
def test_p4_26_the_page_names_the_peak_after_the_breaker_that_its_picture_shows() -> None:
    """The command's test compares the figures of the picture with `backhop simulate`."""
    page = " ".join((ROOT / "docs/flow-control.md").read_text().split())
    lines = (ROOT / "docs/pictures/load.ndjson").read_text().splitlines()
    runs = {run["name"]: run for run in map(json.loads, lines)}
    breaker = runs["breaker"]
    noticed = next(each for each in breaker["over_time"] if each["time_ms"] > 360_000 and each["calls_per_s"] > 20)
    minutes = noticed["time_ms"] // 60_000
    assert f"back after 6 min, and the breaker notices it after {minutes} min" in page
    assert f"at {breaker['most_calls_per_s']:.0f} calls a second" in page
    assert f"{runs['back-off']['most_calls_per_s']:.0f} with back-off" in page
    for run in runs.values():
        assert f"| {run['failed_calls']:,} | {run['parked']:,}" in page
