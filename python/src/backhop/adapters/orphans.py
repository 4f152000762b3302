"""Copies in flight whose originals come again, because their channels are closed."""

from __future__ import annotations

from collections.abc import Iterable

from .. import _backhop as c
from .calls import CALLS
from .copies import Copy


def end_call(copy: Copy, action: int) -> None:
    """Records what became of the message of a copy. Without effect the second time."""
    call, copy.call = copy.call, 0
    if call:
        CALLS.end(call, action)


class Orphans:
    """The copies that are no longer in the ledger, while the broker can confirm them.

    If a copy is confirmed, the next delivery of its original is acknowledged. Until then that
    delivery waits.
    """

    def __init__(self) -> None:
        self._copies: dict[int, Copy] = {}  # by the tags of their publishes

    def __contains__(self, copy: Copy) -> bool:
        return self._copies.get(copy.tag) is copy

    def keep(self, copies: Iterable[Copy]) -> list[Copy]:
        """Keeps the copies whose messages have calls, and returns them."""
        kept = [copy for copy in copies if copy.call]
        self._copies.update((copy.tag, copy) for copy in kept)
        return kept

    def confirm(self, tag: int, is_multiple: bool, is_ack: bool) -> list[Copy]:
        """Records an answer of the broker, and returns the copies that it confirms.

        :param tag: of a publish; with ``is_multiple`` also of all before, and 0 of all
        """
        if not self._copies:
            return []
        answered = [
            copy
            for each, copy in self._copies.items()
            if each == tag or (is_multiple and (each < tag or not tag))
        ]
        self._end(answered, is_ack)
        return answered if is_ack else []

    def returned(self, id_: str) -> None:
        """Records that the broker returned the copies with an id; "": perhaps all."""
        self._end([copy for copy in self._copies.values() if not id_ or copy.id == id_], False)

    def give_up(self, copies: Iterable[Copy] | None = None) -> None:
        """Records that these copies, or all, were not confirmed: their originals are handled."""
        given = self._copies.values() if copies is None else copies
        self._end([copy for copy in given if copy in self], False)

    def _end(self, copies: list[Copy], is_confirmed: bool) -> None:
        for copy in copies:
            del self._copies[copy.tag]
            end_call(copy, copy.action if is_confirmed else c.BH_ACTION_NONE)
