"""How exact a commutator is in each precision, by its condition."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from ..._core import commutator
from .._report import Row, above, below


# The relative error of a rounding to nearest.
ROUNDING = {"bfloat16": 2.0**-8, "float32": 2.0**-24, "float64": 2.0**-53}
_SIZE = 16
_CONDITIONS = np.array([10.0, 174.0, 1.7e3, 1.7e4, 1.7e5, 1.7e6])


def precision(seed: int) -> tuple[list[Row], dict[str, np.ndarray]]:
    """Errors of [H, W] by its condition `|H| |W| / |[H, W]|`, and where they are from.

    Both matrices are rounded to the precision, so that no method errs by much less
    than a rounding times the condition.
    """
    rng = np.random.default_rng(seed)
    H, R = (rng.standard_normal((_SIZE, _SIZE)) for _ in range(2))
    H = _traceless((H + H.T) / 2)
    rows, data = [], {"condition": _CONDITIONS}
    pairs = [(H, _partner(H, R, condition)) for condition in _CONDITIONS]
    for name, unit in ROUNDING.items():
        errors = np.array([_error(_ours, H, W, name) for H, W in pairs])
        data[f"error, {name}"] = errors
        for k in (1, 3):
            claim = f"{name}, condition {_CONDITIONS[k]:g}: error of [H, W]"
            rows.append(below(claim, errors[k], 2 * unit * _CONDITIONS[k]))
    claim = "bfloat16, condition 17000: error of [H, W], no digit is left"
    rows.append(above(claim, data["error, bfloat16"][3], 1.0))
    return rows + _traces(pairs[1]) + _half(rng), data


def _traceless(x):
    return x - np.trace(x) / len(x) * np.eye(len(x))


def _partner(H, R, condition) -> np.ndarray:
    """A traceless W that nearly commutes with H: H^2 and a little of R."""
    W = _traceless(H @ H)
    change = np.linalg.norm(H @ R - R @ H)
    return W + np.linalg.norm(H) * np.linalg.norm(W) / condition / change * R


def _traces(pair) -> list[Row]:
    """Multiples of the identity, which commute, and cost digits unless removed."""
    shift = 10 * np.linalg.norm(pair[0]) / np.sqrt(_SIZE) * np.eye(_SIZE)
    H, W = (np.asarray(x + shift, np.float32).astype(float) for x in pair)
    ours, plain = (_error(product, H, W, "float32") for product in (_ours, _plain))
    claim = "float32, traces of 10 |H|: error by H W - W H over ours, without them"
    return [above(claim, plain / ours, 3.0)]


def _half(rng) -> list[Row]:
    """Integers that bfloat16 holds: what is left is arithmetic, not data."""
    H = rng.integers(-3, 4, (_SIZE, _SIZE)).astype(float)
    W = 64 * H + rng.integers(-1, 2, (_SIZE, _SIZE))
    claim = "bfloat16, integers: error of [H, W]"
    unit = ROUNDING["bfloat16"]
    return [
        below(f"{claim}, computed in float32", _error(_ours, H, W, "bfloat16"), unit),
        above(f"{claim}, computed in bfloat16", _error(_plain, H, W, "bfloat16"), 0.05),
    ]


def _ours(H, W):
    return commutator(H, W)


def _plain(H, W):
    return jnp.matmul(H, W) - jnp.matmul(W, H)


def _error(product: Any, H: np.ndarray, W: np.ndarray, name: str) -> float:
    """The relative error of a product of the rounded matrices; longer ones judge it."""
    found = product(*(jnp.asarray(x, jnp.dtype(name)) for x in (H, W)))
    found = np.asarray(found.astype(jnp.float64), np.longdouble)
    H, W = (np.asarray(x, np.longdouble) for x in (H, W))
    exact = H @ W - W @ H
    return float(np.linalg.norm(found - exact) / np.linalg.norm(exact))
