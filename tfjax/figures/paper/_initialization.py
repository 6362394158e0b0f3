"""Random blocks at initialisation: when angles between tokens grow, and gradients."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize

from ...attention import attend
from ...theory import (
    angle_exponent,
    gradient_exponent,
    random_block,
    random_block_norm,
)
from .._base import BLUE, GREY, PALETTE, RED, new_figure, style
from .._report import Progress, Report, Row, above, below, near, quiet, within


_N, _A, _M = 32, 0.5, 0.5
_GAP, _BLOCKS = 1e-5, 8
_SCALES = (1.0, 2.0, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0)


def signal_propagation(
    *, seed: int = 0, quick: bool = False, progress: Progress = quiet
) -> Report:
    """Random Transformer blocks: order below a scale of the weights, chaos above it.

    **Arguments:**

    - `seed`: of the blocks and the tokens.
    - `quick`: four scales and width 128, in place of eight and 512.
    - `progress`: is called with the fraction that is done.

    **Returns:** a report: the angle and the gradient exponent of blocks of finite width
    against the formulas of infinite width, the zero of the angle exponent, and the
    cosine of tokens along depth on both sides of it.

    Source: arXiv 2403.02579 (the block and the exponents); the formulas are those of
    `tfjax.theory.angle_exponent`, derived there.
    """
    d, draws = (128, 40) if quick else (512, 64)
    scales = np.array(_SCALES[1::2] if quick else _SCALES)
    key = jax.random.key(seed)
    angles, gradients = np.empty((2, scales.size, draws))
    for k, scale in enumerate(scales):
        keys = jax.random.split(jax.random.fold_in(key, k), draws)
        angles[k], gradients[k] = _growths(keys, d, 1.0, scale)
        progress(0.8 * (k + 1) / scales.size)
    zero = scipy.optimize.brentq(lambda s: float(angle_exponent(_A, _M, s)), 3.0, 6.0)
    lines = {
        "angle": (angles, np.asarray(angle_exponent(_A, _M, scales))),
        "gradient": (gradients, np.asarray(gradient_exponent(_A, _M, scales))),
    }
    rows = [
        row for name, pair in lines.items() for row in _against(name, *pair, d, quick)
    ]
    mean, margin = _interval(angles)
    rows += _zero(scales, mean, margin, zero, quick)
    keys = jax.random.split(jax.random.fold_in(key, 100), draws)
    hot = _growths(keys, d, 3.0, 4.0)[0]
    other, wide = _interval(hot[None])
    expected = float(angle_exponent(_A, _M, 4.0))
    claim = "angle exponent, sigma_w = 4, logits of scale 3 in place of 1"
    rows.append(near(claim, other[0], expected, wide[0] + 2 / d))
    figure = new_figure(9.0, 3.6)
    left, right = (style(axes) for axes in figure.subplots(1, 2))
    _draw_exponents(left, scales, angles, gradients, zero)
    more, data = _along_depth(jax.random.fold_in(key, 200), quick, zero, right)
    data |= {
        "sigma_w": scales,
        "growth of 1 - cosine": angles,
        "growth of the squared gradient": gradients,
    }
    note = (
        f"{_N} tokens, both branches of strength {_A}, {draws} draws of eight blocks "
        f"of width {d}; bars are 95 % intervals. Along depth, fewer draws, of width "
        f"{128 if quick else 256}. Float32. The full text of the paper was not at "
        "hand: block and exponents are those it describes, the formulas are derived."
    )
    return Report(rows + more, figure, data, note)


def _normed(x):
    """Each token over its root mean square: LayerNorm, but for a mean of order 1/d."""
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True))


def _block(x, key, logit_scale, scale):
    """One draw of the block of `tfjax.theory.random_block`."""
    d = x.shape[1]
    w, v, s, r = jax.random.normal(key, (4, d, d), x.dtype) / d**0.5
    y = _normed(x)
    mixed = attend(y @ w * logit_scale, y, y) @ v
    x = (1 - _A**2) ** 0.5 * x + _A * mixed
    hidden = jnp.tanh(scale * (_normed(x) @ s))
    return (1 - _M**2) ** 0.5 * x + _M * (hidden @ r)


def _tokens(key, d, norm, cosine):
    """Tokens whose cosines and mean squares are exactly alike."""
    basis, _ = jnp.linalg.qr(jax.random.normal(key, (d, _N + 1), jnp.float32))
    apart = jnp.sqrt(1 - cosine) * basis[:, 1:].T
    return jnp.sqrt(d * norm) * (jnp.sqrt(cosine) * basis[:, :1].T + apart)


def _gap(x):
    """1 - cosine of the typical pair, by differences that keep their digits."""
    apart = x - jnp.mean(x, axis=0, keepdims=True)
    return jnp.sum(apart**2) / (_N - 1) / jnp.mean(jnp.sum(x**2, axis=1))


@eqx.filter_jit
def _growths_of(keys, d, norm, logit_scale, scale):
    def one(key):
        start, back, *layers = jax.random.split(key, _BLOCKS + 2)
        layers = jnp.stack(layers)
        x = _tokens(start, d, norm, jnp.float32(1 - _GAP))

        def run(x):
            step = lambda x, layer: (_block(x, layer, logit_scale, scale), None)
            return jax.lax.scan(step, x, layers)[0]

        y, pull = jax.vjp(run, x)
        # The same gradient for all tokens: the part that outgrows the rest.
        cotangent = jnp.tile(jax.random.normal(back, (1, d), x.dtype), (_N, 1))
        (gradient,) = pull(cotangent)
        return _gap(y) / _gap(x), jnp.sum(gradient**2) / jnp.sum(cotangent**2)

    return jax.lax.map(one, keys)


def _growths(keys, d, logit_scale, scale) -> np.ndarray:
    """What 1 - cosine and the squared gradient are multiplied by, in each draw."""
    norm = random_block_norm(_A, _M, float(scale)).astype(jnp.float32)
    inputs = norm, jnp.float32(logit_scale), jnp.float32(scale)
    return np.asarray(_growths_of(keys, d, *inputs), float)


def _interval(values) -> tuple[np.ndarray, np.ndarray]:
    """Exponents of a block from the mean growth, and half widths of 95 % intervals."""
    mean = values.mean(axis=1)
    spread = values.std(axis=1, ddof=1) / mean / np.sqrt(values.shape[1])
    return np.log(mean) / _BLOCKS, 1.96 * spread / _BLOCKS


def _against(name, values, formula, d, quick) -> list[Row]:
    mean, margin = _interval(values)
    error, claim = np.abs(mean - formula), f"{name} exponent: distance from the formula"
    return [
        below(f"{claim}, at most", error.max(), 0.08 if quick else 0.03),
        # A finite width moves exponents by some 1/d.
        within(
            f"{name} exponent: formulas in the 95 % interval + 2/d, of {error.size}",
            np.sum(error <= margin + 2 / d),
            error.size - 1,
            error.size,
        ),
    ]


def _zero(scales, mean, margin, zero, quick) -> list[Row]:
    """The simulated exponent changes its sign, and does so where the formula does."""
    low, high = scales < zero - 0.5, scales > zero + 0.5
    found = np.interp(0.0, mean, scales)
    return [
        below(
            f"angle exponent, sigma_w up to {scales[low].max():g}: upper end of 95 %",
            (mean + margin)[low].max(),
            0.0,
        ),
        above(
            f"angle exponent, sigma_w from {scales[high].min():g}: lower end of 95 %",
            (mean - margin)[high].min(),
            0.0,
        ),
        near(
            "sigma_w at the zero of the simulated angle exponent",
            found,
            zero,
            0.4 if quick else 0.15,
        ),
    ]


def _draw_exponents(axes, scales, angles, gradients, zero) -> None:
    grid = np.linspace(0.5, 6.5, 121)
    axes.axhline(0.0, color=GREY, linewidth=0.8)
    axes.axvline(zero, color=RED, linestyle=":", label=f"zero at {zero:.2f}")
    lines = (
        ("angle λa", BLUE, angle_exponent, angles),
        ("gradient λg", PALETTE[1], gradient_exponent, gradients),
    )
    for name, colour, formula, values in lines:
        axes.plot(grid, np.asarray(formula(_A, _M, grid)), color=colour, label=name)
        mean, margin = _interval(values)
        axes.errorbar(scales, mean, margin, fmt="o", color=colour, markersize=4)
    axes.set(xlabel="scale σw of the MLP's first layer", ylabel="exponent per block")
    axes.set_title("formula, and random blocks (dots)", fontsize=9)
    axes.legend(frameon=False, fontsize=8)


@partial(jax.jit, static_argnames=("d", "depth"))
def _cosines_along(keys, d, depth, cosine, scale):
    def one(key):
        start, *layers = jax.random.split(key, depth + 1)
        x0 = _tokens(start, d, jnp.float32(1.0), cosine)

        def step(x, layer):
            y = _block(x, layer, jnp.float32(1.0), scale)
            return y, 1 - _gap(y)

        _, cosines = jax.lax.scan(step, x0, jnp.stack(layers))
        return jnp.concatenate([jnp.reshape(1 - _gap(x0), (1,)), cosines])

    return jax.lax.map(one, keys)


def _along_depth(key, quick, zero, axes) -> tuple[list[Row], dict[str, np.ndarray]]:
    """The cosine of tokens over many blocks: simulated, and by the map iterated."""
    d, depth, draws = (128, 40, 8) if quick else (256, 60, 16)
    rows: list[Row] = []
    data: dict[str, np.ndarray] = {"block": np.arange(depth + 1)}
    for k, scale in enumerate((2.0, zero, 6.0)):
        for cosine in (0.0, 0.95):
            keys = jax.random.split(jax.random.fold_in(key, k), draws)
            inputs = jnp.float32(cosine), jnp.float32(scale)
            found = np.asarray(_cosines_along(keys, d, depth, *inputs), float)
            line = _iterated(cosine, scale, depth)
            label = f"σw = {scale:.2g}" if cosine == 0 else None
            axes.plot(line, color=PALETTE[k], label=label)
            mean = found.mean(axis=0)
            axes.plot(np.arange(0, depth + 1, 4), mean[::4], ".", color=PALETTE[k])
            case = f"sigma_w = {scale:.3g}, cosine {cosine:g} at first"
            data[f"cosine, {case}"] = found
            if scale == 2:
                rows.append(above(f"{case}: cosine at last", mean[-1], 0.99))
            elif scale == 6:
                claim = f"{case}: cosine at last, by the map"
                rows.append(near(claim, mean[-1], line[-1], 0.05 if quick else 0.03))
    axes.set(xlabel="block", ylabel="mean cosine of two tokens", ylim=(-0.02, 1.02))
    axes.set_title("map of infinite width, and random blocks (dots)", fontsize=9)
    axes.legend(frameon=False, fontsize=8, loc="lower right")
    return rows, data


@partial(jax.jit, static_argnames="depth")
def _iterated_of(cosine, scale, depth):
    options = {"attention": _A, "mlp": _M, "logit_scale": 1.0, "weight_scale": scale}

    def step(state, _):
        q, c = random_block(state[0], state[1], _N, **options)
        return (q, c), c

    return jax.lax.scan(step, (jnp.ones_like(cosine), cosine), None, length=depth)[1]


def _iterated(cosine, scale, depth) -> np.ndarray:
    later = _iterated_of(jnp.asarray(cosine), jnp.asarray(scale), depth)
    return np.concatenate([[cosine], np.asarray(later)])
