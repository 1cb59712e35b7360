"""A training run: a model, a few environments and a trainer, all real processes, around the service."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType

from tests.e2e.ledger import Account, Batch, Event, Sent, read_batches, read_journal
from tests.e2e.processes import Process, wait_until
from tests.e2e.service import Service
from tests.e2e.venv import REPOSITORY, atropos_python

CLIENTS = Path(__file__).with_name("clients")
BATCH_SIZE = 32
MINIMUM_SEQUENCES = 8
THINK_MS = {"plain": 40, "minimum": 200, "lists": 80, "binary": 120, "curriculum": 40}
USUAL = ("plain", "minimum", "lists", "binary")
CLIENT_VARIABLES = {
    "HF_HUB_OFFLINE": "1",
    "WANDB_MODE": "disabled",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONUNBUFFERED": "1",
    "PYTHONPATH": str(REPOSITORY / "clients"),  # the SDK; what it needs, the library needs, too
}


class Story:
    """The clients of one training run; end it with ``finish``, then ask for the account.

    Args:
        service: The service.
        folder: Where to keep what clients write.
        trainer: The script of the trainer.
        names: The environments.
        tokens: The token of each client by name, the trainer's under ``trainer``; none for an open service.
    """

    def __init__(
        self,
        service: Service,
        folder: Path,
        trainer: str = "trainer.py",
        names: Iterable[str] = USUAL,
        tokens: Mapping[str, str] | None = None,
    ) -> None:
        self.service = service
        self._tokens = tokens or {}
        self._trainer_script = trainer
        self._names = names
        self._folder = folder
        self._python = atropos_python()
        self._stop, self._drain = folder / "stop", folder / "drain"
        self.environments: dict[str, Process] = {}

    def __enter__(self) -> "Story":
        tokenizer = self._folder / "tokenizer"
        built = self._run("tokenizer", "tokenizer.py", str(tokenizer))
        assert built.wait(60) == 0, built.last_words()
        self._model = self._run("model", "model_server.py")
        self._model.wait_until("the model server listens", lambda: "http://" in self._model.log.read_text())
        model_url = self._model.log.read_text().strip()
        journal = str(self._journal("trainer"))
        self.trainer = self._run(
            "trainer", self._trainer_script, self._url("trainer"), str(BATCH_SIZE), journal, str(self._drain)
        )
        for name in self._names:
            self.environments[name] = self._environment(name, THINK_MS[name], model_url, tokenizer)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if error is not None:
            print(self.troubles(), self.service.process.last_words(), sep="\n")
        for process in (*self.environments.values(), self.trainer, self._model):
            process.stop()

    def served(self) -> list[Batch]:
        """Give the batches that the trainer had so far."""
        return read_batches(self._journal("trainer"))

    def sent(self) -> list[Sent]:
        """Give what each environment sent so far."""
        return [Sent.read(name, self._journal(name)) for name in self.environments]

    def wait_for_batches(self, more: int, within_s: float) -> None:
        """Block until the trainer had ``more`` further batches."""
        target = len(self.served()) + more
        wait_until(
            f"the trainer has {target} batches",
            lambda: bool(self.dead()) or len(self.served()) >= target,
            within_s,
        )
        assert not self.dead(), self.troubles()

    def dead(self) -> list[str]:
        """Name the clients whose process has ended."""
        clients = {**self.environments, "trainer": self.trainer}
        return [name for name, process in clients.items() if not process.alive]

    def troubles(self) -> str:
        """Give the last words of the dead, or of all if nobody died."""
        clients = {**self.environments, "trainer": self.trainer}
        return "\n".join(process.last_words() for name, process in clients.items() if name in (self.dead() or clients))

    def finish(self) -> Account:
        """Let rollouts in flight end, let the trainer take what it can, and account for everything."""
        self._stop.touch()
        for name in self.environments:
            wait_until(f"{name} is quiet", lambda name=name: self._is_quiet(name), 60)  # type: ignore[misc]
        assert not self.dead(), f"{self.dead()} died\n{self.troubles()}"
        self._drain.touch()
        assert self.trainer.wait(60) == 0, self.trainer.last_words()
        groups = self.service.status()["groups"]
        return Account.draw_up(self.sent(), self.served(), groups["queued"] + groups["buffered"])

    def env_id(self, name: str) -> int:
        """Give the id that an environment was registered under."""
        ids = [int(e["env_id"]) for e in read_journal(self._journal(name)) if e["event"] == "registered"]
        assert len(ids) == 1, f"{name} registered {len(ids)} times"
        return ids[0]

    def named(self, name: str) -> list[str]:
        """Give the ids that an environment gave its groups, in the order they were sent."""
        return [str(e["id"]) for e in read_journal(self._journal(name)) if e["event"] == "named"]

    def events(self, name: str) -> list[Event]:
        """Give what an environment wrote down, oldest first."""
        return read_journal(self._journal(name))

    def _url(self, client: str) -> str:
        """Give a client's base URL, with its token as password."""
        if client not in self._tokens:
            return self.service.url
        scheme, _, host = self.service.url.partition("://")
        return f"{scheme}://{client}:{self._tokens[client]}@{host}"

    def _is_quiet(self, name: str) -> bool:
        sent = Sent.read(name, self._journal(name))
        return not self.environments[name].alive or (sent.quiet and sent.open_attempts == 0)

    def _journal(self, name: str) -> Path:
        return self._folder / f"{name}.jsonl"

    def _run(self, name: str, script: str, *arguments: str) -> Process:
        command = [str(self._python), str(CLIENTS / script), *arguments]
        return Process(name, command, self._folder / f"{name}.log", CLIENT_VARIABLES, self._folder)

    def _environment(self, name: str, think_ms: int, model_url: str, tokenizer: Path) -> Process:
        options = {
            "env.rollout_server_url": self._url(name),
            "env.tokenizer_name": tokenizer,
            "env.journal": self._journal(name),
            "env.stop_file": self._stop,
            "openai.base_url": model_url,
            "openai.model_name": f"think-{think_ms}",
        }
        flags = [part for option, value in options.items() for part in (f"--{option}", str(value))]
        return self._run(name, f"env_{name}.py", "serve", *flags)
