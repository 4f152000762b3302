"""A command of Django's: yourapp/management/commands/purge.py."""

from __future__ import annotations

import os
import time
from typing import Any

from django.core.management.base import BaseCommand
from django.db import close_old_connections

import backhop


def purge(body: bytes) -> None:
    print("began", flush=True)
    time.sleep(0.2)
    print("ended", flush=True)


# README: begin
class Command(BaseCommand):
    def handle(self, *args: Any, **options: Any) -> None:
        url, queue = os.environ.get("AMQP_URL", "amqp://localhost"), os.environ.get("QUEUE", "cdn-purge")
        backhop.Worker(url, queue, backhop.Policy()).run(self.purge)  # until Ctrl-C or SIGTERM; then it drains

    def purge(self, message: backhop.Message) -> None:
        close_old_connections()  # as Django does around a request
        try:
            purge(message.body)
        finally:
            close_old_connections()
# README: end
