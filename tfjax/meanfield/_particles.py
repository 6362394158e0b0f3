"""Tokens against their mean field: how fast many become a density."""

from collections.abc import Sequence
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from .._core import count, is_concrete, must, require, widen
from ..integrate import solve
from ._circle import (
    check_density,
    circle_angles,
    circle_continuity,
    circle_modes,
    circle_modes_of,
    cutoff,
)
from ._distances import wasserstein_circle
from ._modal import ModalAttention
from ._params import MeanFieldParams, mean_field_args


_MODES = 3
_REFINED = 64


def sample_circle(
    density: Float[ArrayLike, " n"], key: Any, shape: Sequence[int]
) -> Float[Array, "..."]:
    r"""Independent angles with a density on the circle.

    The distribution function is integrated exactly from the Fourier modes and inverted
    on a grid 64 times as fine.

    **Arguments:**

    - `density`: positive, as for [`circle_continuity`][], of shape (n,).
    - `key`: a random key.
    - `shape`: how many.

    **Returns:** angles in [0, 2 pi), of that shape, in the dtype of `density`.

    **Raises:** ValueError where the shape does not fit or the density is not positive.

    !!! example

        >>> import jax, jax.numpy as jnp
        >>> from tfjax.meanfield import sample_circle
        >>> sample_circle(jnp.ones(8), jax.random.key(0), (5,)).shape
        (5,)

    Source: L. Devroye, Non-Uniform Random Variate Generation, section II.2.
    """
    (density,), dtype = widen(_positive(density))
    n, fine = density.size, density.size * _REFINED
    modes = circle_modes_of(density)
    wave = jnp.arange(1, n // 2 + 1, dtype=density.dtype)
    # The mode of e^(i k theta) integrates to e^(i k theta) / (i k).
    integral = jax.lax.complex(modes.imag[1:] / wave, -modes.real[1:] / wave)
    series = jnp.fft.irfft(jnp.pad(integral, (1, fine // 2 - n // 2)), fine) * fine
    theta = jnp.asarray(2 * np.pi * np.arange(fine + 1) / fine, density.dtype)
    levels = modes.real[0] * theta + jnp.append(series, series[0]) - series[0]
    u = jax.random.uniform(key, tuple(shape), density.dtype)
    angles = jnp.interp(u, levels / levels[-1], theta)
    return jnp.minimum(angles, jnp.nextafter(theta[-1], theta[0])).astype(dtype)


def particle_errors(
    counts: Sequence[int],
    density: Float[ArrayLike, " n"],
    args: MeanFieldParams | None = None,
    *,
    t1: Any,
    key: Any,
    draws: int = 32,
    distance: Literal["modes", "wasserstein"] = "modes",
) -> Float[Array, "m b"]:
    r"""How far n tokens are from their mean field after a time.

    Tokens start independently from a density and move by attention on the circle; the
    density moves by [`circle_continuity`][]. The error of a draw is

    $$\Bigl( \frac13 \sum_{k=1}^3 \Bigl| \frac1n \sum_j e^{-i k \theta_j(t_1)}
      - \int e^{-i k \theta} d\mu_{t_1} \Bigr|^2 \Bigr)^{1/2},$$

    or the Wasserstein distance $W_1$ between the two. The root mean square of either
    over draws falls as $n^{-1/2}$: propagation of chaos.

    **Arguments:**

    - `counts`: the numbers n of tokens.
    - `density`: where both start, as for [`circle_continuity`][], positive.
    - `args`: a [`MeanFieldParams`][] with `diffusivity` 0; its defaults where None.
    - `t1`: the time, from 0.
    - `key`: a random key; another number of tokens is another draw.
    - `draws`: how many for each number.
    - `distance`: `"modes"` or `"wasserstein"`.

    **Returns:** the errors, of shape (m, draws) for m counts.

    **Raises:** ValueError where an argument does not fit.

    !!! example

        >>> import jax, jax.numpy as jnp
        >>> from tfjax.meanfield import particle_errors
        >>> density = (1 + 0.3 * jnp.cos(jnp.arange(32.0) * jnp.pi / 16)) / (2 * jnp.pi)
        >>> kwargs = {"t1": 0.5, "key": jax.random.key(0), "draws": 16}
        >>> few, many = particle_errors([16, 1024], density, **kwargs).mean(axis=1)
        >>> bool(6 < few / many < 11)  # sqrt(1024 / 16) = 8
        True

    Source: A.-S. Sznitman, Topics in propagation of chaos, 1991, theorem 1.4.
    """
    (density,), dtype = widen(_positive(density))
    density = density / (2 * np.pi * jnp.mean(density))
    params = mean_field_args(args, density.dtype)
    if not is_concrete(params) or float(params.diffusivity):
        raise must("diffusivity", "be 0 here, and known", params.diffusivity)
    counts = [count("counts", n) for n in counts]
    if not counts:
        raise must("counts", "hold at least one number", "empty")
    draws = count("draws", draws)
    if distance not in ("modes", "wasserstein"):
        raise must("distance", "be 'modes' or 'wasserstein'", repr(distance))
    measure = _by_modes if distance == "modes" else _by_transport
    limit: Any = solve(circle_continuity, density, params, t1=t1).ys
    field = _Draws(ModalAttention(cutoff(density.size)))
    errors = []
    for i, n in enumerate(counts):
        start = sample_circle(density, jax.random.fold_in(key, i), (draws, n))
        # The solver's error is far below that of so many tokens.
        end: Any = solve(field, start, params, t1=t1, rtol=1e-4, atol=1e-5).ys
        errors.append(measure(end[-1], limit[-1]))
    return jnp.stack(errors).astype(dtype)


def _positive(density: Any) -> Float[Array, " n"]:
    density = check_density(density)
    if is_concrete(density):
        fits = jnp.isfinite(density) & (density > 0)
        require(density, fits, "density", "be finite and positive")
    return density


class _Draws(eqx.Module):
    """The field of every row, which is one draw."""

    field: ModalAttention

    def __call__(self, t: Any, theta: Any, params: MeanFieldParams) -> Any:
        return jax.vmap(lambda row: self.field(t, row, params))(theta)


def _by_modes(theta, end):
    """The root mean square difference of the first modes."""
    limit = circle_modes(end)
    gaps = [
        (jnp.mean(jnp.cos(k * theta), axis=1) - limit[k].real) ** 2
        + (jnp.mean(jnp.sin(k * theta), axis=1) + limit[k].imag) ** 2
        for k in range(1, 1 + _MODES)
    ]
    return jnp.sqrt(sum(gaps) / _MODES)


def _by_transport(theta, end):
    """The Wasserstein distance of each row to a density, on a grid 64 times as fine."""
    n, fine = end.size, end.size * _REFINED
    modes = jnp.pad(circle_modes_of(end), (0, fine // 2 - n // 2))
    weights = jnp.maximum(jnp.fft.irfft(modes, fine), 0.0)
    grid = circle_angles(fine, end.dtype)
    distance = lambda row: wasserstein_circle(row, grid, y_weights=weights)
    return jax.lax.map(distance, theta)
