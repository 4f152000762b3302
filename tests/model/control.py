"""The steps that an operator takes: how RabbitMQ and the model execute them."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
from typing import Any


def erlang(text: Any) -> str:
    """Returns a text as an Erlang binary."""
    data = text.encode() if isinstance(text, str) else text
    return "<<" + ",".join(map(str, data)) + ">>"


def words(*each: Any) -> str:
    return shlex.join([str(word) for word in each])


MOST_SHOWN = 400  # characters of an error
RESEND = "rabbit, dead_letter_worker_publisher_confirm_timeout"
RESEND_MS = 1000  # until a quorum queue sends unconfirmed dead letters again; 180 s by default


class Control:
    """Executes {"control": WORD, ...} by BACKHOP_BROKER_CTL."""

    def __init__(self) -> None:
        self.program = os.environ.get("BACKHOP_BROKER_CTL", "")
        self.is_model = False
        self.resend = ""  # as it was before

    async def begin(self) -> None:
        """Finds out what serves AMQP_URL: only the model executes `control`. Shortens RabbitMQ's longest pause."""
        if not self.program:
            return
        self.is_model = (await self.run("control", "now", fails=True)) is not None
        if self.is_model:
            await self.run("control", f"resend {RESEND_MS}")
        else:
            self.resend = (await self.evaluate(f"application:get_env({RESEND}).")).strip()
            await self.evaluate(f"application:set_env({RESEND}, {RESEND_MS}).")

    async def end(self) -> None:
        if self.resend.startswith("{ok"):
            await self.evaluate(f"{{ok, V}} = {self.resend}, application:set_env({RESEND}, V).")
        elif self.resend:
            await self.evaluate(f"application:unset_env({RESEND}).")

    async def run(self, *arguments: str, fails: bool = False) -> str | None:
        process = await asyncio.create_subprocess_exec(
            *shlex.split(self.program),
            *arguments,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        output, errors = await process.communicate()
        if process.returncode == 0:
            return output.decode()
        if fails:
            return None
        reason = (errors + output).decode().strip()
        raise RuntimeError(f"{shlex.join(arguments)} failed: {reason[-MOST_SHOWN:]}")

    async def evaluate(self, expression: str) -> str:
        return await self.run("eval", expression) or ""

    async def execute(self, word: str, **given: Any) -> None:
        if word in ("restart", "save"):
            await self.restart(word, **given)
            return
        line, expression = getattr(self, "_" + word)(**given)
        if self.is_model:
            await self.run("control", line)
        elif expression in ("set-alarm", "clear-alarm"):
            await self.run(expression)
        else:
            answer = (await self.evaluate(expression)).strip()
            if answer.startswith(("{error", "{badrpc", "{'EXIT'")):
                raise RuntimeError(f"{line}: {answer}")

    async def restart(self, word: str, kill: bool = False) -> None:
        """Stops the broker, in order or by a kill, and starts it; or saves its list of queues first."""
        if word == "restart":
            for each in ("kill" if kill else "stop", "start"):
                await self.run(*(("control", each) if self.is_model else (each,)))
        elif not self.is_model:
            await self.run("save")

    # each returns the model's line and RabbitMQ's expression

    def _policy(
        self,
        name: str,
        pattern: str,
        definition: dict[str, Any],
        apply_to: str = "queues",
        priority: int = 0,
        operator: bool = False,
    ) -> tuple[str, str]:
        text = json.dumps(definition)
        kind = "operator-policy" if operator else "policy"
        function = "parse_set_op" if operator else "parse_set"
        return (
            words(kind, "/", name, pattern, apply_to, priority, text),
            f'rabbit_policy:{function}(<<"/">>, {erlang(name)}, {erlang(pattern)}, {erlang(text)},'
            f' {priority}, {erlang(apply_to)}, <<"test">>).',
        )

    def _delete_policy(self, name: str, operator: bool = False) -> tuple[str, str]:
        kind = "operator-policy" if operator else "policy"
        function = "delete_op" if operator else "delete"
        return (
            words(kind, "delete", "/", name),
            f'rabbit_policy:{function}(<<"/">>, {erlang(name)}, <<"test">>).',
        )

    def _vhost(self, name: str) -> tuple[str, str]:
        return words("vhost", "add", name), f'rabbit_vhost:add({erlang(name)}, <<"test">>).'

    def _delete_vhost(self, name: str) -> tuple[str, str]:
        return words("vhost", "delete", name), f'rabbit_vhost:delete({erlang(name)}, <<"test">>).'

    def _user(self, name: str, password: str, tags: list[str] = []) -> tuple[str, str]:  # noqa: B006
        tag_list = ",".join(tags)
        return (
            words("user", name, password, *tags),
            f'rabbit_auth_backend_internal:add_user({erlang(name)}, {erlang(password)}, <<"test">>),'
            f' rabbit_auth_backend_internal:set_tags({erlang(name)}, [{tag_list}], <<"test">>).',
        )

    def _delete_user(self, name: str) -> tuple[str, str]:
        return (
            words("user", "delete", name),
            f'rabbit_auth_backend_internal:delete_user({erlang(name)}, <<"test">>).',
        )

    def _permissions(
        self, user: str, configure: str, write: str, read: str, vhost: str = "/"
    ) -> tuple[str, str]:
        rights = ", ".join(erlang(each) for each in (configure, write, read))
        return (
            words("permissions", vhost, user, configure, write, read),
            f"rabbit_auth_backend_internal:set_permissions({erlang(user)}, {erlang(vhost)}, {rights},"
            ' <<"test">>).',
        )

    def _alarm(self, on: bool) -> tuple[str, str]:
        return f"alarm {'on' if on else 'off'}", "set-alarm" if on else "clear-alarm"

    async def close(self, name: str, text: str) -> None:
        """Closes the connection of this client-provided name."""
        if self.is_model:
            listed = await self.run("control", "list connections") or ""
            number = next(line.split()[0] for line in listed.splitlines() if name in line)
            await self.run("control", words("close", number, 320, f"CONNECTION_FORCED - {text}"))
            return
        closed = await self.evaluate(
            f"length([rabbit_networking:close_connection(P, {json.dumps(text)}) || P <- rabbit_networking:connections(),"
            f" [{{client_properties, C}}] <- [catch rabbit_networking:connection_info(P, [client_properties])],"
            f' is_list(C) andalso lists:member({{<<"connection_name">>, longstr, {erlang(name)}}}, C)]).'
        )
        if closed.strip() != "1":
            raise RuntimeError(f"no connection has the name {name}: {closed}")
