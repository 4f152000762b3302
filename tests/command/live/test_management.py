"""The command with the management API; on brokers that BACKHOP_MANAGEMENT=1 has serve it."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import shlex
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from http.client import HTTPResponse
from typing import Any

from harness import BUILD, LIMIT_S, NO_PERMISSION, TRY_AGAIN, UNAVAILABLE, USAGE, LiveCase, Terminal, broker_ctl, drain, exporter, http_api, long, managed, rig, run, scrape

URL = os.environ.get("BACKHOP_MANAGEMENT_URL", "")


@managed
class Managed(LiveCase):
    def get(self, path: str) -> dict:
        with self.ask("GET", path) as answer:
            return json.load(answer)

    def ask(self, method: str, path: str, body: dict | None = None) -> HTTPResponse:
        """Sends a request as the administrator."""
        parts = urllib.parse.urlsplit(URL)
        request = urllib.request.Request(f"http://{parts.hostname}:{parts.port}/api/{path}", method=method)
        request.add_header("Authorization", "Basic " + base64.b64encode(b"guest:guest").decode())
        request.add_header("Content-Type", "application/json")
        return urllib.request.urlopen(request, json.dumps(body).encode() if body else None, timeout=LIMIT_S)

    def tell(self, *request: object) -> None:
        self.ask(*request).close()


    @contextlib.contextmanager
    def edited(self, edit: Callable[[str, Any], Any]) -> Iterator[str]:
        """Serves the management API with answers that `edit` changes: its URL."""

        def answer(path: str) -> tuple[int, bytes]:
            path = path.removeprefix("/api/")
            try:
                return 200, json.dumps(edit(path, self.get(path))).encode()
            except urllib.error.HTTPError as error:
                return error.code, b""

        with http_api(answer) as address:
            yield f"http://guest:guest@{address}"


@managed
class Management(Managed):
    def findings(self, *arguments: object) -> str:
        return "".join(each["finding"] + "\n" for each in self.ends(UNAVAILABLE, "doctor", "-m", URL, "--json", *arguments).objects
                       if not each["finding"].startswith("The broker is"))

    def test_parked_queues_are_found_where_none_is_named(self) -> None:
        first, second = self.parked(2, "bad"), self.parked(1, "bad")
        found = {each["queue"]: each["count"] for each in self.ok("parked", "list", "-m", URL, "--json").objects}
        self.assertEqual((found[first + ".parked"], found[second + ".parked"]), (2, 1))
        self.assertIn(first, self.ok("top", "--once", "-m", URL.replace("guest:guest@", "")).stdout)
        self.assertIn("--management", self.ends(USAGE, "parked", "list").stderr)

    @long
    def test_x1_no_queue_name_of_the_broker_controls_the_terminal(self) -> None:
        hostile = f"{self.queue()}\x1b]0;PWN\x07\x1b[2J\x9b31m\u202e"
        for name in (hostile, hostile + ".parked"):
            rig("declare", name, "quorum", "x-delivery-limit=1000000000")
        for code, command in ((0, ("top", "--once")), (UNAVAILABLE, ("doctor", "--patience", "0s"))):
            with self.subTest(command):
                text = self.ends(code, *command, "-m", URL).stdout
                self.assertIn("PWN", text)
                self.assertEqual([each for each in text if each != "\n" and not each.isprintable()], [])

    def test_the_exporter_finds_queues_that_come_later(self) -> None:
        first = self.parked(1, "bad")
        with exporter("-m", URL) as url:
            self.assertIn(f'backhop_parked_messages{{queue="{first}"}} 1\n', scrape(url))
            second = self.parked(2, "bad")
            self.await_scrape(url, lambda text: f'backhop_parked_messages{{queue="{second}"}} 2\n' in text)
            rig("delete", second + ".parked")
            self.await_scrape(url, lambda text: second not in text)

    def with_other_policy(self) -> tuple[str, str]:
        """Makes a work queue and a namespace. 3 messages wait for 7 s there: the default policy has no such rung."""
        queue, ns = self.queue(), self.queue()
        self.ok("topology", "declare", queue, "--namespace", ns, "--work-queue", "quorum", "--steps", "7s", "--jitter", "none",
                "--max-retry-after", "0s", "--stripes", "2")
        rig("delete", f"{ns}.wait.7000.2")
        rig("declare", f"{ns}.wait.7000.2", "quorum")  # it has no time to live, so its messages stay
        rig("fill", f"{ns}.wait.7000.2", 3)
        self.await_ready(f"{ns}.wait.7000.2", at_least=3)
        return queue, ns

    def test_top_has_the_wait_queues_of_all_policies(self) -> None:
        queue, ns = self.with_other_policy()
        others = [f"x{ns}.wait.5000", *(f"{ns}.wait.{end}" for end in ("0", "05", "5000.1", "5000.100", "5000.2x", "99999999999", "5\x1b[2J"))]
        for name in others:
            rig("declare", name, "quorum")
        waiting = [each for each in self.ok("top", queue, "--namespace", ns, "--once", "--json", "-m", URL).objects if each["kind"] == "waiting"]
        self.assertEqual([(each["queue"], each["ready"], each["delay_ms"]) for each in waiting],
                         [(f"{ns}.wait.7000", 0, 7000), (f"{ns}.wait.7000.2", 3, 7000)])
        without = self.ok("top", queue, "--namespace", ns, "--once", "--json").objects
        self.assertNotIn("waiting", [each["kind"] for each in without])

    def test_top_goes_on_if_the_management_api_does_not_answer(self) -> None:
        queue, ns = self.with_other_policy()
        ran = self.ok("top", queue, "--namespace", ns, "--once", "-m", "http://127.0.0.1:1")
        self.assertIn("no answer from the management API", ran.stderr)
        self.assertIn(queue, ran.stdout)

    def test_the_exporter_has_the_wait_queues_of_all_policies(self) -> None:
        queue, ns = self.with_other_policy()
        for operands in ((), (queue,)):
            with exporter(*operands, "--namespace", ns, "-m", URL) as url:
                self.assertIn(f'backhop_waiting_messages{{delay="7",queue="{ns}.wait.7000.2"}} 3\n', scrape(url))

    def await_scrape(self, url: str, is_wanted: Callable[[str], bool]) -> None:
        until = time.monotonic() + LIMIT_S
        while not is_wanted(text := scrape(url)):
            self.assertLess(time.monotonic(), until, text)
            time.sleep(0.02)  # the management API remembers a list for a moment

    def test_what_goes_wrong_is_told_without_the_password(self) -> None:
        for code, url, said in (
            (NO_PERMISSION, URL.replace("guest:guest", "guest:hunter2"), "refuses this user"),
            (TRY_AGAIN, "http://guest:hunter2@127.0.0.1:1", "no answer"),
            (TRY_AGAIN, os.environ["AMQP_URL"].replace("amqp:", "http:").replace("guest:guest", "guest:hunter2"), "no answer"),
            (UNAVAILABLE, URL.replace("http:", "https:").replace("guest:guest", "guest:hunter2"), "no TLS"),
            (USAGE, "http://guest:hunter2@127.0.0.1:no", "no URL"),
            (USAGE, "guest:hunter2@127.0.0.1", "URL"),
        ):
            with self.subTest(url):
                stderr = self.ends(code, "parked", "list", "-m", url).stderr
                self.assertIn(said, stderr)
                self.assertNotIn("hunter2", stderr)

    def test_a_vhost_that_does_not_exist_is_named(self) -> None:
        uri = os.environ["AMQP_URL"].rstrip("/") + "/nowhere"
        for command in (("parked", "list"), ("top", "--once"), ("doctor",), ("exporter", "--listen", "127.0.0.1:0")):
            with self.subTest(command):
                ran = self.ends(UNAVAILABLE, *command, "-m", URL, "--uri", uri)
                self.assertIn('has no vhost "nowhere" (404): check the vhost', ran.stderr)
                self.assertEqual(ran.stderr.count("\n"), 1)

    @long
    def test_the_doctor_sees_bindings_arguments_and_policies(self) -> None:
        queue, ns = self.queue(), self.queue()
        options = (queue, "--namespace", ns, "--patience", "0s")
        rig("declare", queue, "quorum", "x-max-length=100", "x-overflow=reject-publish", "x-delivery-limit=1000000000")
        rig("declare", f"{ns}.wait.1000", "quorum", "x-message-ttl=1", "x-overflow=reject-publish")
        self.ends(UNAVAILABLE, "topology", "declare", queue, "--namespace", ns)
        rig("delete", f"{ns}.wait.1000")
        self.ok("topology", "declare", queue, "--namespace", ns)
        found = self.findings(*options)
        self.assertEqual(found, f'Queue "{queue}" was declared with x-overflow "reject-publish".\n')
        key = urllib.parse.quote(urllib.parse.quote(f"backhop:{queue}", ""), "")
        self.tell("DELETE", f"bindings/%2F/e/{ns}.return/q/{queue}/{key.replace('%25', '%')}")
        self.tell("PUT", f"policies/%2F/{ns}", {"pattern": f"^{ns}", "definition": {"expires": 3600000}, "apply-to": "queues"})
        self.tell("PUT", f"operator-policies/%2F/{ns}", {"pattern": f"^{queue}.parked", "definition": {"message-ttl": 3600000}})
        rig("delete", f"{ns}.wait.800")
        rig("declare", f"{ns}.wait.800", "quorum", "x-message-ttl=1", "x-overflow=reject-publish")
        wanted = (
            f'Queue "{queue}" is not bound to exchange "{ns}.return" with routing key "backhop:{queue}".',
            f'Policy "{ns}" sets expires 3600000 on wait queues, as "{ns}.wait.',
            f'Operator policy "{ns}" sets message-ttl 3600000 on queue "{queue}.parked".',
            f'Queue "{ns}.wait.800" has x-message-ttl 1, and needs 800.',
        )
        found = self.findings(*options)
        for each in wanted:
            self.assertIn(each, found)
        self.assertEqual(found.count("sets expires 3600000 on wait queues"), 1)

    def test_a_queue_of_another_policy_is_healthy_unless_all_wait_queues_are_gone(self) -> None:
        queue, ns = self.with_other_policy()
        options = ("doctor", queue, "--namespace", ns, "--patience", "0s", "-m", URL)
        self.assertEqual(len(drain(f"{ns}.wait.7000.2", 3)), 3)
        self.assertIn(f'note "{queue}" lacks wait queues of the default policy.', self.ok(*options).stdout)
        for name in (f"{ns}.wait.7000", f"{ns}.wait.7000.2"):
            rig("delete", name)
        self.await_wait_queues(ns, 0)
        self.assertIn(f'problem The topology of "{queue}" is not as it has to be.', self.ends(UNAVAILABLE, *options).stdout)

    def test_a_missing_return_exchange_is_a_problem_without_the_policy(self) -> None:
        queue, ns = self.with_other_policy()
        self.tell("DELETE", f"exchanges/%2F/{ns}.return")
        for more in ((), ("-m", URL)):
            text = self.ends(UNAVAILABLE, "doctor", queue, "--namespace", ns, "--patience", "0s", *more).stdout
            self.assertIn(f'missing: exchange "{ns}.return"; run', text)

    def await_wait_queues(self, ns: str, count: int) -> None:
        """Waits until the management API lists so many: its answers can be some seconds old."""
        until = time.monotonic() + LIMIT_S
        while len(self.get(f"queues/%2F?page=1&page_size=500&name={ns}.wait.&use_regex=false")["items"]) != count:
            self.assertLess(time.monotonic(), until)
            time.sleep(0.1)

    @long
    def test_o8_a_policy_that_was_just_set_is_seen(self) -> None:
        queue, ns = self.queue(), self.queue()
        options = (queue, "--namespace", ns, "--patience", "0s")
        self.ok("topology", "declare", queue, "--namespace", ns, "--work-queue", "quorum")
        self.findings_of_policies(options, ns, set())
        self.tell("PUT", f"policies/%2F/{ns}", {"pattern": f"^{ns}.wait.*", "definition": {"message-ttl": 20}, "apply-to": "queues"})
        self.addCleanup(self.tell, "DELETE", f"policies/%2F/{ns}")
        self.tell("PUT", f"operator-policies/%2F/{ns}", {"pattern": f"^{queue}", "definition": {"max-length": 9}, "apply-to": "queues"})
        self.addCleanup(self.tell, "DELETE", f"operator-policies/%2F/{ns}")
        wait = f'Policy "{ns}" sets message-ttl 20 on wait queues'
        work = f'Operator policy "{ns}" sets max-length 9 on queue "{queue}"'
        self.findings_of_policies(options, ns, {wait, work, work.replace(queue, f"{queue}.parked")})
        kind = "quorum_queues" if self.version >= (3, 13) else "queues"
        higher = {"pattern": f"^({ns}|x)", "definition": {"message-ttl": 40}, "apply-to": kind, "priority": 5}
        self.tell("PUT", f"policies/%2F/{ns}-b", higher)
        self.addCleanup(self.tell, "DELETE", f"policies/%2F/{ns}-b")
        self.findings_of_policies(options, ns, {f'Policy "{ns}-b" sets message-ttl 40 on wait queues', work,
                                                work.replace(queue, f"{queue}.parked"),
                                                f'Policy "{ns}-b" sets message-ttl 40 on queue "{ns}.unroutable"'})

    def test_w3_a_work_queue_that_is_a_stream_or_auto_delete_is_a_problem(self) -> None:
        kinds = {"is a stream": {"arguments": {"x-queue-type": "stream"}},
                 "is deleted with its last consumer (auto-delete)": {"auto_delete": True, "arguments": {"x-queue-type": "classic"}}}
        for told, kind in kinds.items():
            with self.subTest(told):
                queue, ns = self.queue(), self.queue()
                self.tell("PUT", f"queues/%2F/{queue}", {"durable": True, **kind})
                self.ok("topology", "declare", queue, "--namespace", ns)
                found = self.findings(queue, "--namespace", ns, "--patience", "0s")
                self.assertIn(f'Work queue "{queue}" {told}.', found)

    def test_w4_a_work_queue_with_priorities_is_noted_if_its_urgent_retries_delay_others(self) -> None:
        for priorities, waits, is_told in ((10, "quorum", (4, 0) <= self.version < (4, 3)), (4, "quorum", False), (10, "classic", False)):
            with self.subTest(priorities=priorities, waits=waits):
                queue, ns = self.queue(), self.queue()
                self.tell("PUT", f"queues/%2F/{queue}", {"durable": True, "arguments": {"x-queue-type": "classic", "x-max-priority": priorities}})
                options = (queue, "--namespace", ns, "--queue-type", waits)
                self.ok("topology", "declare", *options)
                found = run("doctor", "-m", URL, "--json", "--patience", "0s", *options).objects
                told = [each["severity"] for each in found if each["finding"] == f'Work queue "{queue}" has x-max-priority 10.']
                self.assertEqual(told, ["note"] if is_told else [])

    def test_o4_3_a_limit_of_queues_that_wait_queues_reach_is_found(self) -> None:
        queue, ns = self.queue(), self.queue()
        self.ok("topology", "declare", queue, "--namespace", ns, "--work-queue", "quorum")
        options = ("doctor", queue, "--namespace", ns, "--patience", "0s", "-m", URL, "--json")
        self.addCleanup(self.tell, "DELETE", "vhost-limits/%2F/max-queues")
        for limit, severity in ((1, "problem"), (self.get("queues/%2F?page=1&page_size=1")["total_count"] + 1, "note"), (100000, None)):
            with self.subTest(limit):
                self.tell("PUT", "vhost-limits/%2F/max-queues", {"value": limit})
                found = [each for each in run(*options).objects if "max-queues" in each["finding"]]
                self.assertEqual([each["severity"] for each in found], [severity] if severity else [])
                for each in found:
                    self.assertRegex(each["finding"], rf"^The vhost has \d+ queues of at most {limit} \(max-queues\); \d+ wait queues are not made yet\.$")

    def test_w5_a_limit_of_queues_is_no_clash(self) -> None:
        queue, ns = self.queue(), self.queue()
        rig("declare", queue, "quorum")
        self.addCleanup(self.tell, "DELETE", "vhost-limits/%2F/max-queues")
        self.tell("PUT", "vhost-limits/%2F/max-queues", {"value": 1})
        told = self.ends(UNAVAILABLE, "topology", "declare", queue, "--namespace", ns).stderr
        self.assertIn("queue limit in vhost '/' (1) is reached); raise that limit", told)
        self.assertNotIn("other arguments", told)

    def test_o4_3_messages_that_a_wait_queue_of_another_policy_keeps_are_a_problem(self) -> None:
        queue, ns = self.with_other_policy()
        found = self.findings(queue, "--namespace", ns, "--patience", "0s")
        self.assertIn(f'Wait queue "{ns}.wait.7000.2" keeps 3 messages.\n', found)

    def test_o4_3_a_work_queue_that_dead_letters_to_the_return_exchange_is_a_problem(self) -> None:
        queue, ns = self.queue(), self.queue()
        rig("declare", queue, "classic", f"x-dead-letter-exchange={ns}.return")
        self.ok("topology", "declare", queue, "--namespace", ns)
        self.assertIn(f'Work queue "{queue}" dead-letters to exchange "{ns}.return".\n', self.findings(queue, "--namespace", ns, "--patience", "0s"))

    @long
    def test_f4_0_a_policy_that_makes_dead_letters_at_most_once_is_a_problem(self) -> None:
        queue, ns = self.queue(), self.queue()
        options = (queue, "--namespace", ns, "--patience", "0s")
        self.ok("topology", "declare", queue, "--namespace", ns, "--work-queue", "quorum")
        for kind, name in (("policies", "Policy"), ("operator-policies", "Operator policy")):
            for overflow, wanted in (("drop-head", {f'{name} "{ns}" sets overflow "drop-head" on wait queues'}), ("reject-publish", set())):
                with self.subTest(name, overflow=overflow):
                    path = f"{kind}/%2F/{ns}"
                    policy = {"pattern": f"^{ns}", "definition": {"overflow": overflow}, "apply-to": "queues"}
                    try:
                        self.tell("PUT", path, policy)
                    except urllib.error.HTTPError as refused:
                        self.assertEqual((kind, refused.code), ("operator-policies", 400))  # Old versions refuse it.
                        refused.close()
                        continue
                    self.findings_of_policies(options, ns, wanted)
                    self.tell("DELETE", path)
        classic = (self.queue(), "--namespace", f"{ns}c", "--queue-type", "classic")
        self.ok("topology", "declare", *classic, "--work-queue", "classic")
        self.tell("PUT", f"policies/%2F/{ns}", {"pattern": f"^{ns}c", "definition": {"overflow": "drop-head"}, "apply-to": "queues"})
        self.addCleanup(self.tell, "DELETE", f"policies/%2F/{ns}")
        self.findings_of_policies((*classic, "--patience", "0s"), ns, set())

    def test_o4_1_rejected_messages_that_no_relay_reads_are_a_problem(self) -> None:
        queue, ns = self.queue(), self.queue()
        options = (queue, "--namespace", ns, "--patience", "0s", "-m", URL, "--json")
        self.ok("topology", "declare", queue, "--namespace", ns, "--work-queue", "quorum")
        self.tell("PUT", f"queues/%2F/{ns}.rejected", {"durable": True})
        self.addCleanup(self.tell, "DELETE", f"queues/%2F/{ns}.rejected")
        self.assertFalse([each for each in run("doctor", *options).objects if "relay" in each["finding"]])
        message = {"properties": {}, "routing_key": f"{ns}.rejected", "payload": "x", "payload_encoding": "string"}
        self.tell("POST", "exchanges/%2F/amq.default/publish", message)
        wanted = f'1 message in queue "{ns}.rejected", which no relay reads.'
        end = time.monotonic() + LIMIT_S  # the API counts every five seconds
        while wanted not in (found := [each["finding"] for each in run("doctor", *options).objects]):
            self.assertLess(time.monotonic(), end, found)

    def test_o4_2_what_gets_copies_of_retries_is_a_problem(self) -> None:
        queue, other, ns, stranger = (self.queue() for _ in range(4))
        for each in (queue, other):
            self.ok("topology", "declare", each, "--namespace", ns, "--work-queue", "quorum")
        self.tell("PUT", f"queues/%2F/{stranger}", {"durable": True})
        self.addCleanup(self.tell, "DELETE", f"queues/%2F/{stranger}")
        options = ("--namespace", ns, "--patience", "0s", "-m", URL, "--json")
        wait = next(each["name"] for each in self.get("exchanges/%2F") if each["name"].startswith(f"{ns}.wait."))
        self.assertFalse([each for each in run("doctor", queue, other, *options).objects if "is bound to" in each["finding"]])
        wanted = set()
        for exchange, key in ((f"{ns}.return", f"backhop:{queue}"), (wait, "#"), (f"{ns}.return", "of nobody")):
            self.tell("POST", f"bindings/%2F/e/{exchange}/q/{stranger}", {"routing_key": key})
            if key != "of nobody":
                wanted.add(f'Queue "{stranger}" is bound to exchange "{exchange}" with routing key "{key}".')
        found = {each["finding"] for each in run("doctor", queue, other, *options).objects if "is bound to" in each["finding"]}
        self.assertEqual(found, wanted)

    def test_w2_a_federation_of_the_exchanges_is_a_problem(self) -> None:
        queue, ns = self.queue(), self.queue()
        options = (queue, "--namespace", ns, "--patience", "0s")
        self.ok("topology", "declare", queue, "--namespace", ns, "--work-queue", "quorum")

        def edit(path: str, answer: Any) -> Any:
            if path.startswith("policies/"):
                return [*answer, {"name": "all", "pattern": ".*", "apply-to": "exchanges", "definition": {"federation-upstream-set": "all"}}]
            if path.startswith("exchanges/") and isinstance(answer, dict):
                answer["policy"] = "all"
            return answer

        with self.edited(edit) as url:
            found = [each["finding"] for each in run("doctor", *options, "-m", url, "--json").objects if "federates" in each["finding"]]
        self.assertEqual(len(found), 1)
        self.assertRegex(found[0], rf'^Policy "all" federates exchange "{ns}\.')

    def findings_of_policies(self, options: tuple[str, ...], ns: str, wanted: set[str]) -> None:
        found = run("doctor", "-m", URL, "--json", *options).objects
        self.assertEqual({each["finding"].split(", as ")[0].rstrip(".") for each in found if "olicy" in each["finding"]}, wanted)

    @long
    def test_o26_a_queue_with_too_few_members_is_a_problem(self) -> None:
        queue, ns = self.queue(), self.queue()
        self.ok("topology", "declare", queue, "--namespace", ns, "--work-queue", "quorum")

        def edit(path: str, answer: Any) -> Any:
            if path == "nodes":
                return [{**answer[0], "name": f"rabbit@{number}"} for number in range(3)]
            if path.startswith("queues/") and "wait" not in path:
                answer["members"] = ["rabbit@0", "rabbit@1", "rabbit@2"]
            return answer

        with self.edited(edit) as url:
            found = run("doctor", queue, "--namespace", ns, "--patience", "0s", "-m", url, "--json").objects
        few = [each for each in found if "members" in each["finding"]]
        self.assertEqual(len(few), 1)
        self.assertRegex(few[0]["finding"], rf'^Queue "{ns}.wait.\d+" has 1 of 3 members that this cluster of 3 nodes can have.$')

    @long
    def test_o28_a_policy_that_mirrors_queues_is_a_note(self) -> None:
        queue, ns = self.queue(), self.queue()
        options = (queue, "--namespace", ns, "--work-queue", "classic", "--queue-type", "classic")
        self.ok("topology", "declare", *options)

        def edit(path: str, answer: Any) -> Any:
            mirrors = {"name": ns, "pattern": ".*", "apply-to": "all", "priority": 0, "definition": {"ha-mode": "all"}}
            return [mirrors] if path.startswith("policies/") else answer

        with self.edited(edit) as url:
            found = self.ok("doctor", *options, "--patience", "0s", "-m", url).stdout
        self.assertIn(f'note Policy "{ns}" mirrors classic queue "{queue}".', found)
        self.assertEqual(found.count('mirrors classic queue "' + ns + ".wait"), 1)

    @long
    def test_o23_the_relay_names_queues_whose_rejected_messages_are_lost(self) -> None:
        ns = self.queue()
        lost, other, served = f"{ns}.a", f"{ns}.b", f"{ns}.c"
        options = ("--namespace", ns, "-q", f"{ns}.*")
        rig("declare", lost, "quorum", "x-delivery-limit=1000000000")
        rig("declare", other, "quorum", "x-delivery-limit=1000000000", "x-dead-letter-exchange=elsewhere")
        rig("declare", served, "classic")
        environment = {**os.environ, "BACKHOP_MANAGEMENT_URL": ""}
        with subprocess.Popen([BUILD / "backhop", "relay", *options, "-m", URL], stderr=subprocess.PIPE, text=True, env=environment) as relay:
            warned = [relay.stderr.readline() for _ in range(4)]  # the last one: it is connected
            relay.terminate()
            relay.communicate(timeout=LIMIT_S)
        told = self.ends(UNAVAILABLE, "relay", *options, "--check", "-m", URL).stderr
        for text in ("".join(warned), told):
            self.assertIn(f'queue "{lost}" has no dead letter exchange: RabbitMQ drops what its consumers reject', text)
            self.assertIn(f'queue "{other}" dead-letters to exchange "elsewhere"', text)
            self.assertIn(f'queue "{served}" has no dead letter exchange', text)
        rig("delete", other)
        for line in self.ok("relay", *options, "--print-policy").stdout.splitlines():
            if line.startswith("rabbitmqctl"):
                words = shlex.split(line)
                broker_ctl(*words)
                self.addCleanup(self.tell, "DELETE", f"policies/%2F/{words[words.index('--priority') + 2]}")
        self.assertIn("have their policies", self.ok("relay", *options, "--check", "-m", URL).stdout)
        found = run("doctor", served, "--namespace", ns, "--patience", "0s", "-m", URL).stdout
        self.assertNotIn("olicy", re.sub("  What to do: .*", "", found))

    def assert_finds(self, wanted: str, *options: object) -> None:
        self.assertIn(wanted, run("doctor", "-m", URL, *options).stdout.splitlines())

    def test_o3_policies_by_which_the_work_queue_loses_messages_are_problems(self) -> None:
        queue = self.queue()
        rig("declare", queue, "quorum", "x-delivery-limit=1000000000")
        self.ok("topology", "declare", queue)
        policies = (("problem", "max-length", 5), ("problem", "delivery-limit", 3), ("note", "delivery-limit", 1000), ("problem", "message-ttl", 5000))
        for severity, key, value in policies:
            with self.subTest(key, value=value):
                self.tell("PUT", f"policies/%2F/{queue}", {"pattern": f"^{queue}$", "definition": {key: value}, "apply-to": "queues"})
                self.assert_finds(f'{severity} Policy "{queue}" sets {key} {value} on queue "{queue}".', queue, "--patience", "0s")

    def test_p4_7_a_policy_is_named_in_place_of_the_usual_delivery_limit(self) -> None:
        queue = self.queue()
        rig("declare", queue, "quorum")
        self.ok("topology", "declare", queue)
        policy = {"pattern": f"^{queue}$", "definition": {"delivery-limit": 1000}, "apply-to": "queues"}
        if self.version >= (4, 0):
            found = run("doctor", "-m", URL, queue, "--patience", "0s").stdout
            self.assertIn(f'problem Work queue "{queue}" has RabbitMQ\'s delivery limit.', found)
            self.assertNotIn("AMQP does not show", found)
        self.tell("PUT", f"policies/%2F/{queue}", policy)
        self.assertNotIn("problem ", self.ok("doctor", "-m", URL, queue, "--patience", "0s").stdout)

    def test_o22_the_policy_that_a_relay_prints_is_no_problem(self) -> None:
        queue = self.queue()
        rig("declare", queue, "quorum", "x-delivery-limit=1000000000")
        self.ok("topology", "declare", queue)
        definition = {"dead-letter-exchange": "backhop.rejected", "dead-letter-strategy": "at-least-once", "overflow": "reject-publish",
                      "message-ttl": 3600000}
        self.tell("PUT", f"policies/%2F/{queue}", {"pattern": f"^{queue}$", "definition": definition, "apply-to": "queues"})
        self.assertNotIn("problem ", self.ok("doctor", queue, "--patience", "0s", "-m", URL).stdout)


@managed
class Permissions(Managed):
    """A worker retries and parks with the permissions that `topology permissions` prints, and with no others."""

    STRATEGIES = (("ladder", 0), ("message-ttl", 1), ("reject", 2), ("native", 4))
    MODES = (("create", 0), ("verify", 1), ("none", 2))

    @long
    def test_a_worker_runs_with_the_least_permissions(self) -> None:
        user = self.queue().replace(".", "-")
        self.tell("PUT", f"users/{user}", {"password": "pw", "tags": ""})
        self.addCleanup(self.tell, "DELETE", f"users/{user}")
        uri = os.environ["AMQP_URL"].replace("guest:guest", f"{user}:pw")
        for strategy, number in self.STRATEGIES:
            if strategy == "native" and self.version < (4, 3):
                continue
            for mode, mode_number in self.MODES:
                with self.subTest(strategy=strategy, mode=mode):
                    queue = self.queue()
                    options = [queue, "--strategy", strategy, "--work-queue", "quorum", "--initial", "100ms", "--jitter", "none",
                               "--max-attempts", "2", *(("--kind", "fixed") if number else ())]
                    if mode != "create":
                        options += ["--max-retry-after", "0s"]
                        self.ok("topology", "declare", *options)
                    granted = self.ok("topology", "permissions", *options, "--mode", mode, "--json").objects[0]
                    self.tell("PUT", f"permissions/%2F/{user}", granted)
                    self.run_worker(uri, queue, number, mode_number)
                    self.await_ready(f"{queue}.parked", at_least=2)

    def test_a_queue_that_the_user_may_not_read_is_not_missing(self) -> None:
        if self.version < (4, 3):
            self.skipTest("this version of RabbitMQ lets every user look at a queue")
        queue, ns = self.queue(), self.queue()
        user = queue.replace(".", "-")
        self.ok("topology", "declare", queue, "--namespace", ns, "--work-queue", "quorum")
        self.tell("PUT", f"users/{user}", {"password": "pw", "tags": ""})
        self.addCleanup(self.tell, "DELETE", f"users/{user}")
        self.tell("PUT", f"permissions/%2F/{user}", {"configure": "^$", "write": "^$", "read": rf"^{ns}\..*|^{queue}\.parked$"})
        uri = os.environ["AMQP_URL"].replace("guest:guest", f"{user}:pw")
        options = (queue, "--namespace", ns, "--uri", uri)
        text = self.ok("top", *options, "--once").stdout
        self.assertRegex(text, rf"\nwork +{queue} +no access\b")
        self.assertIn("\nAccess to 1 queue is refused: this user needs the permission to read it\n", text)
        found = {each["queue"]: each for each in self.ok("top", *options, "--once", "--json").objects}
        self.assertEqual((found[queue]["ready"], found[queue]["refused"]), (None, True))
        self.assertNotIn("refused", found[f"{queue}.parked"])
        with Terminal("top", *options, "--interval", "100ms", columns=100, lines=12) as terminal:
            terminal.expect("Access to 1 queue is refused")
            terminal.expect("q or Ctrl-C ends it")
        for screen in terminal.seen.split("\x1b[H")[1:]:
            self.assertLessEqual(len(screen.split("\r\n")), 12)
        text = self.ends(UNAVAILABLE, "doctor", *options, "--patience", "0s").stdout
        self.assertIn(f'problem The topology of "{queue}" cannot be checked: access is refused.', text)
        self.assertIn(f"access to queue '{queue}' in vhost '/' refused for user '{user}'", text)
        self.assertIn("What to do: grant this user the permission to read", text)
        self.tell("PUT", f"permissions/%2F/{user}", {"configure": "^$", "write": "^$", "read": rf"^{queue}"})
        text = self.ok("top", *options, "--once").stdout
        self.assertNotIn("waiting", text)
        self.assertRegex(text, r"\nAccess to \d\d queues is refused: this user needs the permission to read them\n$")

    def run_worker(self, uri: str, queue: str, strategy: int, mode: int) -> None:
        environment = {**os.environ, "AMQP_URL": uri, "RIG_STRATEGY": str(strategy), "RIG_MODE": str(mode)}
        if mode == 0:
            handler = subprocess.Popen([rig.program, "handle", queue, "2", "fail", "-slow"], env=environment)
            self.await_queue(queue)
        rig("fill", queue, 2)
        if mode:
            handler = subprocess.Popen([rig.program, "handle", queue, "2", "fail", "-slow"], env=environment)
        with handler:
            self.assertEqual(handler.wait(LIMIT_S), 0)

    def await_queue(self, queue: str) -> None:
        until = time.monotonic() + LIMIT_S
        while True:
            try:
                rig("depth", queue)
                return
            except AssertionError:
                self.assertLess(time.monotonic(), until)
                time.sleep(0.02)
