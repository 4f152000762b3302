"""Parked messages in Sentry, by a listener."""

from __future__ import annotations

import sentry_sdk

import backhop


# README: begin
def to_sentry(event: backhop.Event) -> None:
    if event.name == "parked":
        sentry_sdk.capture_exception(event.exception or RuntimeError(str(event)))
# README: end
