"""One adapter a framework: NumPy arrays in, NumPy arrays out, and its autodiff.

Every module here has the same functions:

* `to_native(array)` and `to_numpy(array)`: to the framework's arrays and back, bit for
  bit, bfloat16 included (as ml-dtypes' type in NumPy).  A framework whose arrays have
  strides keeps those of `array`, and may keep its memory: the caller gives it away;
* `is_native(value)`: whether a value is one of the framework's arrays;
* `device(array)`: the device that holds an array, in words;
* `shares_memory(a, b)`: whether writing into one array would change another one;
* `vjp(call, arguments, cotangents)`: gradients of `call(*arguments)`, a tuple, by the
  framework's autodiff; None where the framework has none;
* `compiled(call)`: `call` through the framework's compiler, all of it;
* `no_compiler()`: why calls do not go through one here; None where they do;
* `precision(dtype)`: a context in which the framework computes in that storage type;
* `tidy()`: lets go of what the framework keeps of calls, before that is too much;
* `describe()`: version and device in words.
"""

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import numpy as np

NAMES = tuple(
    sorted(p.stem for p in Path(__file__).parent.glob("*.py") if p.stem != "__init__")
)


def adapter(name: str) -> ModuleType:
    """The adapter of a framework; imports the framework."""
    return import_module(f"attncheck.frameworks.{name}")


def installed() -> list[str]:
    """The frameworks that can be imported here, found without importing them."""
    return [name for name in NAMES if find_spec(name)]


def how_to_install(name: str) -> str:
    """The command that installs a framework, at a version that its room is for."""
    return f"pip install 'attnref[{name}]', or '.[{name}]' in a clone"


def as_numpy(array: object) -> np.ndarray:
    """The NumPy array of any framework's array, on any device.

    Raises:
        TypeError: it is no array of a framework that is known here.
    """
    for name in NAMES:
        # An array of a framework exists only where that framework is imported.
        if name in sys.modules and (framework := adapter(name)).is_native(array):
            return framework.to_numpy(array)
    raise TypeError(
        f"not an array of {', '.join(NAMES)}, but {type(array).__module__}."
        f"{type(array).__name__}"
    )
