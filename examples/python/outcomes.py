"""Rehearses each error that a handler can raise: no broker is needed, and nothing waits."""

from __future__ import annotations

from collections.abc import Iterator

import backhop
from backhop.testing import rehearse

answers: Iterator[tuple[int, str | None]] = iter(())


class RateLimitedError(Exception):
    retry_after: float | None = 30.0


def call_api(_: bytes) -> tuple[int, str | None]:
    """Returns the status, and the header Retry-After."""
    return next(answers, (202, None))


# outcomes: begin
def handle(message: backhop.Message) -> None:
    status, retry_after = call_api(message.body)
    if status == 429:
        raise backhop.Throttled(retry_after, "429")  # the API is busy: waits, and is no attempt
    if status == 503:
        raise backhop.RetryAfter(retry_after)  # "120", a date or None; waits that long at least
    if status == 404:
        raise backhop.Park("no such page")  # no attempt can succeed: parked now
    if status == 410:
        raise backhop.Drop  # not needed any more: acknowledged, no copy
    if status >= 400:
        raise RuntimeError(f"HTTP {status}")  # retried, as the policy has it
# outcomes: end


# choices: begin
def too_many(error: Exception) -> float | bool:
    """Returns the shortest delay, True for the policy's own delay, or False for another error."""
    return isinstance(error, RateLimitedError) and (error.retry_after or True)


slow = backhop.Policy(initial=600, max=3600, max_attempts=20)

worker = backhop.Worker(
    "amqp://localhost",
    "cdn-purge",
    backhop.Policy(),
    never=ValueError,  # parks at once
    only=[OSError, too_many],  # any other error parks at once
    policies={RateLimitedError: slow},  # another policy; one count of attempts for both
)
# choices: end


def main() -> None:
    global answers
    for status, retry_after in ((429, "30"), (503, "120"), (404, None), (410, None), (500, None)):
        answers = iter([(status, retry_after)])
        rehearsal = rehearse(handle, b"/index.html", policy=backhop.Policy())
        print(f"{status}: {rehearsal.outcome} after {len(rehearsal)}")


if __name__ == "__main__":
    main()
