"""A test of a handler and its policy, for pytest."""

import backhop
from backhop.testing import rehearse

policy = backhop.Policy(initial=10, factor=3, max=3600, max_attempts=8)


def handle(message: backhop.Message) -> None:
    raise RuntimeError("507 queue is full")


# begin
def test_a_full_queue_is_retried_and_then_parked() -> None:
    rehearsal = rehearse(handle, b"/index.html", policy=policy)  # no broker, no waiting
    assert rehearsal.outcome == "parked"
    assert len(rehearsal) == 8
    print(rehearsal)  # attempt by attempt
# end
