"""Attention of angles by the Fourier modes of its kernel, in a time linear in n."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from .._core import as_float, check_shape, count, matmul, widen
from ._circle import kernel_modes
from ._params import MeanFieldParams, mean_field_args


class ModalAttention(eqx.Module):
    r"""Attention of tokens on the circle, by the first modes of its kernel.

    With $c_k - i s_k = \frac1n \sum_j e^{-i k \theta_j}$ the velocity of USA is

    $$\dot\theta_i = 2 \sum_{k=1}^K \frac{k I_k(\beta)}{\beta}
      \bigl( s_k \cos k\theta_i - c_k \sin k\theta_i \bigr),$$

    divided for SA by
    $I_0(\beta) + 2 \sum_k I_k(\beta) (c_k \cos k\theta_i + s_k \sin k\theta_i)$. It
    takes O(n K) operations where [`unnormalized_circle_attention`][] and
    [`circle_attention`][] take O(n^2). What is left out is of the size of
    $I_{K+1}(\beta) / I_0(\beta)$: rounding from about $K = 8 + 4 \sqrt\beta$ on.

    A field `(t, theta, args)` with angles of shape (n,) and `args` a
    [`MeanFieldParams`][], whose `diffusivity` is not used.

    **Arguments:**

    - `modes`: K, a positive integer; static.

    **Raises:** ValueError where `modes` is none, a shape does not fit or a parameter
    lies outside.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.fields import AttentionParams, circle_attention
        >>> from tfjax.meanfield import MeanFieldParams, ModalAttention
        >>> theta = jnp.array([0.0, 1.0, 2.5])
        >>> modal = ModalAttention(12)
        >>> fast = modal(0.0, theta, MeanFieldParams(1.0, normalized=True))
        >>> bool(jnp.allclose(fast, circle_attention(0.0, theta, AttentionParams(1.0))))
        True

    Source: the expansion of the kernel, arXiv 2312.10794, section 7.
    """

    modes: int = eqx.field(static=True)

    def __check_init__(self):
        count("modes", self.modes)

    def __call__(
        self,
        t: Float[ArrayLike, ""] | float,
        theta: Float[ArrayLike, " n"],
        args: MeanFieldParams | None = None,
    ) -> Float[Array, " n"]:
        angles: Any = as_float("theta", theta)
        check_shape("theta", angles, 1, "(n,)")
        (angles,), dtype = widen(angles)
        params = mean_field_args(args, angles.dtype)
        # On 4 K angles no mode up to K is aliased by one below 3 K.
        strength, mean = kernel_modes(params, max(4 * self.modes, 64), self.modes)
        wave = jnp.arange(1, self.modes + 1, dtype=angles.dtype)
        angle = wave[:, None] * angles[None, :]
        cosine, sine = jnp.cos(angle), jnp.sin(angle)
        c, s = jnp.mean(cosine, axis=1), jnp.mean(sine, axis=1)
        pull = wave * strength
        velocity = 2 * (matmul(pull * s, cosine) - matmul(pull * c, sine))
        if params.normalized:
            z = matmul(strength * c, cosine) + matmul(strength * s, sine)
            velocity = velocity / (mean + 2 * params.beta * z)
        return velocity.astype(dtype)
