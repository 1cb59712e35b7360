"""Make PyTorch tensors on a device of batches, and the input of a recurrent policy of fragments.

PyTorch is imported when it is needed.
"""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lachesis._torch import shared
from lachesis.loader._loader import LoadedBatch
from lachesis.loader.nested import Nested, flatten
from lachesis.loader.stacking import stack


class Recurrent(NamedTuple):
    """The input of a recurrent policy: tensors, nested as in the fragments.

    Attributes:
        observations: [batch, time, …].
        in_states: The policy's state before the first step of each fragment: [batch, …].
        actions: [batch, time, …].
        firsts: Whether an episode begins with this step, so that no state before it counts: bool [batch, time].
    """

    observations: Nested
    in_states: Nested
    actions: Nested
    firsts: Any


def to_device(nested: Nested, device: Any, *, non_blocking: bool = False) -> Nested:
    """Return the same nesting with a tensor on ``device`` for each array and tensor. Other leaves stay as they are.

    On the CPU, a tensor shares the memory of its array, unless the array is read-only. numpy has no bf16: such arrays
    come as their bits (u16), and ``tensor.view(torch.bfloat16)`` makes them numbers again.

    Args:
        nested: A batch, or any dicts, lists and (named) tuples.
        device: What ``tensor.to`` takes.
        non_blocking: See ``tensor.to``; it makes a difference for tensors in pinned memory only.

    Raises:
        ModuleNotFoundError: PyTorch is not installed.
    """
    torch: Any = import_module("torch")

    def move(leaf: Any) -> Any:
        if isinstance(leaf, (np.ndarray, np.generic)):
            leaf = shared(_writable(np.asarray(leaf)))
        return leaf.to(device, non_blocking=non_blocking) if isinstance(leaf, torch.Tensor) else leaf

    return _mapped(move, nested)


def prepare_batch(
    fragments: LoadedBatch[Any] | Sequence[Nested],
    device: Any,
    *,
    observations: str = "obs",
    in_states: str = "in_state",
    actions: str = "action",
    firsts: str = "first",
    non_blocking: bool = False,
) -> Recurrent:
    """Return fragments as a recurrent policy takes them, on a device.

    Args:
        fragments: A batch of a loader, or fragments that are not stacked yet: dicts of arrays [time, …].
        device: What ``tensor.to`` takes.
        observations: The fragments' name for observations: [time, …].
        in_states: Their name for the policy's state before the first step.
        actions: Their name for actions: [time, …].
        firsts: Their name for the flags of first steps: [time].
        non_blocking: See `to_device`.

    Raises:
        KeyError: The fragments have no array of such a name.
        ValueError: The fragments have unequal lengths, or differ in other ways.
        ModuleNotFoundError: PyTorch is not installed.
    """
    data = fragments.data if isinstance(fragments, LoadedBatch) else stack(fragments)
    flags = data[firsts]
    if not isinstance(flags, np.ndarray) or flags.ndim != 2:
        raise ValueError(f"{firsts}: should be an array [batch, time]; fragments must have equal lengths")
    given = {name: data[name] for name in (observations, in_states, actions)}
    for name in (observations, actions):
        _check_shapes(name, given[name], flags.shape)
    _check_shapes(in_states, given[in_states], flags.shape[:1])
    moved = to_device(given, device, non_blocking=non_blocking)
    return Recurrent(
        moved[observations],
        moved[in_states],
        moved[actions],
        to_device(flags.astype(np.bool_), device, non_blocking=non_blocking),
    )


def prepare_observation(observation: Nested, device: Any, *, non_blocking: bool = False) -> Nested:
    """Return a single observation as a batch of one fragment of one step, on a device: tensors [1, 1, …].

    One use is the observation after the last step of a fragment: a learner bootstraps from its value.

    Raises:
        ModuleNotFoundError: PyTorch is not installed.
    """
    widened = _mapped(lambda leaf: np.asarray(leaf)[None, None], observation)
    return to_device(widened, device, non_blocking=non_blocking)


def _check_shapes(name: str, nested: Nested, leading: tuple[int, ...]) -> None:
    for below, array in flatten(nested).items():
        if array.shape[: len(leading)] != leading:
            where = f"{name}/{below}" if below else name
            raise ValueError(f"{where}: has shape {array.shape}, which does not begin with {list(leading)}")


def _mapped(change: Callable[[Any], Any], nested: Nested) -> Nested:
    if isinstance(nested, Mapping):
        return {name: _mapped(change, value) for name, value in nested.items()}
    if isinstance(nested, tuple) and hasattr(nested, "_fields"):
        return type(nested)(*(_mapped(change, value) for value in nested))
    if isinstance(nested, (list, tuple)):
        return type(nested)(_mapped(change, value) for value in nested)
    return change(nested)


def _writable(array: NDArray[Any]) -> NDArray[Any]:
    return array if array.flags.writeable else array.copy()
