"""What Atropos clients send, spelled once."""

from typing import Any

import httpx

Group = dict[str, Any]


def registration(batch_size: int = 8, **changes: Any) -> dict[str, Any]:
    return {
        "wandb_group": "group",
        "wandb_project": "project",
        "batch_size": batch_size,
        "max_token_len": 512,
        "checkpoint_dir": "checkpoints",
        "save_checkpoint_interval": 10,
        "starting_step": 0,
        "num_steps": 100,
    } | changes


def group(size: int, mark: int = 0, env_id: int | None = None, **more: Any) -> Group:
    """A group of ``size`` short sequences whose first tokens are ``mark``."""
    return {
        "tokens": [[mark, n, 7] for n in range(size)],
        "masks": [[-100, n, 7] for n in range(size)],
        "scores": [float(n) for n in range(size)],
        "env_id": env_id,
    } | more


async def register(client: httpx.AsyncClient, batch_size: int = 8, **changes: Any) -> None:
    """Register a trainer and let it ask once, so that environments may register."""
    reply = await client.post("/register", json=registration(batch_size, **changes))
    assert reply.status_code == 200, reply.text
    await client.get("/batch")


async def register_env(
    client: httpx.AsyncClient, name: str = "env", group_size: int = 4, minimum: float | None = None, **changes: Any
) -> dict[str, Any]:
    reply = await client.post(
        "/register-env",
        json={
            "max_token_length": 512,
            "desired_name": name,
            "weight": 1.0,
            "group_size": group_size,
            "min_batch_allocation": minimum,
        }
        | changes,
    )
    assert reply.status_code == 200, reply.text
    answer: dict[str, Any] = reply.json()
    return answer


async def post(client: httpx.AsyncClient, a_group: Group) -> dict[str, Any]:
    reply = await client.post("/scored_data", json=a_group)
    assert reply.status_code == 200, reply.text
    answer: dict[str, Any] = reply.json()
    return answer


async def batch(client: httpx.AsyncClient) -> list[Group] | None:
    reply = await client.get("/batch")
    assert reply.status_code == 200, reply.text
    groups: list[Group] | None = reply.json()["batch"]
    return groups


async def status(client: httpx.AsyncClient) -> dict[str, Any]:
    answer: dict[str, Any] = (await client.get("/status")).json()
    return answer


def on_the_way(answer: dict[str, Any]) -> int:
    """Return how many batches are being sent, or were sent and are not acknowledged, by the status of a run."""
    return sum(lease["state"] in ("sending", "sent") for lease in answer["leases"])


def marks(groups: list[Group]) -> list[int]:
    return [g["tokens"][0][0] for g in groups]


def sequences(groups: list[Group]) -> int:
    return sum(len(g["tokens"]) for g in groups)
