"""Arrays as safetensors files."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from attncheck.lines import LIMIT, ExchangeError, check_size, sentence


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes arrays as one safetensors file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    packed = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    save_file(packed, path)


def read_arrays(path: Path, limit: int = LIMIT) -> dict[str, np.ndarray]:
    """The arrays of a safetensors file.

    Args:
        limit: bytes of the largest file that is read.

    Raises:
        ExchangeError: the file is missing, damaged or too large.
    """
    if not path.is_file():  # nor a pipe, at which one would wait for ever
        raise ExchangeError(f"{path} cannot be read: there is no such file")
    check_size(path, limit)
    try:
        arrays = load_file(path)
    # AttributeError: a type that safetensors knows and NumPy does not.
    except (OSError, SafetensorError, AttributeError, ValueError) as error:
        raise ExchangeError(f"{path} cannot be read: {sentence(error)}") from error
    for name, array in arrays.items():
        if array.dtype == bool and (array.view(np.uint8) > 1).any():
            raise ExchangeError(f"{path} cannot be read: `{name}` is neither 0 nor 1")
    return arrays
