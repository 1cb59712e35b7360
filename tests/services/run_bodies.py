"""Groups of the plain model as bodies of submissions: JSON, and blobs."""

import json

import numpy as np

from lachesis.wire.columns import Ragged, pack
from lachesis.wire.frame import frame
from tests.services.run_model import Group


def as_json(groups: list[Group]) -> bytes:
    bodies = [
        {
            "id": group.id,
            "environment": group.environment,
            "policy_version": group.version,
            "tokens": [[n + 1] * length for n, length in enumerate(group.lengths)],
            "masks": [[n + 1] * length for n, length in enumerate(group.lengths)],
            "scores": [float(group.contents)] * group.size,
            "item": group.item,
        }
        for group in groups
    ]
    return json.dumps(bodies[0] if len(bodies) == 1 else {"groups": bodies}).encode()


def as_blobs(groups: list[Group]) -> bytes:
    blobs = []
    for group in groups:
        tokens = Ragged(np.repeat(np.arange(1, group.size + 1), group.lengths), (np.array(group.lengths),))
        scores = Ragged(np.full(group.size, float(group.contents)))
        said = {"id": group.id, "environment": group.environment, "policy_version": group.version, "item": group.item}
        metadata = {name: str(value) for name, value in said.items() if value is not None}
        blobs.append(pack({"tokens": tokens, "masks": tokens, "scores": scores}, b"{}", metadata))
    return blobs[0] if len(blobs) == 1 else frame(blobs, "groups")
