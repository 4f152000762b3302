from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from live import needs_worker

import backhop
from backhop.testing import Broker

EXAMPLE = Path(__file__).parents[2] / "examples/python/model.py"

pika = pytest.importorskip("pika")
pytestmark = needs_worker


def depth(broker: Broker, queue: str) -> int:
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        found: int = connection.channel().queue_declare(queue, passive=True).method.message_count
        return found


@pytest.mark.skipif(not EXAMPLE.exists(), reason="no examples are beside these tests")
def test_the_test_of_the_guide_passes() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(EXAMPLE)]
    subprocess.run(command, check=True, capture_output=True)


def test_a_restart_keeps_what_is_durable(backhop_broker: Broker) -> None:
    with pika.BlockingConnection(pika.URLParameters(backhop_broker.url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("kept", durable=True)
        for mode in (1, 2):
            channel.basic_publish("", "kept", b"x", pika.BasicProperties(delivery_mode=mode))
    backhop_broker.control("kill")
    with pytest.raises(pika.exceptions.AMQPError):
        depth(backhop_broker, "kept")
    backhop_broker.control("start")
    assert depth(backhop_broker, "kept") == 1


def test_a_real_clock_goes_on_by_command() -> None:
    with Broker("4.0", clock="real") as broker:
        with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.queue_declare("late", durable=True, arguments={"x-message-ttl": 3_600_000})
            channel.basic_publish("", "late", b"x")
        assert broker.control("list", "queues")[0].split("\t")[:3] == ["late", "classic", "1"]
        broker.control("advance", 3_600_000)
        assert depth(broker, "late") == 0


def test_what_is_wrong_has_a_text() -> None:
    with pytest.raises(backhop.Error, match=r"'2\.0' is no version of the model: give 3\.10, 4\.0 or 4\.3"):
        Broker("2.0")
    broker = Broker()
    with pytest.raises(backhop.Error, match="'dance' is unknown"):
        broker.control("dance")
    with pytest.raises(backhop.Error, match="no vhost 'it has a space'"):
        broker.control("purge", "it has a space", "q")
    broker.close()
    broker.close()
    with pytest.raises(backhop.StateError, match="the broker is closed"):
        broker.control("now")
