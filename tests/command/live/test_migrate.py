"""backhop migrate: from wait queues that people made."""

from __future__ import annotations

import json
import signal
import tempfile
from pathlib import Path

from harness import BUILD, LIMIT_S, UNAVAILABLE, USAGE, LiveCase, backhop, drain, long, rig

MANY = 3000


class Migrating(LiveCase):
    def set_up(self, *types: str) -> tuple[str, str, str]:
        """Makes a work queue. Its rejections wait a fifth of a second, until `bind` has them wait for an hour."""
        work = self.queue()
        short, long, exchange = work + ".retry.200", work + ".retry.1h", work + ".retries"
        rig("exchange", exchange)
        back = ("x-dead-letter-exchange=", f"x-dead-letter-routing-key={work}")
        rig("declare", short, "classic", "x-message-ttl=200", *back)
        rig("declare", long, "quorum" if self.version >= (3, 10) else "classic", "x-message-ttl=3600000", *back)
        rig("declare", work, "quorum", f"x-dead-letter-exchange={exchange}")
        rig("bind", short, exchange)
        return work, short, long

    def policy(self, policy: dict = {"steps": "100ms,200ms,300ms,400ms", "jitter": "none", "max-retry-after": "0s"}) -> Path:
        path = BUILD / f"command-policy-{self.queue()}.json"
        path.write_text(json.dumps(policy))
        self.addCleanup(path.unlink)
        return path

    def fill(self, queue: str, *headers: list) -> None:
        """A message for each list of headers."""
        with tempfile.TemporaryDirectory() as directory:
            file = Path(directory) / "messages"
            file.write_text("".join(
                json.dumps({"queue": queue, "id": f"h{i}", "properties": {"message-id": f"h{i}"}, "headers": each, "body": ""}) + "\n"
                for i, each in enumerate(headers)))
            self.ok("parked", "load", file, "--to", queue)

    def test_messages_keep_the_count_that_the_broker_has_of_them_and_come_home(self) -> None:
        work, short, long = self.set_up()
        rig("fill", work, 5)
        for _ in range(2):
            rig("reject", work, 5)
        self.await_ready(work, at_least=5)
        rig("bind", long, work + ".retries")
        rig("unbind", short, work + ".retries")
        rig("reject", work, 5)
        self.await_ready(long, at_least=5)
        options = ("migrate", work, "--from", short, "--from", long, "--policy", self.policy(), "--namespace", self.queue())
        group, total = self.ok(*options, "--dry-run", "--json").objects
        self.assertEqual(group, {"from": long, "attempts": 3, "count": 5, "action": "retry", "mean_delay_ms": 300})
        self.assertEqual((total["found"], total["to_migrate"]), (5, 5))
        self.assertIn("failed 3 times", " ".join(self.ok(*options, "--dry-run").stdout.replace("\n", " ").split()).replace(long, "failed"))
        done = self.ok(*options, "--yes", "--json").objects[-1]
        self.assertEqual((done["migrated"], done["stopped"]), (5, ""))
        self.assertEqual([line.split("\t")[i] for line in drain(work, 5) for i in (3, 5)], [work, "3"] * 5)
        self.assertEqual(drain(long, 0), [])

    @long
    def test_a_header_counts_and_what_has_no_attempt_left_is_parked(self) -> None:
        work, _, long = self.set_up()
        self.fill(long, [["x-retries", "l", 2]], [["x-retries", "S", "4"]], [["x-retries", "l", 5]], [], [["tenant", "S", "other"]])
        options = ("migrate", work, "--from", long, "--count-header", "x-retries", "--policy", self.policy(), "--where", "header.tenant!=other")
        *groups, total = self.ok(*options, "--dry-run", "--json").objects
        self.assertEqual([(g["attempts"], g["action"]) for g in groups], [(2, "retry"), (4, "retry"), (5, "park"), (1, "retry")])
        self.assertEqual((total["found"], total["to_migrate"]), (5, 4))
        self.assertIn("4 of 4 taken over", self.ok(*options, "--yes").stdout)
        self.assertEqual(sorted(line.split("\t")[5] for line in drain(work, 3)), ["1", "2", "4"])
        self.assertEqual([line.split("\t")[0] for line in drain(work + ".parked", 1)], ["h2"])
        self.assertEqual([line.split("\t")[0] for line in drain(long, 1)], ["h4"])

    @long
    def test_killed_in_the_middle_it_loses_nothing_and_goes_on(self) -> None:
        work, _, long = self.set_up()
        rig("fill", long, MANY)
        options = ("migrate", work, "--from", long, "--policy", self.policy(), "--yes")
        for end in (signal.SIGKILL, signal.SIGINT):
            with backhop(*options) as process:
                self.await_ready(work, at_least=1)
                process.send_signal(end)
                process.wait(LIMIT_S)
        self.ok(*options)
        self.assertEqual(drain(long, 0), [])
        went = [line.split("\t")[0] for line in drain(work, MANY)]
        self.assertEqual(set(went), {f"m{i:06}" for i in range(MANY)})
        self.assertLessEqual(len(went) - MANY, 512 + 1000)  # copies unconfirmed, and acknowledgements that the broker had not worked on

    def test_it_takes_from_no_queue_of_backhop_and_says_what_an_exchange_hides(self) -> None:
        work, _, long = self.set_up()
        for own in (work, work + ".parked", "backhop.wait.7", "backhop.unroutable"):
            self.assertIn("or one of Backhop's own", self.ends(USAGE, "migrate", work, "--from", own).stderr)
        self.assertIn("given twice", self.ends(USAGE, "migrate", work, "--from", long, "--from", long).stderr)
        self.assertIn("AMQP", self.ends(UNAVAILABLE, "migrate", work, "--from", work + ".retries").stderr)
        self.assertIn("no queue", self.ends(UNAVAILABLE, "migrate", work, "--from", "nowhere").stderr)
        fixed = self.policy({"kind": "fixed", "jitter": "none"})
        self.assertIn("keeps no messages", self.ends(USAGE, "migrate", work, "--from", long, "--strategy", "reject", "--policy", fixed).stderr)
