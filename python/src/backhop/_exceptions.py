"""Turns the exception of a handler into the text that a copy carries."""

from __future__ import annotations

import re
import traceback
from typing import Any

_MOST_CAUSES = 8
_MOST_MEMBERS = 8
_MOST_EXCEPTIONS = 32  # in one text
_MOST_CHARACTERS = 1024  # of one exception's own text: the core keeps 1 KiB in all
_MOST_LOGGED = 16384  # characters of an exception and its causes that a log gets, without frames

_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""Characters that control a terminal or change the direction of a text, as in the core's utf8.h.

Tabs and line feeds may stay: a text of an exception can have lines.
"""


def is_kind(exception: BaseException, kind: Any) -> bool:
    """Returns whether an exception is of a class, or of one in a tuple.

    In place of isinstance, which may read ``__class__``: a property of a handler's exception may
    raise.
    """
    return issubclass(type(exception), kind)


def loggable(exception: BaseException | None) -> BaseException | None:
    """Returns the exception for a log to format.

    A stand-in with a bounded text, if the exception cannot be formatted or has a longer text. If a
    text has characters that control a terminal, stand-ins of the exception and its causes. These
    have "?" for such characters, since a text may be a message's.
    """
    if exception is None:
        return None
    try:
        lines = traceback.TracebackException.from_exception(exception, limit=0).format()
        text = "".join(lines)
        if len(text) <= _MOST_LOGGED:
            return _visible(exception, set()) if _CONTROLS.search(text) else exception
    except Exception:  # a part of it raises
        pass
    own = text_of(exception).removeprefix(name_of(exception)).removeprefix(": ")
    return _stand_in(exception, "builtins", name_of(exception), own)


def _stand_in(exception: BaseException, module: str, name: str, text: str) -> BaseException:
    """Returns an exception with another text, and the same traceback."""
    names = {"__module__": module, "__qualname__": visible(name)}
    made: BaseException = type(visible(name), (Exception,), names)()
    made.args = (visible(text),)
    return made.with_traceback(_part(exception, "__traceback__"))


def _visible(exception: BaseException, seen: set[int]) -> BaseException:
    """Returns a stand-in of an exception and of its causes. A group has its members in its text."""
    seen.add(id(exception))
    kind = type(exception)
    text = str(exception)
    if _part(exception, "exceptions") is not None:
        text = _text_of(exception, set(), 1).removeprefix(f"{name_of(exception)}: ")
    made = _stand_in(exception, visible(kind.__module__), kind.__qualname__, text)
    notes = getattr(exception, "__notes__", ())
    vars(made)["__notes__"] = [visible(str(note)) for note in notes]
    cause, context = exception.__cause__, exception.__context__
    if cause is not None and id(cause) not in seen:
        made.__cause__ = _visible(cause, seen)
    if context is not None and id(context) not in seen:
        made.__context__ = _visible(context, seen)
    made.__suppress_context__ = exception.__suppress_context__
    return made


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


def visible(text: str) -> str:
    """Returns the text with "?" for each character that controls a terminal."""
    return _CONTROLS.sub("?", text)


def writable(text: str) -> str:
    """Returns the text with lone surrogates escaped, so that it can be encoded as UTF-8."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()
