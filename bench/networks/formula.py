"""Weights and inputs by a formula of (name, index), the same in `crates/gallerist-train/tests/networks/`.

So a golden file holds names, shapes and results, and no weights.
"""

import numpy as np

MASK = (1 << 64) - 1


def unit(name: str, count: int) -> np.ndarray:
    """`count` numbers in [0, 1): SplitMix64 started at FNV-1a of the name."""
    state = 0xCBF29CE484222325
    for byte in name.encode():
        state = ((state ^ byte) * 0x100000001B3) & MASK
    with np.errstate(over="ignore"):
        z = np.uint64(state) + np.uint64(0x9E3779B97F4A7C15) * np.arange(1, count + 1, dtype=np.uint64)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return (z >> np.uint64(40)).astype(np.float64) / (1 << 24)


def tensor(name: str, shape) -> np.ndarray:
    """A parameter: its kind is read off the name's end and the number of its sides."""
    shape = tuple(shape)
    u = unit(name, int(np.prod(shape))).reshape(shape)
    symmetric = 2 * u - 1
    if len(shape) == 4:
        return symmetric * np.sqrt(6 / np.prod(shape[1:]))
    if len(shape) == 2:
        return symmetric * np.sqrt(6 / sum(shape))
    if name.endswith(".p"):
        return 3 + symmetric
    if name.endswith(("weight", "running_var")):
        return 0.5 + u
    return 0.2 * symmetric
