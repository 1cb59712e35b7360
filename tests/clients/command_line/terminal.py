"""Run ``python -m lachesis`` or ``python -m app`` on a pseudo-terminal, or into pipes."""

import asyncio
import fcntl
import json
import os
import pty
import re
import struct
import termios
from collections.abc import Sequence
from tempfile import TemporaryFile
from typing import Any

from tests.forked import ROOT, Command, environment, run_module

_STYLE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


async def piped(*words: str, module: str = "lachesis", **variables: str) -> tuple[int, str, str]:
    """Run a command; its exit code and what it printed."""
    done = await asyncio.to_thread(run_module, module, *words, env=environment(**variables))
    return done.returncode, done.stdout, done.stderr


async def unread(*words: str, module: str = "lachesis", **variables: str) -> tuple[int, str]:
    """Run a command whose output has no reader, as in ``command | true``; its exit code and its errors."""
    code, errors = await asyncio.to_thread(_unread, (module, *words), variables)
    return code, errors.decode()


def _unread(words: tuple[str, ...], variables: dict[str, str]) -> tuple[int, bytes]:
    unread, output = os.pipe()
    os.close(unread)
    with open(os.devnull, "rb") as nothing, TemporaryFile() as errors:
        command = Command(words, environment(**variables), ROOT, (nothing.fileno(), output, errors.fileno()))
        os.close(output)
        code = command.wait()
        errors.seek(0)
        return code, errors.read()


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
    command = Command(words, environment(**variables), ROOT, (theirs, theirs, theirs))
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
    code = command.wait()
    os.close(ours)
    return code, written


def findings_by_check(out: str) -> dict[str, Any]:
    """The findings of a doctor by check: those that are not ok win."""
    findings = [json.loads(line) for line in out.splitlines()]
    for found in findings:
        assert (found["remedy"] is None) == (found["state"] == "ok"), found
    return {one["check"]: one for one in sorted(findings, key=lambda one: one["state"] != "ok")}
