"""The operator's command, as the package carries it."""

import subprocess
import sys
from importlib import metadata

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


def test_the_console_script_is_named_backhop() -> None:
    (script,) = metadata.entry_points(group="console_scripts", name="backhop")
    assert script.value == "backhop.__main__:main"
