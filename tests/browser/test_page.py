"""The page of `backhop web` in a browser, on a broker."""

import http.server
import json
import os
import queue as queues
import re
import subprocess
import tempfile
import threading
import time
import unittest

from browser import SCREENS, Browser, chromium
from harness import LIMIT_S, LiveCase, broker_ctl, drain, rig
from webclient import Web

HOSTILE = '"><img src=x onerror=alert(1)><script>alert(2)</script>'


class PageCase(LiveCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.chromium = cls.enterClassContext(chromium())

    def web(self, *arguments: object) -> Web:
        page = Web(*arguments)
        self.addCleanup(page.__exit__, None, None, None)
        return page

    def browser(self, web: Web, **more: object) -> Browser:
        browser = Browser(self.chromium, web, **more)
        self.addCleanup(browser.__exit__, None, None, None)
        return browser

    def open(self, *arguments: object, **more: object) -> Browser:
        browser = self.browser(self.web(*arguments), **more)
        browser.open()
        return browser


class Operator(PageCase):
    def test_from_the_first_screen_to_a_replay_that_is_done(self):
        queue, other = self.parked(6, "507 queue %d is full", "bad"), self.parked(2, "507 queue %d is full")
        begun = time.monotonic()
        browser = self.open("--allow", "replay,drop", queue, other)
        page = browser.page
        self.assertLess(time.monotonic() - begun, 15)
        self.assertNotIn("token", page.url)
        browser.look()
        self.assertEqual(page.locator("tbody tr").count(), 2)
        page.get_by_role("link", name="# queue # is full").click()
        page.get_by_text("Up to 1 parked a minute in the last 12 h").last.wait_for()
        self.assertNotIn("false", page.locator("main").inner_text())
        row = page.locator("tbody tr", has_text=queue)
        row.get_by_role("button", name="Show messages").click()
        page.locator("summary").first.click()
        page.get_by_text("It was parked because").first.wait_for()
        page.get_by_role("button", name="Show the body").first.click()
        row.get_by_role("button", name="Replay…").click()
        page.get_by_role("button", name="Count messages").click()
        page.get_by_text(re.compile(r"^3 of 6 messages in .* will go to")).wait_for()
        go = page.get_by_role("button", name="Replay 3 messages")
        self.assertTrue(go.is_disabled())
        page.get_by_label("Type 3 to confirm").fill("4")
        self.assertTrue(go.is_disabled())
        page.get_by_label("Type 3 to confirm").fill("3")
        go.click()
        page.get_by_text("is done").wait_for()
        page.get_by_text(re.compile(r"^3 of 3 messages replayed")).wait_for()
        self.assertEqual(len(drain(queue, 3)), 3)
        browser.go("history")
        page.get_by_text("3 of 3").wait_for()
        self.assertEqual(browser.errors, [])

    def test_consumers_are_seen_before_a_replay_and_old_groups_after_it(self):
        queue = self.parked(3, "507 queue %d is full")
        browser = self.open("--allow", "replay", queue)
        page = browser.page
        page.locator(".facts", has_text="Queues without consumers").get_by_text(queue).wait_for()
        browser.look()
        page.locator("tbody tr", has_text="no consumer").wait_for()
        page.get_by_text("# stands for any number.").wait_for()
        page.get_by_role("link", name="# queue # is full").click()
        page.get_by_text("its handler allowed no further attempt").wait_for()
        page.locator("td[data-name^=Consumers]", has_text="none").wait_for()
        browser.count("Replay…")
        page.get_by_text(f"{queue} has no consumer: the messages will wait there until one is started.").wait_for()
        with subprocess.Popen([rig.program, "handle", queue, "3", "ok"]) as handler:
            page.locator("td[data-name^=Consumers]", has_text="1").wait_for()
            page.get_by_role("button", name="Count messages").click()
            page.get_by_text(f"{queue} has a consumer.").wait_for()
            page.get_by_label("Ramp, messages a second").select_option("")
            page.get_by_role("button", name="Count messages").click()
            page.get_by_label("Type 3 to confirm").fill("3")
            page.keyboard.press("Enter")
            page.get_by_text("is done").wait_for()
            self.assertEqual(handler.wait(LIMIT_S), 0)
        browser.go("")
        page.get_by_text("An action ended after these messages were read.").wait_for()
        page.get_by_role("button", name="Read again").click()
        page.get_by_text("No parked message was found.").wait_for()
        self.assertEqual(page.get_by_text("An action ended after these messages were read.").count(), 0)
        self.assertEqual(browser.errors, [])

    def test_a_replay_whose_messages_are_parked_again_says_what_to_do_first(self):
        queue = self.parked(20, "bad")
        browser = self.open("--allow", "replay", queue)
        page = browser.page
        browser.look()
        page.get_by_role("link", name="bad").click()
        browser.count("Replay…")
        page.get_by_label("Type 20 to confirm").fill("20")
        with subprocess.Popen([rig.program, "handle", queue, "3", "fail"]) as handler:
            page.keyboard.press("Enter")
            page.get_by_text("First look why").wait_for()
            self.assertEqual(handler.wait(LIMIT_S), 0)
        page.get_by_role("button", name="Go on with the rest…").wait_for()
        self.assertEqual(browser.errors, [])

    def test_a_moved_count_is_refused_and_said(self):
        queue = self.parked(2, "bad")
        browser = self.open("--allow", "drop", queue)
        page = browser.page
        browser.look()
        page.get_by_role("link", name="bad").click()
        browser.count("Drop…")
        page.get_by_label("Type 2 to confirm").fill("2")
        rig("park", queue, 1, "bad")
        page.get_by_role("button", name="Drop 2 messages").click()
        page.get_by_text("3 messages are selected now, and not 2").wait_for()
        self.assertEqual(len(self.saved(queue)), 3)

    def test_a_running_replay_is_stopped_and_goes_on(self):
        queue = self.parked(30, "bad")
        browser = self.open("--allow", "replay", queue)
        page = browser.page
        browser.look()
        page.get_by_role("link", name="bad").click()
        page.get_by_role("button", name="Replay…").click()
        page.get_by_label("Time at each rate of the ramp").fill("5s")
        page.get_by_role("button", name="Count messages").click()
        page.get_by_label("Type 30 to confirm").fill("30")
        page.keyboard.press("Enter")
        page.get_by_text(re.compile(r"^[1-9]\d* of 30 messages, . a second now")).wait_for()
        browser.go("")
        page.get_by_text("An action is running").wait_for()
        browser.go("history")
        page.get_by_role("link", name="is running").click()
        page.get_by_role("button", name="Stop").click()
        page.get_by_text("was stopped by you").wait_for()
        page.get_by_role("button", name="Go on with the rest…").click()
        page.get_by_label("Ramp, messages a second").select_option("")
        page.get_by_role("button", name="Count messages").click()
        box = page.get_by_label(re.compile(r"^Type \d+ to confirm"))
        box.fill(re.search(r"\d+", page.locator("form label").inner_text()).group())
        page.keyboard.press("Enter")
        page.get_by_text("is done").wait_for()
        self.assertEqual(len(drain(queue, 30)), 30)

    def test_a_group_is_replayed_from_all_its_queues_and_all_are_stopped(self):
        one, other = self.parked(30, "507 queue %d is full", "bad"), self.parked(40, "507 queue %d is full")
        browser = self.open("--allow", "replay,drop", one, other)
        page = browser.page
        browser.look()
        page.get_by_role("link", name="# queue # is full").click()
        page.get_by_role("button", name="Drop from all 2 queues…").wait_for()
        page.get_by_role("button", name="Replay from all 2 queues…").click()
        page.get_by_label("Time at each rate of the ramp").fill("60s")
        page.get_by_role("button", name="Count messages").click()
        page.get_by_text(f"15 of 30 messages in {one}.parked will go to {one}.").wait_for()
        page.get_by_text(f"40 of 40 messages in {other}.parked will go to {other}.").wait_for()
        page.get_by_label("Type 55 to confirm").fill("55")
        page.get_by_role("button", name="Replay 55 messages").click()
        page.get_by_text(re.compile(r"^[1-9]\d* of 15 messages, . a second now")).wait_for()
        page.get_by_text(re.compile(r"^[1-9]\d* of 40 messages, . a second now")).wait_for()
        page.locator("#status", has_text="some held").wait_for()
        page.get_by_role("button", name="Stop all 2 actions").click()
        page.get_by_text("was stopped by you").nth(1).wait_for()
        self.assertEqual(page.get_by_role("button", name="Stop all").count(), 0)
        self.assertEqual(browser.errors, [])

    def test_a_queue_of_a_group_that_changed_stops_no_other(self):
        one, other = self.parked(2, "bad"), self.parked(3, "bad")
        browser = self.open("--allow", "drop", one, other)
        page = browser.page
        browser.look()
        page.get_by_role("link", name="bad").click()
        browser.count("Drop from all 2 queues…")
        page.get_by_label("Type 5 to confirm").fill("5")
        last = page.locator("dialog p", has_text="will be saved").last.inner_text()
        rig("park", other if other in last else one, 1, "bad")
        page.get_by_role("button", name="Drop 5 messages").click()
        page.get_by_text("messages are selected now").wait_for()
        page.get_by_text("saved and dropped").wait_for()

    def test_one_message_is_replayed_from_its_own_row(self):
        queue = self.parked(3, "bad")
        browser = self.open("--allow", "replay,drop", queue)
        page = browser.page
        browser.look()
        page.get_by_role("link", name="bad").click()
        page.get_by_role("button", name="Show messages").click()
        page.locator("summary", has_text="m000001").click()
        page.get_by_role("button", name="Drop it…").wait_for()
        page.get_by_role("button", name="Replay it…").click()
        page.get_by_role("button", name="Count messages").click()
        page.get_by_text(re.compile(f"^1 of 3 messages in {queue}.parked will go to {queue}")).wait_for()
        page.get_by_label("Type 1 to confirm").fill("1")
        page.keyboard.press("Enter")
        page.get_by_text("is done").wait_for()
        self.assertEqual([line.split("\t")[0] for line in drain(queue, 1)], ["m000001"])
        self.assertEqual(browser.errors, [])

    def test_a_saved_file_is_loaded_once_its_count_is_typed(self):
        queue = self.parked(3, "bad")
        browser = self.open("--allow", "replay,drop", queue)
        page = browser.page
        browser.look()
        page.get_by_role("link", name="bad").click()
        browser.count("Drop…")
        page.get_by_label("Type 3 to confirm").fill("3")
        page.keyboard.press("Enter")
        page.get_by_text("3 messages saved and dropped").wait_for()
        browser.go("history")
        browser.count("Load…")
        page.get_by_text(f"3 messages will go to {queue}.parked.").wait_for()
        self.assertTrue(page.get_by_role("button", name="Load 3 messages").is_disabled())
        page.get_by_label("Type 3 to confirm").fill("3")
        page.keyboard.press("Enter")
        page.get_by_text("3 messages loaded.", exact=True).wait_for()
        self.assertEqual(len(self.saved(queue)), 3)
        browser.go("history")
        browser.count("Load…")
        page.get_by_text("No message of this file remains to be loaded.").wait_for()
        self.assertEqual(browser.errors, [])

    def test_a_look_at_a_part_is_said_and_all_are_a_click_away(self):
        queue = self.parked(1, "bad")
        rig("fill", queue + ".parked", 20500)
        self.await_ready(queue + ".parked", 20501)
        browser = self.open("--allow", "replay", queue)
        page = browser.page
        browser.look()
        page.get_by_text(f"20,000 of 20,501 in {queue}.parked").wait_for()
        page.get_by_text("≥ 19,999").wait_for()
        page.get_by_role("button", name="Read all").click()
        page.get_by_text("20,500", exact=True).wait_for()
        self.assertEqual(page.get_by_text("≥").count(), 0)

    def test_a_reading_is_stopped_and_the_page_says_that_it_is_a_part(self):
        queue = self.parked(1, "bad")
        rig("fill", queue + ".parked", 70000)
        self.await_ready(queue + ".parked", 70001)
        way = self.gate(deliveries=10**9)
        browser = self.open("--uri", way.url, queue)
        page = browser.page
        page.get_by_text(f"70,001 messages in {queue}.parked").wait_for()
        browser.look()
        way.allowed = way.passed + 25000
        page.get_by_role("button", name="Read all").click()
        with way.trickling():  # the reading goes on, and has no end before it is stopped
            page.get_by_text("0 of 1 queue read to the end").wait_for()
            page.get_by_role("button", name="Stop reading").click()
        page.get_by_text("The reading was stopped. These groups are a part").wait_for()
        page.get_by_text(re.compile("^≥ ")).first.wait_for()
        page.get_by_role("button", name="Read all").wait_for()
        self.assertEqual(browser.errors, [])

    def test_after_a_kill_a_replay_goes_on_and_a_killed_one_is_a_click_away(self):
        queue = self.parked(300, "bad")
        with tempfile.TemporaryDirectory() as state:
            web = Web("--allow", "replay", queue, state=state).log_in()
            self.addCleanup(web.__exit__, None, None, None)
            web.await_replayed(web.post("/api/replay", {"queue": queue, "expect": 300, "rate": 20}).json["job"], 5)
            web.kill()
            second = Web("--allow", "replay", queue, state=state)
            self.addCleanup(second.__exit__, None, None, None)
            browser = self.browser(second)
            browser.open()
            browser.go("jobs")
            browser.page.get_by_text("This action went on after a restart of backhop web").wait_for()
            second.log_in().await_replayed(1, 5)
            second.kill("replay")
            third = Web("--allow", "replay", queue, state=state)
            self.addCleanup(third.__exit__, None, None, None)
            browser = self.browser(third)
            page = browser.open()
            browser.go("jobs")
            page.get_by_text("was interrupted").wait_for()
            page.get_by_role("button", name="Go on with the rest…").click()
            page.get_by_label("Ramp, messages a second").select_option("")
            page.get_by_label("Messages a second after the ramp").fill("0")
            page.get_by_role("button", name="Count messages").click()
            box = page.get_by_label(re.compile(r"^Type \d+ to confirm"))
            box.fill(re.search(r"\d+", page.locator("form label").inner_text()).group())
            page.keyboard.press("Enter")
            page.get_by_text("is done").wait_for()
            self.assertEqual(len({line.split("\t")[0] for line in drain(queue, 300)}), 300)

    def test_the_keyboard_does_all(self):
        queue = self.parked(2, "bad")
        page = self.open("--allow", "replay", queue).page
        for name, done in (("Read parked messages", "tbody a"), ("bad", "tbody button"), ("Replay…", "dialog[open]"), ("Count messages", "form input")):
            for _ in range(40):
                page.keyboard.press("Tab")
                if page.evaluate("document.activeElement.textContent") == name:
                    break
            else:
                self.fail(f"no Tab reaches {name}")
            page.keyboard.press("Enter")
            page.wait_for_selector(done)
        page.keyboard.type("2")
        page.keyboard.press("Enter")
        page.get_by_text("is done").wait_for()

    def test_p4_5_errors_with_words_that_change_hide_no_others(self):
        words = [f"{one}{other}" for one in "abcdef" for other in "ghijkl"]
        messages = self.parked(36, *(f"AddressError: no such place: {each}" for each in words))
        other = self.parked(3, "507 queue %d is full")
        browser = self.open("--allow", "replay", messages, other)
        page = browser.page
        browser.look()
        page.get_by_text("39 messages in 37 groups").wait_for()
        page.get_by_text("without those that are held now").wait_for()
        page.get_by_text("without those that are held now").wait_for(state="detached")
        page.get_by_role("link", name="# queue # is full").wait_for()
        rows = page.locator("tbody tr")
        self.assertEqual(rows.count(), 4)
        page.get_by_role("button", name="Show 34 more groups").click()
        self.assertEqual(rows.count(), 37)
        page.get_by_role("link", name="AddressError: no such place: cj").click()
        page.get_by_text(re.compile("^1 message, reason")).wait_for()
        page.get_by_role("link", name="All of AddressError").click()
        page.get_by_text(re.compile("^36 messages, reason")).wait_for()
        self.assertEqual(page.get_by_role("link", name="All of AddressError").count(), 0)
        page.reload()
        page.get_by_role("link", name="All groups").click()
        page.get_by_role("link", name="All of AddressError").click()
        page.get_by_text(re.compile("^36 messages, reason")).wait_for()
        browser.count("Replay…")
        page.get_by_text(f"36 of 36 messages in {messages}.parked will go to {messages}.").wait_for()
        page.get_by_label("Type 36 to confirm").fill("36")
        self.assertTrue(page.get_by_role("button", name="Replay 36 messages").is_enabled())
        self.assertEqual(browser.errors, [])

    def test_p4_5_errors_beyond_the_limit_are_selected_by_their_class(self):
        queue = self.queue()
        rig("declare", queue + ".parked", "quorum", "x-delivery-limit=1000000000", "x-overflow=reject-publish")
        words = [f"{chr(97 + i // 26)}{chr(97 + i % 26)}z" for i in range(230)]
        lines = [{"queue": f"{queue}.parked", "headers": [["backhop-error", "S", f"AddressError: no {word}"]], "body": "eA=="} for word in words]
        self.ok("parked", "load", "-", stdin="".join(json.dumps(each) + "\n" for each in lines))
        browser = self.open("--allow", "replay", queue)
        page = browser.page
        browser.look()
        row = page.locator("tbody tr").filter(has_text="All of AddressError")
        row.get_by_text("228", exact=True).wait_for()  # of 230, without the two groups that have rows of their own
        page.get_by_role("button", name="more groups").click()
        rest = page.locator("tbody tr").filter(has_text="(other errors)")
        rest.get_by_text("30", exact=True).wait_for()
        rest.get_by_role("link", name="All of AddressError").click()
        page.get_by_text(re.compile("^230 messages, reason")).wait_for()
        self.assertEqual(browser.errors, [])

    def test_p4_14_a_button_keeps_the_focus_and_a_wrong_number_is_named(self):
        messages = self.parked(12, "bad")
        browser = self.open("--allow", "replay", messages)
        page = browser.page

        def press(name: str, seen: str) -> None:
            page.get_by_role("button", name=name).focus()
            page.keyboard.press("Enter")
            page.wait_for_selector(seen)
            page.locator("button:focus", has_text=name).wait_for()

        page.get_by_role("button", name="Read parked messages").focus()
        page.keyboard.press("Enter")
        page.locator("button:focus", has_text="Read again").wait_for()
        page.locator("tbody a").click()
        press("Show messages", "summary")
        browser.count("Replay…")
        for typed, is_wrong in (("2", True), ("12", False), ("1", False), ("13", True), ("", False), ("1,2", False)):
            page.get_by_label("Type 12 to confirm").fill(typed)
            self.assertEqual(page.get_by_text("The number is 12.").count(), int(is_wrong), typed)
        self.assertTrue(page.get_by_role("button", name="Replay 12 messages").is_enabled())

    def test_without_allow_it_shows_no_actions(self):
        browser = self.open(self.parked(1, "bad"))
        browser.look()
        browser.page.get_by_role("link", name="bad").click()
        browser.page.get_by_text("not allowed: backhop web needs --allow").wait_for()
        self.assertEqual(browser.page.get_by_role("button", name="Replay…").count(), 0)


class Hostile(PageCase):
    def test_texts_of_messages_and_queues_run_nothing(self):
        queue = "command.hostile<img src=x onerror=alert(3)>" + str(next(self.numbers))
        rig("park", queue, 2, HOSTILE)
        self.await_ready(queue + ".parked", at_least=2)
        browser = self.open("--allow", "replay,drop", queue)
        page = browser.page
        browser.look()
        self.assertIn("onerror=alert(", page.locator("tbody").inner_text())
        page.locator("tbody a").click()
        page.get_by_role("button", name="Show messages").click()
        page.locator("summary").first.click()
        page.get_by_role("button", name="Show the body").first.click()
        browser.count("Replay…")
        page.get_by_text("will go to").wait_for()
        self.assertEqual(page.locator("main img, main script, dialog img").count(), 0)
        self.assertEqual(browser.errors, [])

    def test_p4_17_texts_turn_no_other_text_and_show_their_control_characters(self):
        messages, error, hebrew = self.parked(1, "bad"), "\u202elamron\x1b[2J\u2066\x85", "\u05d0\u05d1"
        (saved,) = self.ok("parked", "save", messages, "-").objects
        texts = {"backhop-error": error, "backhop-id": hebrew + error}
        saved["headers"] = [[name, kind, texts.get(name, value)] for name, kind, value in [*saved["headers"], [error, "S", error]]]
        saved["properties"]["message-id"] = hebrew + error
        self.ok("parked", "load", "-", stdin=json.dumps(saved) + "\n")
        browser = self.open("--allow", "replay", messages)
        page = browser.page
        browser.look()
        page.locator("tbody a", has_text="lamron").click()
        page.get_by_role("heading", name="?lamron?[#J??").wait_for()
        page.get_by_role("button", name="Show messages").click()
        page.locator("summary").first.click()
        self.assertIn(f"{hebrew}?lamron?[2J??", page.locator("summary").inner_text())
        self.assertEqual(page.locator("summary code").evaluate("each => getComputedStyle(each).unicodeBidi"), "isolate")
        controls = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
        self.assertEqual(controls.findall(page.content()), [])
        self.assertEqual(browser.errors, [])

    def test_an_address_without_its_fragment_says_what_to_do(self):
        browser = self.browser(self.web("orders"))
        browser.page.goto(browser.web.origin + "/")
        browser.page.get_by_text("You are not signed in").wait_for()
        self.assertIn("#token=", browser.page.locator("main").inner_text())

    @unittest.skipIf(os.environ.get("BACKHOP_BROKER_VERSION", "4.3").startswith(("3.", "4.0")), "it lets every user look at a queue")
    def test_a_queue_that_the_user_may_not_read_has_no_access(self):
        queue = self.parked(1, "bad")
        user = queue.replace(".", "-")
        broker_ctl("rabbitmqctl", "add_user", user, "pw")
        self.addCleanup(broker_ctl, "rabbitmqctl", "delete_user", user)
        broker_ctl("rabbitmqctl", "set_permissions", user, "^$", "^$", rf"^{queue}\.parked$")
        browser = self.open("--uri", os.environ["AMQP_URL"].replace("guest:guest", f"{user}:pw"), queue)
        browser.page.get_by_role("link", name="Queues").click()
        browser.page.get_by_text("needs the permission to read them").wait_for()
        row = browser.page.locator("tbody tr", has_text=queue)
        self.assertEqual(row.inner_text().split("\t"), [queue, "no access", "no access", "1"])
        browser.page.get_by_text("Their number is unknown").wait_for()

    def test_figures_come_without_events(self):
        browser = self.browser(self.web(self.parked(1, "bad")))
        browser.page.route("**/api/live", lambda route: route.abort())
        browser.open()
        browser.page.get_by_text("1 parked").wait_for()

    def test_a_program_that_ended_is_said(self):
        browser = self.open(self.parked(1, "bad"))
        browser.web.process.kill()
        browser.page.get_by_text("Is backhop web still running?").first.wait_for()

    def test_s4_3_another_port_gets_no_cookie(self):
        asked: queues.Queue[str | None] = queues.Queue()

        class Other(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:  # noqa: N802
                asked.put(self.headers["Cookie"])
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        browser = self.open(self.parked(1, "bad"))
        self.assertEqual(len(browser.page.context.cookies(f"{browser.web.origin}/{browser.web.log_in().api}/state")), 1)
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Other) as server:
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            try:
                for path in ("/", "/api/", "/api/state"):
                    browser.page.context.new_page().goto(f"http://127.0.0.1:{server.server_port}{path}")
                    self.assertIsNone(asked.get(timeout=LIMIT_S))
            finally:
                server.shutdown()
                thread.join()

    def test_a_session_holds_for_a_reload_and_for_further_tabs(self):
        browser = self.open(self.parked(1, "bad"))
        browser.page.reload()
        browser.page.get_by_text("1 parked").wait_for()
        second = browser.page.context.new_page()
        second.goto(browser.web.origin)
        second.get_by_text("1 parked").wait_for()

    def test_p4_6_the_actions_stay_while_the_program_does_not_answer(self):
        messages = self.parked(40, "bad")
        web = self.web("--allow", "replay", messages).log_in()
        browser = self.browser(web)
        page = browser.open()
        browser.go("jobs")
        page.get_by_text("No action has run").wait_for()
        web.await_replayed(web.post("/api/replay", {"queue": messages, "expect": 40, "rate": 1}).json["job"], 2)
        page.get_by_text("of 40 messages, 1 a second now").wait_for()
        web.kill("replay")
        page.get_by_text(re.compile(r"As of .+; no answer\. .*Is backhop web still running\?")).wait_for()
        self.assertEqual(page.get_by_text("No action has run").count(), 0)
        self.assertEqual(page.locator("section.old").count(), 1)
        self.assertEqual(page.locator("section button").count(), 0)
        page.get_by_text("of 40 messages, 1 a second now").wait_for()
        self.web("--listen", web.origin.removeprefix("http://"), messages)  # started again: it has another session
        page.get_by_text(re.compile(r"As of .+; no answer\. no session")).wait_for()
        self.assertEqual(page.locator("section.old").count(), 1)
        self.assertEqual(browser.errors, [])


class Looks(PageCase):
    def visit(self, browser: Browser):
        """Goes through all screens."""
        page = browser.page
        browser.look()
        yield "tonight"
        page.locator("tbody a").first.click()
        page.get_by_role("button", name="Show messages").first.click()
        page.locator("summary").first.click()
        yield "group"
        browser.count("Replay…")
        page.get_by_text("will go to").wait_for()
        yield "dialog"
        page.keyboard.press("Escape")
        for screen in SCREENS[1:]:
            browser.go(screen)
            if screen == "health":
                page.get_by_role("button", name="Check now").click()
                page.wait_for_selector("main .card")
            elif screen == "policy":
                page.wait_for_selector("svg.plot")
            page.wait_for_timeout(300)
            yield screen

    def test_each_kind_of_policy_has_its_fields_and_its_delays(self):
        browser = self.open(self.parked(1, "507 queue %d is full"))
        browser.go("policy")
        page, always = browser.page, ["Kind", "Jitter", "Downstream fails, from..to"]
        for kind, more, delay in (
            ("steps", ["Delays"], "1 h"),
            ("fixed", ["First delay", "Longest delay", "Most attempts"], "1 s"),
            ("linear", ["First delay", "Longest delay", "Most attempts"], "9 s"),
            ("exponential", ["First delay", "Factor", "Longest delay", "Most attempts"], "4 min 16 s"),
        ):
            with self.subTest(kind):
                page.get_by_label("Kind", exact=True).select_option(kind)
                page.get_by_label("Jitter").select_option("none")
                self.assertEqual(sorted(page.locator("main label:visible").all_inner_texts()), sorted(always + more))
                page.get_by_role("button", name="Compute").click()
                delays = page.get_by_role("region", name="Delays", exact=True).locator("[data-name='Delay']")
                delays.filter(has_text=re.compile(f"^{delay}$")).last.wait_for()
                self.assertEqual(page.get_by_role("alert").count(), 0)

    def test_axe_finds_nothing(self):
        for scheme in ("light", "dark"):
            browser = self.open("--allow", "replay,drop", self.parked(3, "507 queue %d is full", "bad"), scheme=scheme)
            for screen in self.visit(browser):
                self.assertEqual(browser.violations(), [], (scheme, screen))
            self.assertEqual(browser.errors, [])

    def test_a_phone_s_width_and_a_small_zoom_fit(self):
        for width in (360, 1375):  # the second one is 1100 at 80 %
            browser = self.open("--allow", "replay,drop", self.parked(3, "507 queue %d of a long name is full " + "x" * 80, "bad"), width=width)
            for screen in self.visit(browser):
                self.assertFalse(browser.is_too_wide(), (width, screen))
