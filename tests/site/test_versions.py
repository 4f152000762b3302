"""The switch between versions of the site, in a browser, on a web server."""

import contextlib
import functools
import http.server
import os
import shutil
import subprocess
import tempfile
import threading
import unittest
from pathlib import Path

from browser import chromium

PROJECT = Path(__file__).resolve().parents[2]
VERSION = (PROJECT / "VERSION").read_text().strip()


class Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


class Versions(unittest.TestCase):
    """The directory has this version and 0.0.9, which lacks the playground."""

    @classmethod
    def setUpClass(cls):
        cls.chromium = cls.enterClassContext(chromium())
        cls.directory = Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.publish()
        shutil.copytree(cls.directory / VERSION, cls.directory / "0.0.9")
        (cls.directory / "0.0.9/playground.html").unlink()
        cls.publish()
        cls.address = cls.serve(cls.directory)

    @classmethod
    def serve(cls, directory):
        """Serves the directory until the end of the class. Returns its address."""
        handler = functools.partial(Handler, directory=directory)
        server = cls.enterClassContext(http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        cls.addClassCleanup(server.shutdown)
        return f"http://127.0.0.1:{server.server_port}"

    @classmethod
    def publish(cls):
        subprocess.run([PROJECT / "docs/_tools/publish", cls.directory], check=True, timeout=120)

    @contextlib.contextmanager
    def page(self, address):
        with contextlib.closing(self.chromium.new_context()) as context:
            page = context.new_page()
            page.set_default_timeout(60000)
            page.goto(address)
            yield page

    def test_the_directory_leads_to_the_newest_version(self):
        with self.page(self.address) as page:
            page.wait_for_url(f"{self.address}/{VERSION}/")
            switch = page.locator(".versions select")
            switch.wait_for()
            self.assertEqual(switch.input_value(), VERSION)
            self.assertEqual(switch.locator("option").all_inner_texts(), [VERSION, "0.0.9"])

    def test_the_other_version_shows_the_same_page(self):
        with self.page(f"{self.address}/{VERSION}/howto/poison.html") as page:
            page.locator(".versions select").select_option("0.0.9")
            page.wait_for_url(f"{self.address}/0.0.9/howto/poison.html")
            page.locator(".versions select").select_option(VERSION)
            page.wait_for_url(f"{self.address}/{VERSION}/howto/poison.html")

    def test_a_page_that_the_other_version_lacks_leads_to_its_first_page(self):
        with self.page(f"{self.address}/{VERSION}/playground.html") as page:
            page.locator(".versions select").select_option("0.0.9")
            page.wait_for_url(f"{self.address}/0.0.9/index.html")

    def test_a_site_that_was_not_published_requests_no_list_of_versions(self):
        site = self.serve(os.environ["BACKHOP_SITE"])
        with contextlib.closing(self.chromium.new_context()) as context:
            page, answers = context.new_page(), []
            page.on("response", lambda answer: answers.append((answer.status, answer.url)))
            for name in ("index.html", "howto/poison.html"):
                page.goto(f"{site}/{name}", wait_until="networkidle")
                self.assertEqual(page.locator(".versions:visible").count(), 0)
        self.assertEqual([url for status, url in answers if status >= 400 or "versions.json" in url], [])

    def test_without_a_list_of_versions_there_is_no_switch(self):
        with self.page(Path(os.environ["BACKHOP_SITE"], "index.html").resolve().as_uri()) as page:
            page.wait_for_load_state("networkidle")
            self.assertEqual(page.locator(".versions:visible").count(), 0)


if __name__ == "__main__":
    unittest.main()
