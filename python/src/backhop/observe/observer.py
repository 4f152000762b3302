"""Observer: the base of the bridges to Prometheus and OpenTelemetry."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from .. import _backhop as c
from ..message import Message


class Observer:
    """The base of the bridges in backhop.prometheus and backhop.opentelemetry."""

    def attach(self, source: Any) -> None:
        """Connects it to a retrier or a worker that emits events from now on."""

    def observe(self, event: c.Event, exception: BaseException | None, traceparent: str) -> None:
        """Takes an event.

        :param event: valid during the call
        :param exception: what the handler raised
        :param traceparent: the attempt's span, as ``handling`` set it; "" for none
        """

    def handling(self, message: Message) -> AbstractContextManager[object]:
        """Returns a context that the handler runs in.

        If it fails or suppresses an exception, the handler still runs and its exception passes on.
        """
        return nullcontext()
