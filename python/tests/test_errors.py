from __future__ import annotations

import pytest

import backhop
from backhop import _backhop as c
from backhop._errors import CLASSES, error


def _codes() -> dict[str, int]:
    """Every failure of the core, by walking its codes until one has no name."""
    codes: dict[str, int] = {}
    for status in range(-1, -1000, -1):
        name = c.bh_status_name(status)
        if not name:
            return codes
        codes[name] = status
    raise AssertionError("the codes do not end")


def test_every_code_has_a_class_of_its_own_and_every_class_a_code() -> None:
    assert CLASSES.keys() == _codes().keys()
    assert len(set(CLASSES.values())) == len(CLASSES)


def test_every_class_is_public_and_says_what_it_is_for() -> None:
    for raised in CLASSES.values():
        assert getattr(backhop, raised.__name__) is raised
        assert raised.__name__ in backhop.__all__
        assert raised.__doc__


@pytest.mark.parametrize(("name", "status"), _codes().items())
def test_an_error_has_its_code_and_the_sentence_of_the_core(name: str, status: int) -> None:
    raised = error(status)
    assert type(raised) is CLASSES[name]
    assert (raised.code, raised.status) == (name, status)
    assert str(raised) == c.bh_status_text(status)
    assert isinstance(raised, backhop.Error)


def test_what_an_object_has_to_tell_goes_before_the_sentence() -> None:
    assert str(error(-4, "initial is 0")) == "initial is 0"


def test_a_number_that_is_no_code_is_an_error_all_the_same() -> None:
    assert type(error(-999)) is backhop.Error
    assert str(error(-999))


def test_errors_can_be_caught_as_pythons_own() -> None:
    with pytest.raises(ValueError, match="initial is 0"):
        backhop.Policy(initial=0)
    assert issubclass(backhop.OutOfMemoryError, MemoryError)
    assert issubclass(backhop.WaitTimeoutError, TimeoutError)
    assert issubclass(backhop.ConnectionFailedError, ConnectionError)
