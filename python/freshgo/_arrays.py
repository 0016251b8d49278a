"""Arrays of users as tensors: whatever strides they have and whether they may be written or not."""

from __future__ import annotations

import warnings

import numpy as np
import torch
from torch import Tensor


def as_tensor(value: object) -> Tensor:
    """Return a tensor as it is, and anything else as NumPy reads it: over the same memory where PyTorch has such
    strides.

    Raises:
        TypeError, ValueError: NumPy reads no numbers there, or none that PyTorch has.
    """
    if isinstance(value, Tensor):
        return value
    array = np.asarray(value)
    if any(stride < 0 for stride in array.strides):  # PyTorch has none: of edges[::-1], of argsort()[::-1]
        array = array.copy()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")  # nothing here writes to it
        return torch.from_numpy(array)
