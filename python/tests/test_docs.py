"""The docstrings show real results, and help() has a text for everything public."""

from __future__ import annotations

import doctest
import inspect
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
