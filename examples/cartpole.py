"""Learn to balance a pole: processes play CartPole into a replay buffer, and a double DQN learns from samples of it.

    LACHESIS_URL=http://127.0.0.1:8000 LACHESIS_RUN=cartpole python examples/cartpole.py --workers 3

It needs a service (`make run`) and `pip install gymnasium`, and takes a minute or so. It ends when the pole stays up,
after `--steps`, or with Ctrl-C. When you start it again, it learns from the start. Workers need only the learner's file
of weights. `--worker` starts one by hand, also on another machine that can read the file.
"""

import argparse
import itertools
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy is imported: the processes are the parallelism

import gymnasium
import numpy as np
from numpy.typing import NDArray

from lachesis import LachesisError, Replay, Trainer
from lachesis.wire.replay import RateLimiter, Sampling

Floats = NDArray[Any]
Weights = dict[str, Floats]

# The buffer. A chunk is one fragment, and a fragment 16 steps.
FRAGMENT_STEPS, STEPS_AT_ONCE = 16, 64
BUFFER: dict[str, Any] = {
    "max_chunks": 10_000,
    "max_staleness": 25,  # policy versions
    "max_reuse": 32,
    "sampling": Sampling(strategy="proportional", alpha=1.0, beta=0.6),
    "min_size_to_sample": 128,
    # Each chunk is used 8 times on average, however fast the workers play and the learner learns.
    "limiter": RateLimiter(samples_per_insert=8, min_diff=0, max_diff=2048),
}

# The learner.
SAMPLE_CHUNKS, MINIBATCHES, PUBLISH_EVERY, EVALUATE_EVERY = 128, 4, 2, 10
LAYERS, LEARNING_RATE, AVERAGING = (4, 128, 128, 2), 1e-3, 0.05
DISCOUNT, STEPS_AHEAD = 0.99, 3
SCALE = np.array([0.5, 0.5, 5.0, 0.5], np.float32)  # position, speed, angle, angular speed: to about 1


def new_weights(rng: np.random.Generator) -> Weights:
    """Draw the weights of a multilayer perceptron."""
    weights: Weights = {}
    for layer, (inputs, outputs) in enumerate(itertools.pairwise(LAYERS)):
        weights[f"w{layer}"] = rng.normal(0, np.sqrt(2 / inputs), (inputs, outputs)).astype(np.float32)
        weights[f"b{layer}"] = np.zeros(outputs, np.float32)
    return weights


def activations(weights: Weights, observations: Floats) -> list[Floats]:
    """Return what goes into each layer [n, width], and at last the values of both actions [n, 2]."""
    layers, last = [observations * SCALE], len(weights) // 2 - 1
    for layer in range(last + 1):
        out = layers[-1] @ weights[f"w{layer}"] + weights[f"b{layer}"]
        layers.append(out if layer == last else np.maximum(out, 0))
    return layers


def values(weights: Weights, observations: Floats) -> Floats:
    """Return the values of both actions: [n, 2]."""
    return activations(weights, observations)[-1]


def gradient(weights: Weights, layers: list[Floats], slope: Floats) -> Weights:
    """Return the gradient of a loss whose slope is ``slope`` [n, 2] by the values."""
    found: Weights = {}
    for layer in reversed(range(len(weights) // 2)):
        found[f"w{layer}"] = layers[layer].T @ slope
        found[f"b{layer}"] = slope.sum(axis=0)
        slope = (slope @ weights[f"w{layer}"].T) * (layers[layer] > 0)
    return found


def targets(reward: Floats, terminated: Floats, truncated: Floats, after: Floats) -> Floats:
    """Return what each step's value should be: rewards of the next few steps, and the value of where they lead.

    Looks as far ahead as `STEPS_AHEAD`, the end of the episode or that of the fragment. An episode that terminated is
    worth nothing from there on; one that was truncated would have gone on, and is worth what its last observation is.

    Args:
        reward, terminated, truncated: Of each step: [fragments, steps].
        after: The value of the observation after each: [fragments, steps].
    """
    one_ahead = reward + DISCOUNT * np.where(terminated, 0, after)
    ahead = one_ahead
    for _ in range(STEPS_AHEAD - 1):
        further = reward[:, :-1] + DISCOUNT * ahead[:, 1:]
        inner = np.where((terminated | truncated)[:, :-1], one_ahead[:, :-1], further)
        ahead = np.concatenate([inner, one_ahead[:, -1:]], axis=1)
    return ahead


class Learner:
    """Double DQN with Adam. Its averaged weights make the targets, and are what plays."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.weights = new_weights(rng)
        self.averaged = dict(self.weights)
        self._steps = 0
        self._mean = {name: np.zeros_like(array) for name, array in self.weights.items()}
        self._square = {name: np.zeros_like(array) for name, array in self.weights.items()}

    def learn(self, data: Any, importance: Floats) -> Floats:
        """Learn from fragments, each of this ``importance``; returns the errors: [fragments, steps]."""
        parts = np.array_split(np.arange(len(importance)), MINIBATCHES)
        return np.concatenate([self._step({k: v[part] for k, v in data.items()}, importance[part]) for part in parts])

    def _step(self, data: dict[str, Floats], importance: Floats) -> Floats:
        best = values(self.weights, data["after"]).argmax(axis=-1)
        after = _chosen(values(self.averaged, data["after"]), best)
        wanted = targets(data["reward"], data["terminated"], data["truncated"], after)

        layers = activations(self.weights, data["observation"].reshape(-1, LAYERS[0]))
        errors = _chosen(layers[-1].reshape(*wanted.shape, 2), data["action"]) - wanted
        slope = np.zeros((*wanted.shape, 2), np.float32)
        huber = np.clip(errors, -1, 1) * importance[:, None] / errors.size
        np.put_along_axis(slope, data["action"][..., None], huber[..., None], axis=-1)
        self._descend(gradient(self.weights, layers, slope.reshape(-1, 2)))
        size: Floats = np.abs(errors)
        return size

    def _descend(self, slopes: Weights) -> None:
        self._steps += 1
        rate = LEARNING_RATE * np.sqrt(1 - 0.999**self._steps) / (1 - 0.9**self._steps)
        for name, slope in slopes.items():
            self._mean[name] += 0.1 * (slope - self._mean[name])
            self._square[name] += 0.001 * (slope**2 - self._square[name])
            step = np.float32(rate) * self._mean[name] / (np.sqrt(self._square[name]) + 1e-8)
            self.weights[name] = self.weights[name] - step
            self.averaged[name] = self.averaged[name] + AVERAGING * (self.weights[name] - self.averaged[name])


def _chosen(of_actions: Floats, actions: Floats) -> Floats:
    return np.take_along_axis(of_actions, actions[..., None], axis=-1)[..., 0]


def save(path: Path, version: int, weights: Weights) -> None:
    """Put the weights where workers look for them: a worker reads the old ones or the new, never half of either."""
    beside = path.with_suffix(".new.npz")
    arrays: dict[str, Any] = {"version": version, **weights}
    np.savez(beside, **arrays)
    beside.replace(path)


def load(path: Path) -> tuple[int, Weights]:
    """Read a policy version and its weights."""
    with np.load(path) as arrays:
        weights = dict(arrays)
    return int(weights.pop("version")), weights


def evaluate(weights: Weights, episodes: int, seed: int) -> float:
    """Play without exploring; returns for how many steps the pole stayed up, 500 at most, on average."""
    env, steps = gymnasium.make("CartPole-v1"), 0
    for episode in range(episodes):
        observation, over = env.reset(seed=seed + episode)[0], False
        while not over:
            observation, _, terminated, truncated, _ = env.step(int(values(weights, observation).argmax()))
            over = terminated or truncated
            steps += 1
    return steps / episodes


def work(name: str, seed: int, epsilon: float, path: Path) -> None:
    """Play forever with the newest weights, and with a random action now and then."""
    rng = np.random.default_rng(seed)
    env = gymnasium.make("CartPole-v1", sutton_barto_reward=True)  # -1 when the pole falls, else 0
    env.reset(seed=seed)  # the episodes follow from here
    # The rate limiter makes workers wait for the learner: for this long only, as it may be gone.
    with Replay() as replay, replay.worker(name, FRAGMENT_STEPS, patience_s=30) as worker:
        for episode in itertools.count():
            observation, over = env.reset()[0], False
            while not over:
                version, weights = load(path)
                steps: list[dict[str, Any]] = []
                while not over and len(steps) < STEPS_AT_ONCE:
                    explores = rng.random() < epsilon
                    action = int(rng.integers(2) if explores else values(weights, observation).argmax())
                    after, reward, terminated, truncated, _ = env.step(action)
                    step = {"observation": observation, "action": action, "reward": reward, "after": after}
                    steps.append(step | {"terminated": terminated, "truncated": truncated})
                    observation, over = after, terminated or truncated
                arrays = {key: np.array([step[key] for step in steps]) for key in steps[0]}
                worker.insert(arrays, policy_version=version, episode=f"{name}/{episode}", reward=arrays["reward"])
                if worker.outcomes["old_session"]:
                    return  # another learner has started, with workers of its own


@contextmanager
def workers(count: int, seed: int, path: Path) -> Iterator[None]:
    """Run so many workers, from one that explores a lot to one that hardly does."""
    running = []
    for number, epsilon in enumerate(np.geomspace(0.5, 0.05, count)):
        command = [sys.executable, __file__, "--worker", f"worker-{number}", "--epsilon", f"{epsilon:.3f}"]
        command += ["--seed", str(seed + 1 + number), "--weights", str(path)]
        # In a session of its own, for Ctrl-C to reach the learner alone.
        running.append(subprocess.Popen(command, start_new_session=True))
    try:
        yield
    finally:
        for process in running:
            process.terminate()  # at any moment: what it had not sent yet is all that is lost
        for process in running:
            process.wait()


def learn(count: int, seed: int, path: Path, steps: int, target: float) -> None:
    """Learn from samples until the target is reached."""
    learner = Learner(np.random.default_rng(seed))
    with Trainer() as trainer, Replay(name="cartpole") as replay:
        trainer.create_run(batch_size=1)
        state = replay.set_up(**BUFFER)
        replay.begin_session(state.session + 1)  # nothing from before is sampled any more
        version = state.policy_version
        save(path, version, learner.averaged)
        with workers(count, seed, path):
            for step, sample in enumerate(replay.samples(SAMPLE_CHUNKS, prefetch=2, wait_s=60), start=1):
                errors = learner.learn(sample.stacked(), sample.importance_weights)
                priorities = 0.9 * errors.max(axis=1) + 0.1 * errors.mean(axis=1)
                replay.set_priorities(dict(zip(sample.chunks, priorities.tolist(), strict=True)))
                sample.ack()
                if step % PUBLISH_EVERY == 0:
                    version += 1
                    trainer.set_policy_version(version)  # first: experience of a version unheard of is refused
                    save(path, version, learner.averaged)
                if step % EVALUATE_EVERY == 0 or step == steps:
                    mean, state = evaluate(learner.averaged, 20, seed=10_000), replay.state()
                    held = f"{state.sampleable_chunks} chunks, mean staleness {state.avg_staleness:.1f}"
                    print(f"step {step}: mean return {mean:.1f}; {held}", flush=True)
                    if mean >= target or step == steps:
                        save(path, version, learner.averaged)
                        print(f"{'solved' if mean >= target else 'not solved'}; the weights are in {path}")
                        break


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=3, help="processes that play")
    parser.add_argument("--steps", type=int, default=2000, help="samples to learn from, at most")
    parser.add_argument("--target", type=float, default=475, help="mean return at which it is solved")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--weights", type=Path, default=Path("cartpole.npz"), help="where the learner puts them")
    parser.add_argument("--worker", help="be a worker of this name, for a learner that runs already")
    parser.add_argument("--epsilon", type=float, default=0.1, help="of a worker: how often it acts at random")
    given = parser.parse_args()
    logging.basicConfig(format="%(levelname)s %(message)s", level=logging.WARNING)
    try:
        if given.worker:
            work(given.worker, given.seed, given.epsilon, given.weights)
        else:
            learn(given.workers, given.seed, given.weights, given.steps, given.target)
    except LachesisError as error:
        sys.exit(f"{given.worker or 'learner'}: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
