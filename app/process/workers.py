"""Run the API on one port: in this process, or in several supervised ones."""

import logging
import multiprocessing
import multiprocessing.connection
import multiprocessing.resource_tracker
import os
import pkgutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors.multiprocess import SIGNALS, Multiprocess, Process

from app.api.http.connection.certificates import TlsContexts
from app.api.http.connection.protocol_factory import make_protocol
from app.logs import LogBackoff, log_config
from app.process.signals import STOP_SIGNALS, raise_on_stop_signals
from app.services.groups.commit_lock import shared_lock
from app.settings import ServiceSettings
from app.store.server.data_dir import short_temporary_folder
from app.tuning import no_collection

logger = logging.getLogger("lachesis.workers")

BACKLOG = 2048
_KEEP_ALIVE_S = 75  # longer than clients keep idle connections, so that no request meets a closing connection
_HUNG_WORKER_S = 30
_LOOK_S = 0.2
_ORPHANED_WORKER_S = 1.5
_RESTART_PAUSE_S, _LONGEST_RESTART_PAUSE_S = 1.0, 5.0
_fork_server = multiprocessing.get_context("forkserver")
_fork_server.set_forkserver_preload(["app.process.preload"])


def run_workers(
    settings: ServiceSettings,
    app: str,
    listeners: Sequence[socket.socket],
    tls: TlsContexts | None,
    announce: Callable[[], None],
) -> int:
    """Serve ``app`` until a signal ends it; requests in flight finish first.

    Args:
        settings: The settings of all processes, also of those that start later.
        app: What makes the ASGI application from settings, as ``module:function``.
        listeners: Listening sockets: one for each process, or one that all share.
        tls: The certificates for TLS; None for plain HTTP.
        announce: Called once, when all processes serve.

    Returns:
        The exit code: 0 after a signal, 1 if the application did not start (the log says why).
    """
    config = _uvicorn_config(settings, app, tls)
    if settings.workers == 1:
        return _run_here(config, listeners[0], announce)
    with ExitStack() as until_the_end:
        try:
            until_the_end.enter_context(shared_lock())
        except OSError as error:
            logger.error("cannot make a temporary file to lock: %s (TMPDIR names the folder for it)", error)
            return 1
        return _run_many(config, listeners, announce)


def _uvicorn_config(settings: ServiceSettings, app: str, tls: TlsContexts | None) -> uvicorn.Config:
    return _UvicornConfig(
        partial(_application, app, settings),
        factory=True,
        loop="uvloop",
        http=make_protocol(settings.header_timeout_s, tls),
        ws="none",
        lifespan="on",
        workers=settings.workers,
        log_config=log_config(settings.log_level, settings.log_format),
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=settings.shutdown_grace_s,
        timeout_worker_healthcheck=_HUNG_WORKER_S,
    )


def _application(factory: str, settings: ServiceSettings) -> Any:
    """Make the application in the process that serves it. The others need not import it."""
    return pkgutil.resolve_name(factory)(settings)


class _UvicornConfig(uvicorn.Config):
    """uvicorn's configuration. It imports and builds the application faster."""

    def load(self) -> None:
        with no_collection():
            super().load()


class _Server(uvicorn.Server):
    """uvicorn's server. It announces that it listens, and does not wait after a second signal to end."""

    def __init__(self, config: uvicorn.Config, announce: Callable[[], None]) -> None:
        super().__init__(config)
        self._announce = announce

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._announce()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - uvicorn's
        # uvicorn raises each signal again at the end. The second one would interrupt our shutdown.
        if self.should_exit and sig != signal.SIGHUP:  # the end of a terminal may send several
            self.force_exit = True
            logging.getLogger("uvicorn.error").disabled = True  # it would log a traceback for each request
        self.should_exit = True


def _run_here(config: uvicorn.Config, listener: socket.socket, announce: Callable[[], None]) -> int:
    server = _Server(config, announce)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, server.handle_exit)  # uvicorn handles the other two
    try:
        server.run([listener])
    except SystemExit:  # the application did not start; uvicorn has logged why
        return 1
    return 0


class _WorkerProcess(Process):
    """An API process. A fork server forks it, which has imported the application. It ends with the supervisor."""

    def __init__(self, config: uvicorn.Config, sockets: list[socket.socket]) -> None:
        super().__init__(config, sockets)
        forked: Any = _fork_server.Process(target=self.target, args=(sockets,))
        self.process = forked  # uvicorn's own would import the application by itself

    def target(self, sockets: list[socket.socket] | None = None) -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
        self.config.configure_logging()
        threading.Thread(target=_end_with_supervisor, name="end-with-supervisor", daemon=True).start()
        super().target(sockets)

    def start(self) -> None:
        # Ctrl-C and the end of a terminal reach the whole process group, and systemd sends SIGTERM to all processes.
        # The fork server must see none of them, and a worker only SIGTERM: the supervisor ends it, once.
        multiprocessing.resource_tracker.ensure_running()  # it would unblock SIGINT if it were started below
        before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        try:
            super().start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_with_supervisor() -> None:
    supervisor, fork_server = multiprocessing.parent_process(), os.getppid()
    if supervisor is None:
        return
    # Without the fork server, the supervisor takes this process for dead and starts another.
    while supervisor.is_alive() and os.getppid() == fork_server:
        supervisor.join(_LOOK_S)
    # The next service needs the port, and acknowledged data is in Redis: finish quick requests, then exit.
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_ORPHANED_WORKER_S)
    os._exit(1)


class _Supervisor(Multiprocess):
    """uvicorn's supervisor. It also announces when all processes serve, and does not wait after a second signal."""

    def __init__(self, config: uvicorn.Config, sockets: list[socket.socket], announce: Callable[[], None]) -> None:
        before = {number: signal.getsignal(number) for number in SIGNALS}
        super().__init__(config, sockets)
        for number, handler in before.items():
            # uvicorn's signals to add, drop and replace workers would start processes of its own class.
            if number not in STOP_SIGNALS or handler is signal.SIG_IGN:
                signal.signal(number, handler)
        self._announce = announce
        self._announced = False
        self._restarts = LogBackoff(_RESTART_PAUSE_S, _LONGEST_RESTART_PAUSE_S)
        self.failed = False

    def init_processes(self) -> None:
        self.processes = [self._started(index) for index in range(self.processes_num)]
        while (
            not self._announced and not self.should_exit.is_set() and all(p.process.is_alive() for p in self.processes)
        ):
            self.handle_signals()
            self._announce_if_ready()

    def keep_subprocess_alive(self) -> None:
        for index, process in enumerate(self.processes):
            is_alive = process.process.is_alive() and self._ping(process)
            if self._stops():
                return
            if is_alive:
                continue
            process.kill()
            process.join()
            if not self._announced and process.exitcode in (1, STARTUP_FAILURE):
                self.failed = True  # it would fail again; the worker has logged why
                self.should_exit.set()
                return
            if not self._restarts.is_due(index):
                continue
            logger.error("API process %s ended by itself (code %s); starting another", process.pid, process.exitcode)
            try:
                self.processes[index] = self._started(index)
            except (OSError, EOFError) as error:  # no memory for another process, or the fork server has just died
                logger.error("cannot start an API process: %r", error)
        if not self._announced:
            self._announce_if_ready()

    def _ping(self, process: Process) -> bool:
        """Return whether a process answers in time. If it dies, or a signal comes, the answer is False at once.

        uvicorn's method waits for the whole timeout. Until then it handles no signal, and replaces no other process.
        """
        try:
            process.parent_conn.send(b"ping")
            deadline, answered = time.monotonic() + self.config.timeout_worker_healthcheck, list[Any]()
            while not answered and not self._stops() and time.monotonic() < deadline:
                answered = multiprocessing.connection.wait([process.parent_conn, process.process.sentinel], _LOOK_S)
            if process.parent_conn not in answered:
                return False
            process.parent_conn.recv()
        except (OSError, EOFError):
            return False
        return True

    def _stops(self) -> bool:
        """Return whether a signal has come, which `handle_signals` handles next. All of them stop the service."""
        return self.should_exit.is_set() or bool(self.signal_queue)

    def handle_hup(self) -> None:
        self.handle_term()

    def terminate_all(self) -> None:
        for listener in self.sockets:
            listener.close()  # otherwise new connections would wait for workers that are gone
        super().terminate_all()

    def join_all(self) -> None:
        self.signal_queue.clear()
        deadline = time.monotonic() + (self.config.timeout_graceful_shutdown or 0) + 5
        for process in self.processes:
            while process.process.is_alive():
                process.process.join(0.05)
                if {*self.signal_queue} - {signal.SIGHUP} or time.monotonic() > deadline:
                    process.process.kill()

    def _announce_if_ready(self) -> None:
        if all(process.is_ready(timeout=0.5) for process in self.processes):
            self._announce()
            self._announced = True
        else:
            time.sleep(0.02)

    def _started(self, index: int) -> _WorkerProcess:
        # This process keeps all sockets open. So connections to a process that died wait for its replacement.
        worker = _WorkerProcess(self.config, [self.sockets[index % len(self.sockets)]])
        worker.start()
        return worker


def _run_many(config: uvicorn.Config, listeners: Sequence[socket.socket], announce: Callable[[], None]) -> int:
    tempfile.tempdir = short_temporary_folder()  # for the socket of the fork server
    supervisor = _Supervisor(config, list(listeners), announce)
    try:
        supervisor.run()
    finally:
        raise_on_stop_signals()  # uvicorn's supervisor leaves its own handlers
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the end of a terminal may send several
    return 1 if supervisor.failed else 0
