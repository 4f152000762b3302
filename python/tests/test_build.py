from __future__ import annotations

import sys
from importlib import metadata

import pytest

import backhop


def test_the_version_is_the_cores_and_the_packages() -> None:
    info = backhop.build_info()
    assert info.version == backhop.__version__
    assert info.version in str(info)


def test_without_librabbitmq_there_is_no_worker_and_no_version_of_it() -> None:
    info = backhop.build_info()
    assert info.worker == bool(info.librabbitmq_compiled) == bool(info.librabbitmq_loaded)
    assert ("no Worker" in str(info)) == (not info.worker)


@pytest.mark.free_threaded
def test_a_free_threaded_python_switches_its_gil_on() -> None:
    assert vars(sys)["_is_gil_enabled"]()


def test_the_package_is_typed_licensed_and_holds_no_sources_of_c() -> None:
    installed = {str(file) for file in metadata.files("backhop") or ()}
    assert metadata.version("backhop") == backhop.__version__
    assert "backhop/py.typed" in installed
    assert any(file.endswith("licenses/LICENSE") for file in installed)
    assert not [file for file in installed if file.endswith((".c", ".h", ".i", ".a", ".cmake", ".pc"))]
