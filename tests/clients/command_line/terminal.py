"""Run ``python -m lachesis`` or ``python -m app`` on a pseudo-terminal, or into pipes."""

import asyncio
import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Sequence
from pathlib import Path
from typing import Any

CLIENTS = Path(__file__).parents[3] / "clients"
_STYLE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def environment(**variables: str) -> dict[str, str]:
    """The variables of the command: none of Lachesis but these."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("LACHESIS_", "COLUMNS"))}
    return {**ours, "PYTHONPATH": str(CLIENTS), "TERM": "xterm", **variables}


async def piped(*words: str, module: str = "lachesis", **variables: str) -> tuple[int | None, str, str]:
    """Run a command; its exit code and what it printed."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, *words, stdout=pipe, stderr=pipe, env=environment(**variables)
    )
    async with asyncio.timeout(100):
        out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


async def in_terminal(columns: int, *words: str, module: str = "lachesis", **variables: str) -> tuple[int, list[str]]:
    """Run a command on a terminal of so many columns; its exit code, and its lines as they were written."""
    code, written = await asyncio.to_thread(_in_terminal, columns, (module, *words), variables)
    return code, _STYLE.sub("", written.decode()).splitlines()


async def on_screen(columns: int, *words: str, until: tuple[str, ...], keys: str, **variables: str) -> tuple[int, str]:
    """Run a command that uses the whole screen, and type keys once it showed all of ``until``.

    Returns:
        Its exit code, and all bytes that it wrote.
    """
    given = [text.encode() for text in until], keys.encode()
    code, written = await asyncio.to_thread(_in_terminal, columns, ("lachesis", *words), variables, *given)
    return code, written.decode(errors="replace")


def _in_terminal(
    columns: int, words: tuple[str, ...], variables: dict[str, str], until: Sequence[bytes] = (), keys: bytes = b""
) -> tuple[int, bytes]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    command = [sys.executable, "-m", *words]
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment(**variables), close_fds=True
    ) as process:
        os.close(theirs)
        written = b""
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
            if not piece:
                break
            written += piece
            if keys and all(text in written for text in until):
                os.write(ours, keys)
                keys = b""
        code = process.wait(timeout=100)
    os.close(ours)
    return code, written


def findings_by_check(out: str) -> dict[str, Any]:
    """The findings of a doctor by check: those that are not ok win."""
    findings = [json.loads(line) for line in out.splitlines()]
    for found in findings:
        assert (found["remedy"] is None) == (found["state"] == "ok"), found
    return {one["check"]: one for one in sorted(findings, key=lambda one: one["state"] != "ok")}
