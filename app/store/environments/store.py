"""Write and forget the environments of a run."""

import json
import uuid
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict

from app.core.environments.record import EnvironmentRecord
from app.core.runs.view import RunView
from app.store.environments import scripts
from app.store.redis.client import RedisClient
from app.store.redis.keys import RunKeys
from app.store.runs.view import parse_environment, reading, sent_text


class EnvironmentStore:
    """Changes the environments of a run, and reads what one of them asked for."""

    def __init__(self, connection: RedisClient) -> None:
        self._connection = connection

    async def desired_name(self, run: str, environment: int) -> str | None:
        """Return the name that an environment asked for; None if the run has no such environment.

        Raises:
            UnreadableRecord: Its record cannot be read.
        """
        record = await self._connection.call("HGET", RunKeys(run).environments, str(environment))
        with reading(run):
            return None if record is None else parse_environment(record).desired_name

    async def put(self, run: str, environment: EnvironmentRecord, epoch: int) -> bool:
        """Write an environment's record. Without a `heard_ms`, the last sign of life under its id is forgotten.

        Returns:
            False if any environment or the configuration changed since ``epoch``: read the run and decide again.
        """
        # The token makes the record unique, so a repetition after a lost reply is recognised.
        record = asdict(environment) | {"token": uuid.uuid4().hex}
        del record["heard_ms"], record["members"]
        command = scripts.put_environment(
            RunKeys(run),
            epoch=epoch,
            environment=environment.environment,
            record=json.dumps(record),
            forget_seen=environment.heard_ms is None,
        )
        return bool(await self._connection.run(command))

    async def forget(self, run: str, environments: Sequence[EnvironmentRecord], view: RunView) -> bool:
        """Forget environments without members and groups. Their counts move to no environment.

        Returns:
            False if the run changed after ``view``, or one of them came back: read it and decide again.
        """
        reasons: defaultdict[int | None, list[str]] = defaultdict(list)
        for reason, environment in view.dropped:
            reasons[environment].append(reason)
        forgotten = []
        for key in (environment.environment for environment in environments):
            sent = sent_text(view.sent[key]) if key in view.sent else ""
            forgotten.append(scripts.ForgottenEnvironment(id=str(key), sent=sent, reasons=reasons[key]))
        command = scripts.forget_environments(RunKeys(run), epoch=view.epoch, forgotten=forgotten)
        return bool(await self._connection.run(command))
