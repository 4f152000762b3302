"""Turns the exception of a handler into the text that a copy carries."""

from __future__ import annotations

import traceback
from typing import Any

_MOST_CAUSES = 8
_MOST_MEMBERS = 8
_MOST_EXCEPTIONS = 32  # in one text
_MOST_CHARACTERS = 1024  # of one exception's own text: the core keeps 1 KiB in all
_MOST_LOGGED = 16384  # characters of an exception and its causes that a log gets, without frames


def is_kind(exception: BaseException, kind: Any) -> bool:
    """Returns whether an exception is of a class, or of one in a tuple.

    In place of isinstance, which may read ``__class__``: a property of a handler's exception may
    raise.
    """
    return issubclass(type(exception), kind)


def loggable(exception: BaseException | None) -> BaseException | None:
    """Returns the exception for a log to format.

    A stand-in with a bounded text, if the exception cannot be formatted or has a longer text.
    """
    if exception is None:
        return None
    try:
        lines = traceback.TracebackException.from_exception(exception, limit=0).format()
        if sum(map(len, lines)) <= _MOST_LOGGED:
            return exception
    except Exception:  # a part of it raises
        pass
    stand_in: BaseException = type(name_of(exception), (Exception,), {"__module__": "builtins"})()
    stand_in.args = (text_of(exception).removeprefix(name_of(exception)).removeprefix(": "),)
    return stand_in.with_traceback(_part(exception, "__traceback__"))


def text_of(exception: BaseException) -> str:
    """Returns an exception as a bounded text: class, text, code, members of a group, causes.

    Parts that raise are left out.
    """
    if cause_of(exception) is None and _part(exception, "exceptions") is None:  # as most are
        return _itself(exception)
    return _text_of(exception, set(), _MOST_CAUSES)


def _text_of(exception: BaseException, seen: set[int], remaining: int) -> str:
    seen.add(id(exception))
    parts = [_itself(exception)]
    members = _part(exception, "exceptions")
    if isinstance(members, list | tuple):
        parts_of_group = [
            _text_of(each, seen, remaining - 1)
            for each in members[:_MOST_MEMBERS]
            if _is_new(each, seen) and remaining
        ]
        more = len(members) - len(parts_of_group)
        parts_of_group += [f"{more} more"] if more else []
        parts.append(f" [{'; '.join(parts_of_group)}]")
    cause = cause_of(exception)
    if _is_new(cause, seen) and remaining:
        assert cause is not None
        parts.append(f"; caused by {_text_of(cause, seen, remaining - 1)}")
    return "".join(parts)


def _is_new(exception: object, seen: set[int]) -> bool:
    return (
        issubclass(type(exception), BaseException)
        and id(exception) not in seen
        and len(seen) < _MOST_EXCEPTIONS
    )


def cause_of(exception: BaseException) -> BaseException | None:
    """Returns the exception that a traceback shows as the cause; None if there is none."""
    cause: BaseException | None = _part(exception, "__cause__")
    if cause is not None or _part(exception, "__suppress_context__"):
        return cause
    context: BaseException | None = _part(exception, "__context__")
    return context


def _part(exception: BaseException, name: str) -> Any:
    """Returns an attribute; None if there is none, or if it raises."""
    try:
        return getattr(exception, name, None)
    except Exception:
        return None


def repr_of(exception: BaseException) -> str:
    """Returns an exception's repr; its text by ``text_of`` if ``__repr__`` raises."""
    try:
        return repr(exception)
    except Exception:  # an exception that cannot be printed
        return text_of(exception)


def name_of(exception: BaseException) -> str:
    """Returns the name of the exception's class."""
    try:
        return str(type(exception).__name__)
    except Exception:  # a metaclass's
        return "BaseException"


def _itself(exception: BaseException) -> str:
    name = name_of(exception)
    try:
        text = str(exception)[:_MOST_CHARACTERS]
        code = _code(exception, text)
    except Exception:  # an exception that cannot be printed is no reason to lose a message
        return name
    return f"{name}: {text}{code}" if text or code else name


def _code(exception: BaseException, text: str) -> str:
    """Returns the exception's code, if its text does not contain it; else ""."""
    for name in ("code", "status_code", "sqlstate", "pgcode", "errno"):
        code = _part(exception, name)
        if (
            isinstance(code, str | int)
            and not isinstance(code, bool)
            and str(code)
            and str(code) not in text
        ):
            return f"{' ' if text else ''}({name} {code})"[:_MOST_CHARACTERS]
    return ""


def writable(text: str) -> str:
    """Returns the text with lone surrogates escaped, so that it can be encoded as UTF-8."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()
