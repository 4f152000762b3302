"""Gives a command a model of RabbitMQ (`backhop model`) in place of a private one: broker run model-4.3 -- COMMAND.

As a program, model.py SOCKET REQUEST..., it is $BACKHOP_BROKER_CTL: it translates the requests of ctl.py to lines that the
model obeys. Exits with 0, or with 125 and a text if the model has nothing like it.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import re
import shlex
import socket
import subprocess
import sys
import tempfile
import urllib.parse
from collections.abc import Iterator, Sequence
from pathlib import Path

PREFIX = "model-"
FAILED = 125
PROJECT = Path(__file__).resolve().parents[2]
SIMPLE = {"kill": "kill", "stop": "stop", "start": "start", "set-alarm": "alarm on", "clear-alarm": "alarm off"}


class Unknown(Exception):
    """The model has nothing like this request."""


def command_path() -> Path:
    """Returns the newest `backhop` that is built, or the one that BACKHOP_MODEL_COMMAND names."""
    if named := os.environ.get("BACKHOP_MODEL_COMMAND"):
        return Path(named)
    built = [path for path in PROJECT.glob("build/*/backhop") if os.access(path, os.X_OK) and path.is_file()]
    if not built:
        raise OSError("no `backhop` is built, whose model this needs: cmake --preset dev && cmake --build --preset dev")
    return max(built, key=lambda path: path.stat().st_mtime)


@contextlib.contextmanager
def running(version: str) -> Iterator[tuple[dict[str, str], subprocess.Popen[str]]]:
    """Runs a model; yields the environment of its clients, and its process. Raises OSError if it ends with a failure."""
    with tempfile.TemporaryDirectory(prefix="backhop-model-") as directory:
        control, ctl, log = f"{directory}/control", Path(directory, "ctl"), Path(directory, "log")
        words = shlex.join([sys.executable, "-I", "-S", str(Path(__file__).resolve()), control])
        ctl.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        ctl.chmod(0o755)
        clock = os.environ.get("BACKHOP_MODEL_CLOCK", "real")
        arguments = [str(command_path()), "model", "--version", version, "--clock", clock, "--control", control]
        with log.open("w") as errors, subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=errors, text=True) as process:
            assert process.stdout
            try:
                url = process.stdout.readline().strip()
                if not url:
                    raise OSError(f"{shlex.join(arguments)} did not start")
                names = {"AMQP_URL": url, "BACKHOP_MODEL_URL": url, "BACKHOP_BROKER_VERSION": version, "BACKHOP_BROKER_CTL": str(ctl)}
                yield names, process
            finally:
                process.terminate()
        if process.returncode:  # a crash, or a report of a sanitizer
            raise OSError(f"the model ended with status {process.returncode}: {log.read_text()}")


# ---------------------------------------------------------------------------------------------------------------- requests


def definitions(data: dict[str, list[dict[str, object]]]) -> Iterator[str]:
    """Translates definitions, as `rabbitmqctl import_definitions` takes them."""
    for each in data.get("vhosts", []):
        yield line("vhost", "add", each["name"])
    for each in data.get("users", []):
        tags = each.get("tags") or []
        yield line("user", each["name"], each.get("password", ""), *(tags.split(",") if isinstance(tags, str) else tags))
    for each in data.get("permissions", []):
        yield line("permissions", each["vhost"], each["user"], each["configure"], each["write"], each["read"])
    for each in data.get("policies", []):
        definition = json.dumps(each["definition"])
        yield line(
            "policy", each["vhost"], each["name"], each["pattern"], each.get("apply-to", "all"), each.get("priority", 0), definition
        )
    if data.get("parameters"):
        raise Unknown("definitions of parameters")
    if any(data.get(name) for name in ("exchanges", "queues", "bindings")):
        asyncio.run(declare(data))


async def declare(data: dict[str, list[dict[str, object]]]) -> None:
    """Declares the exchanges, queues and bindings of definitions, by AMQP."""
    sys.path[:0] = [str(PROJECT / "tests"), str(PROJECT / "tests/model")]
    from link import Link

    url = os.environ["BACKHOP_MODEL_URL"]
    objects = [("exchange", each) for each in data.get("exchanges", [])]
    objects += [("queue", each) for each in data.get("queues", [])] + [("bind", each) for each in data.get("bindings", [])]
    for vhost in {str(each["vhost"]) for _, each in objects}:
        link = Link(url + urllib.parse.quote(vhost, safe=""))
        await link.connect("definitions")
        channel = await link.open()
        for kind, each in objects:
            if each["vhost"] != vhost:
                continue
            arguments = each.get("arguments") or {}
            if kind == "bind" and each["destination_type"] == "queue":
                place = {"queue": each["destination"], "exchange": each["source"]}
                await channel.call("queue.bind", **place, key=each["routing_key"], arguments=arguments)
            elif kind == "bind":
                place = {"destination": each["destination"], "source": each["source"]}
                await channel.call("exchange.bind", **place, key=each["routing_key"], arguments=arguments)
            elif kind == "queue":
                flags = {"durable": each["durable"], "auto_delete": each["auto_delete"]}
                await channel.call("queue.declare", queue=each["name"], **flags, arguments=arguments)
            else:
                flags = {"durable": each["durable"], "auto_delete": each["auto_delete"], "internal": each.get("internal", False)}
                await channel.call("exchange.declare", exchange=each["name"], type=each["type"], **flags, arguments=arguments)
        await link.close()


def line(*words: object) -> str:
    return shlex.join(str(word) for word in words)


def permissions(strings: Sequence[str]) -> Iterator[str]:
    """Translates the arguments of set_permissions."""
    user, vhost, *patterns = strings
    yield line("permissions", vhost, user, *patterns[:3])


def evaluated(erlang: str) -> Iterator[str]:
    """Translates the expressions that the tests use."""
    strings = re.findall(r'<<"([^"]*)">>', erlang)
    if "rabbit_definitions:import_raw" in erlang:
        yield from definitions(json.loads(base64.b64decode(strings[0])))
    elif "rabbit_vhost:add(" in erlang:
        yield line("vhost", "add", strings[0])
        if "auth_backend_internal:set_permissions(" in erlang:
            yield from permissions(re.findall(r'<<"([^"]*)">>', erlang.partition("set_permissions(")[2]))
    elif "rabbit_vhost:delete(" in erlang:
        yield line("vhost", "delete", strings[0])
    elif "auth_backend_internal:set_permissions(" in erlang:
        yield from permissions(strings)
    elif re.search("auth_backend_internal:(add_user|change_password)", erlang):
        yield line("user", *strings[:2])
    elif "auth_backend_internal:delete_user(" in erlang:
        yield line("user", "delete", strings[0])
    elif "rabbit_networking:close_connection(" in erlang:
        name = re.search(r'longstr, *<<"([^"]*)">>', erlang)
        reason = re.search(r'close_connection\(\w+, *"([^"]*)"', erlang)
        text = f"CONNECTION_FORCED - {reason[1] if reason else 'Closed via management plugin'}"
        yield line("close", name[1].replace("\\s", " ") if name else "all", 320, text)
    elif "rabbit_amqqueue:" in erlang and "delete" in erlang:
        yield line("delete", "queues")
    elif "rabbit_nodes:set_cluster_name(" in erlang:
        yield line("cluster", strings[0])
    elif match := re.search(r"confirm_timeout, *(\d+)\)", erlang):
        yield line("resend", match[1])
    elif match := re.search(r"consumer_timeout, *(\d+)\)", erlang):
        yield line("consumer-timeout", match[1])
    elif "channel_tick_interval" in erlang:
        return  # the model's timeouts are exact
    elif match := re.search(r"max_message_size, *(\d+)\)", erlang):
        yield line("max-message", match[1])
    else:
        raise Unknown(erlang)


def administered(words: Sequence[str]) -> Iterator[str]:
    """Translates rabbitmqctl."""
    vhost, rest = "/", [word for word in words if word not in ("--silent", "-q", "--quiet")]
    if "-p" in rest:
        at = rest.index("-p")
        vhost = rest[at + 1]
        del rest[at : at + 2]
    options = {"--priority": "0", "--apply-to": "all"}
    for name in options:
        if name in rest:
            at = rest.index(name)
            options[name] = rest[at + 1]
            del rest[at : at + 2]
    name, *values = rest
    if name == "add_vhost":
        yield line("vhost", "add", *values)
    elif name == "delete_vhost":
        yield line("vhost", "delete", *values)
    elif name in ("add_user", "change_password"):
        yield line("user", *values)
    elif name == "delete_user":
        yield line("user", "delete", *values)
    elif name == "set_user_tags":
        yield line("user", "tags", *values)
    elif name == "set_permissions":
        yield line("permissions", vhost, *values)
    elif name in ("set_policy", "set_operator_policy"):
        kind = "policy" if name == "set_policy" else "operator-policy"
        yield line(kind, vhost, values[0], values[1], options["--apply-to"], options["--priority"], values[2])
    elif name in ("clear_policy", "clear_operator_policy"):
        kind = "policy" if name == "clear_policy" else "operator-policy"
        yield line(kind, "delete", vhost, values[0])
    elif name == "close_all_connections":
        yield line("close", "all", 320, f"CONNECTION_FORCED - {values[0]}")
    elif name == "delete_queue":
        yield line("delete", "queue", vhost, *values)
    elif name == "purge_queue":
        yield line("purge", vhost, *values)
    elif name == "list_queues":
        yield line("list", "queues", vhost)
    else:
        raise Unknown(f"rabbitmqctl {name}")


def shown(words: Sequence[str], answer: str) -> str:
    """Returns a line of `list queues` with the columns that a call of `rabbitmqctl list_queues` names."""
    name, kind, ready, unacknowledged, consumers, others = answer.rstrip("\n").split("\t")
    messages = str(int(ready) + int(unacknowledged) + int(others))
    columns = {"name": name, "type": kind, "messages_ready": ready, "messages_unacknowledged": unacknowledged}
    columns |= {"messages": messages, "consumers": consumers}
    wanted = [word for word in words[words.index("list_queues") + 1 :] if word in columns]
    return "\t".join(columns[word] for word in wanted or ("name", "messages")) + "\n"


def translated(words: Sequence[str]) -> list[str]:
    name, *values = words
    if name in SIMPLE:
        return [SIMPLE[name]]
    if name == "save":
        return []
    if name == "control":
        return [" ".join(values)]
    if name == "eval":
        return list(evaluated(" ".join(values)))
    if name == "rabbitmqctl":
        return list(administered(values))
    raise Unknown(name)


def main(address: str, *words: str) -> int:
    try:
        lines = translated(words)
    except Unknown as unknown:
        return fail(f"a model of RabbitMQ has no {unknown}")
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        answers = connection.makefile("r")
        for each in lines:
            connection.sendall(f"{each}\n".encode())
            for answer in answers:
                if answer.startswith("error: "):
                    return fail(f"{each}: {answer.removeprefix('error: ').rstrip()}")
                if answer == "ok\n":
                    break
                print(shown(words, answer) if words[0] == "rabbitmqctl" and "list_queues" in words else answer, end="")
            else:
                return fail(f"{each}: the model ended before it answered")
    return 0


def fail(text: str) -> int:
    print(f"broker: {text}", file=sys.stderr, flush=True)
    return FAILED


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
