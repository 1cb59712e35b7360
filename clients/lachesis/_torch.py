"""Arrays as PyTorch tensors, where PyTorch is installed."""

from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

_BITS = {"BF16": (np.int16, "bfloat16"), "F8_E4M3": (np.uint8, "float8_e4m3fn"), "F8_E5M2": (np.uint8, "float8_e5m2")}


def shared(array: NDArray[Any], dtype: str = "") -> Any:
    """Return a tensor over the memory of ``array``, which is writable.

    Args:
        array: Values; or the bits of a dtype that numpy does not have.
        dtype: As safetensors names it.
    """
    torch: Any = import_module("torch")  # no dependency of ours; and its way to load files is never used
    if dtype not in _BITS:
        return torch.from_numpy(array)
    bits, name = _BITS[dtype]
    return torch.from_numpy(array.view(bits)).view(getattr(torch, name))
