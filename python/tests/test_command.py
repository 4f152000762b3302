"""The operator's command, as the package carries it."""

import os
import signal
import socket
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import backhop


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-m", "backhop", *arguments], capture_output=True, text=True, check=False)


def test_the_command_is_carried_where_the_worker_is() -> None:
    ran = run("--version")
    if backhop.build_info().worker:
        assert ran.returncode == 0, ran.stderr
        assert ran.stdout.startswith(f"backhop {backhop.build_info().version} ")
    else:
        assert ran.returncode == 69
        assert "built without the command" in ran.stderr


def test_its_exit_code_and_messages_are_its_own() -> None:
    if backhop.build_info().worker:
        ran = run("parked", "list")
        assert ran.returncode == 64
        assert "which work queue?" in ran.stderr


def test_it_replaces_the_process_of_python_so_that_signals_are_its_own() -> None:
    if not backhop.build_info().worker:
        return
    with socket.create_server(("127.0.0.1", 0)) as silent:  # a broker that says nothing
        uri = f"amqp://127.0.0.1:{silent.getsockname()[1]}/"
        command = [sys.executable, "-m", "backhop", "parked", "list", "orders", "--uri", uri]
        with subprocess.Popen(command) as program:
            accepted, _ = silent.accept()
            with accepted:
                assert accepted.recv(4) == b"AMQP"
                assert Path(os.readlink(f"/proc/{program.pid}/exe")).name == "backhop"
                program.send_signal(signal.SIGINT)
                assert program.wait(60) == 130


def test_the_console_script_is_named_backhop() -> None:
    (script,) = metadata.entry_points(group="console_scripts", name="backhop")
    assert script.value == "backhop.__main__:main"
