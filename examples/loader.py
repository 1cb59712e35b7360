"""Load episodes of a shard in parallel, stop in the middle of an epoch, and go on from there.

python examples/loader.py
"""

import json
import tempfile
from pathlib import Path

import numpy as np

from lachesis.loader import Episode, Loader, Pad, encode, episode_files


def write_shard(folder: Path, episodes: int) -> Path:
    """Write episodes of unequal length and the manifest that ``python -m app shards plan`` would write for them."""
    manifest = folder / "rank-00000-of-00001.jsonl"
    with manifest.open("w") as lines:
        for number in range(episodes):
            length = 10 + 7 * number % 13
            arrays = {"obs": {"image": np.full((length, 8, 8), number, np.uint8)}, "action": np.arange(length)}
            (folder / f"episode-{number}.safetensors").write_bytes(encode(arrays))
            lines.write(json.dumps({"episode": f"episode-{number}", "length": length, "cost": float(length)}) + "\n")
    return manifest


def loader_of(manifest: Path) -> Loader[Episode]:
    """Make the loader of a trainer that may have been started before."""
    return Loader(episode_files(manifest, manifest.parent), 4, prefetch_batches=2, seed=0, ragged=Pad())


def main() -> None:
    """Train for a while, crash, and train on."""
    with tempfile.TemporaryDirectory() as folder:
        manifest = write_shard(Path(folder), episodes=18)
        with loader_of(manifest) as loader:
            for turn, batch in enumerate(loader, start=1):
                images, lengths, _ = batch.data["obs"]["image"]
                print(f"epoch {batch.epoch}: images {images.shape}, lengths {lengths.tolist()}")
                saved = json.dumps(loader.state_dict())  # beside the weights
                if turn == 2:
                    break
        restored = loader_of(manifest)
        restored.load_state_dict(json.loads(saved))
        left = [episode.episode for batch in restored for episode in batch.keys]
        print(f"restored: {len(left)} episodes are left of the epoch")


if __name__ == "__main__":
    main()
