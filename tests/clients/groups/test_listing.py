"""A trainer's process lists and reads groups."""

import base64

import httpx
import ml_dtypes
import numpy as np
import pytest

from lachesis import AsyncEnvironment, AsyncTrainer, Settings, Trainer
from lachesis.errors import EnvironmentNotFound, GroupGone, InvalidField
from tests.clients.proxy import CuttingProxy
from tests.clients.run import group, submitted
from tests.clients.test_sync import in_thread


async def test_pages_have_every_group_although_answers_are_lost(run: Settings, proxy: CuttingProxy) -> None:
    async with AsyncTrainer(run) as trainer, AsyncEnvironment("math", run) as environment:
        sent = await submitted(environment, [group(n) for n in range(1, 8)])
        proxy.cut("reply", 0)
        page = await trainer.list_groups(environment="math", limit=3)
        found = [one.id for one in page.groups]
        while page.cursor is not None:
            page = await trainer.list_groups(environment="math", limit=3, cursor=page.cursor)
            found += [one.id for one in page.groups]
        assert proxy.cuts == 1
        assert found == sent[::-1]
        assert (await trainer.list_groups(state="dropped")).groups == []
        with pytest.raises(EnvironmentNotFound, match="physics"):
            await trainer.list_groups(environment="physics")
        with pytest.raises(InvalidField, match="cursor"):
            await trainer.list_groups(cursor="?")


async def test_code_without_an_event_loop_lists_and_reads_groups_too(run: Settings) -> None:
    async with AsyncEnvironment("math", run) as environment:
        (sent,) = await submitted(environment, [group(1)])

    def story() -> None:
        with Trainer(run) as trainer:
            (found,) = trainer.list_groups(environment=0, score_min=-100.0).groups
            whole, part = trainer.read_group(sent), trainer.read_group(sent, sequence=0, first_token=1, tokens=1)
            assert (part.tokens, part.lengths) == ([whole.tokens[0][1:2]], whole.lengths)
            entropy = [np.linspace(0, 1, length, dtype=np.float32) for length in whole.lengths]
            assert trainer.annotate_group(sent, {"entropy": entropy}) == ["entropy"]
            assert trainer.group_annotations(sent) == {"entropy": [row.tolist() for row in entropy]}
            with pytest.raises(InvalidField, match="entropy"):
                trainer.annotate_group(sent, {"entropy": [*entropy, [0.0]]})
            trainer.delete_group(sent)
            assert trainer.find_group(sent).annotations == ["entropy"]
            with pytest.raises(GroupGone, match="deleted"):
                trainer.read_group(sent)
            assert (found.id, found.state, found.environment_name) == (sent, "queued", "math")

    await in_thread(story)


async def test_floats_that_numpy_lacks_are_read_and_submitted_again_as_json(run: Settings) -> None:
    kinds = {"BF16": ml_dtypes.bfloat16, "F8_E4M3": ml_dtypes.float8_e4m3fn, "F8_E5M2": ml_dtypes.float8_e5m2}
    given = {name: np.array([[1.5, -2.0]], kind) for name, kind in kinds.items()}
    async with AsyncEnvironment("math", run) as environment, AsyncTrainer(run) as trainer:
        (sent,) = await submitted(environment, [group(1, tensors=given)])
        tensors = (await trainer.read_group(sent)).tensors
        assert tensors is not None
        for name, array in given.items():
            found = tensors[name]
            assert (found.dtype, found.shape) == (name, [1, 2])
            assert base64.b64decode(found.data) == array.tobytes()
        again = {"id": "again", "tokens": [[1]], "masks": [[1]], "scores": [1.0]}
        async with httpx.AsyncClient(base_url=run.url, trust_env=False) as client:
            body = again | {"tensors": {name: one.model_dump() for name, one in tensors.items()}}
            (await client.post(f"/v1/runs/{run.run}/groups", json=body)).raise_for_status()
        assert (await trainer.read_group("again")).tensors == tensors
