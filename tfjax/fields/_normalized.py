"""Where LayerNorm stands in a Transformer, and what it makes of the dynamics."""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from .._core import as_float, must, normalize, safe_norm
from ._params import AttentionParams, TokenParams, check_kind, params_at
from ._tokens import mean_values, prepare


class AbstractNormalization(eqx.Module):
    r"""How fast a token turns and grows under the attention $A_j$ that it receives.

    Every scheme is one line: a token $x_j = r_j \theta_j$ moves by
    $\dot x_j = u\, P_{\theta_j} A_j + g\, \langle \theta_j, A_j \rangle \theta_j$.
    """

    @abc.abstractmethod
    def __call__(
        self,
        t: Float[Array, ""],
        radius: Float[Array, "n 1"],
        strength: Float[Array, "n 1"],
    ) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        """The factors (u, g), from time, the radii r and the strengths |A|."""


class PostNorm(AbstractNormalization):
    r"""Post-LN: after the addition. $\dot\theta = P_\theta A$, the radius is constant.

    !!! example

        >>> from tfjax.fields import NormalizedParams, PostNorm
        >>> NormalizedParams(scheme=PostNorm()).scheme
        PostNorm()

    Source: arXiv 2510.22026, table 1.
    """

    def __call__(self, t, radius, strength):
        return radius, jnp.zeros_like(radius)


class PreNorm(AbstractNormalization):
    r"""Pre-LN: before the attention. $\dot\theta = P_\theta A / r$, the radius grows.

    !!! example

        >>> from tfjax.fields import NormalizedParams, PreNorm
        >>> NormalizedParams(scheme=PreNorm()).scheme
        PreNorm()

    Source: arXiv 2510.22026, table 1.
    """

    def __call__(self, t, radius, strength):
        return jnp.ones_like(radius), jnp.ones_like(radius)


class MixNorm(AbstractNormalization):
    r"""Mix-LN: Post-LN in the first layers, Pre-LN from then on.

    **Arguments:**

    - `switch`: the time at which Post-LN ends, a scalar.

    !!! example

        >>> from tfjax.fields import MixNorm
        >>> float(MixNorm(switch=2.0).switch)
        2.0

    Source: arXiv 2510.22026, table 1.
    """

    switch: Float[Array, ""] = eqx.field(
        converter=lambda value: as_float("switch", value)
    )

    def __call__(self, t, radius, strength):
        post = t <= _scalar("switch", self.switch).astype(t.dtype)
        turn = jnp.where(post, radius, jnp.ones_like(radius))
        return turn, jnp.where(post, jnp.zeros_like(radius), jnp.ones_like(radius))


class PeriNorm(AbstractNormalization):
    r"""Peri-LN: before and after the attention. $\dot x = A / |A|$.

    !!! example

        >>> from tfjax.fields import NormalizedParams, PeriNorm
        >>> NormalizedParams(scheme=PeriNorm()).scheme
        PeriNorm()

    Source: arXiv 2510.22026, table 1.
    """

    def __call__(self, t, radius, strength):
        unit = _reciprocal(strength)
        return unit, unit


class NGPT(AbstractNormalization):
    r"""nGPT: attention of length alpha. $\dot\theta = \alpha P_\theta A / |A|$.

    **Arguments:**

    - `alpha`: the length of a step, a scalar, or a function of time that returns one.

    !!! example

        >>> from tfjax.fields import NGPT
        >>> float(NGPT(alpha=0.5).alpha)
        0.5

    Source: arXiv 2510.22026, table 1; arXiv 2410.01131.
    """

    alpha: Float[Array, ""] | Callable = eqx.field(
        default=1.0,
        converter=lambda value: value if callable(value) else as_float("alpha", value),
    )

    def __call__(self, t, radius, strength):
        alpha = self.alpha(t) if callable(self.alpha) else self.alpha
        alpha = _scalar("alpha", alpha).astype(radius.dtype)
        return alpha * radius * _reciprocal(strength), jnp.zeros_like(radius)


class LNScaling(AbstractNormalization):
    r"""LN-scaling against the curse of depth: $\dot\theta = P_\theta A / \sqrt{t + 1}$.

    !!! example

        >>> from tfjax.fields import LNScaling, NormalizedParams
        >>> NormalizedParams(scheme=LNScaling()).scheme
        LNScaling()

    Source: arXiv 2510.22026, table 1; arXiv 2502.05795.
    """

    def __call__(self, t, radius, strength):
        return radius / jnp.sqrt(t + 1), jnp.zeros_like(radius)


def _scalar(name, value):
    value = as_float(name, value)
    if value.ndim:
        raise must(name, "be a scalar", f"of shape {value.shape}")
    return value


def _reciprocal(length):
    """`1 / length`, and 0 at 0, where there is nothing to normalise."""
    zero = length == 0
    return jnp.where(zero, 0.0, 1 / jnp.where(zero, 1.0, length))


class NormalizedParams(TokenParams):
    """The parameters of [`normalized_attention`][]: attention and a scheme.

    **Arguments:**

    - `attention`: an [`AttentionParams`][], whose mask says which tokens exist.
    - `scheme`: [`PostNorm`][], [`PreNorm`][], [`MixNorm`][], [`PeriNorm`][],
      [`NGPT`][] or [`LNScaling`][].

    !!! example

        >>> from tfjax.fields import AttentionParams, NormalizedParams, PreNorm
        >>> params = NormalizedParams(AttentionParams(beta=2.0), PreNorm())
        >>> float(params.attention.beta)
        2.0

    Source: arXiv 2510.22026.
    """

    attention: AttentionParams = eqx.field(default_factory=AttentionParams)
    scheme: AbstractNormalization = PostNorm()

    def __check_init__(self):
        check_kind("attention", self.attention, AttentionParams)
        check_kind("scheme", self.scheme, AbstractNormalization)

    @property
    def mask(self) -> Any:
        """The mask of the attention."""
        return self.attention.mask


def normalized_attention(
    t: Float[ArrayLike, ""] | float,
    x: Float[ArrayLike, "n d"],
    args: NormalizedParams | Callable | None = None,
) -> Float[Array, "n d"]:
    r"""Attention under any of the schemes of normalisation, on R^d without the origin.

    A token $x_j = r_j \theta_j$ attends by its direction and moves by

    $$\dot x_j = u_j\, P_{\theta_j} A_j + g_j\, \langle \theta_j, A_j \rangle \theta_j,
      \qquad A_j = \sum_k \operatorname{softmax}_k(\beta \langle Q \theta_j,
      K \theta_k \rangle)\, V \theta_k$$

    | scheme | u | g | direction |
    |---|---|---|---|
    | post | r | 0 | $\dot\theta = P_\theta A$ |
    | pre | 1 | 1 | $\dot\theta = P_\theta A / r$ |
    | mix | post for $t \le \tau$, then pre | | |
    | peri | 1/|A| | 1/|A| | $\dot\theta = P_\theta A / (r |A|)$ |
    | nGPT | r α/|A| | 0 | $\dot\theta = \alpha P_\theta A / |A|$ |
    | LN-scaling | $r/\sqrt{t+1}$ | 0 | $\dot\theta = P_\theta A / \sqrt{t + 1}$ |

    **Arguments:**

    - `t`: time, which some schemes and the parameters may depend on.
    - `x`: tokens, of shape (n, d), none of them 0.
    - `args`: a [`NormalizedParams`][], or a function of time that returns one; Post-LN
      where None.

    **Returns:** the velocities, of shape (n, d), in the dtype of `x`; 0 for tokens
    that are absent or may attend to none. Directions are `Sphere(d).project(x)`.

    **Raises:** ValueError where shapes do not fit together.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.fields import NormalizedParams, PreNorm, normalized_attention
        >>> params = NormalizedParams(scheme=PreNorm())
        >>> normalized_attention(0.0, 3 * jnp.eye(2), params).shape
        (2, 2)

    Source: arXiv 2510.22026, table 1.
    """
    params = params_at(t, args, NormalizedParams)
    tokens = prepare(x, params.attention, normalized=False)
    radius = safe_norm(tokens.x)[:, None]
    tokens = tokens._replace(x=normalize(tokens.x))
    attention = mean_values(tokens)
    time = jnp.asarray(t).astype(radius.dtype)
    turn, grow = params.scheme(time, radius, safe_norm(attention)[:, None])
    radial = jnp.sum(tokens.x * attention, axis=1, keepdims=True) * tokens.x
    return tokens.velocity(turn * (attention - radial) + grow * radial)
