"""Arrays as PyTorch tensors, where PyTorch is installed, and what comes in dtypes that numpy has not."""

from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lachesis.wire.blob import LABELLED

_BITS = {"BF16": (np.int16, "bfloat16"), "F8_E4M3": (np.uint8, "float8_e4m3fn"), "F8_E5M2": (np.uint8, "float8_e5m2")}
_LABELS = {name: label for label, (_, name) in _BITS.items()}


def shared(array: NDArray[Any], dtype: str = "") -> Any:
    """Return a tensor over the memory of ``array``, which is writable.

    Args:
        array: Values; or the bits of a dtype that numpy does not have.
        dtype: As safetensors names it.
    """
    torch: Any = import_module("torch")  # an optional package; its functions that load files are never used
    if dtype not in _BITS:
        return torch.from_numpy(array)
    bits, name = _BITS[dtype]
    return torch.from_numpy(array.view(bits)).view(getattr(torch, name))


def labelled(value: Any) -> NDArray[Any]:
    """Return a value as an array; bf16 and f8 as their bits, in their dtype of `lachesis.wire.blob.LABELLED`.

    PyTorch's tensors on the CPU are known by their dtype's name, and so are arrays of ml_dtypes, which JAX gives.
    """
    name = str(getattr(value, "dtype", ""))
    label = _LABELS.get(name.removeprefix("torch."))
    if label is None:
        return np.asarray(value)
    if name.startswith("torch."):  # numpy cannot read it, but its bits
        value = value.view(getattr(import_module("torch"), _BITS[label][0].__name__))
    return np.asarray(value).view(LABELLED[label])
