"""Sinkhorn attention as a vector field on the sphere."""

from collections.abc import Callable

from jaxtyping import Array, ArrayLike, Float

from .._core import must
from ..attention import attend_sinkhorn
from ._params import AttentionParams, params_at
from ._tokens import apply, prepare, sum_over_heads


def sinkhorn_attention(
    t: Float[ArrayLike, ""] | float,
    x: Float[ArrayLike, "n d"],
    args: AttentionParams | Callable | None = None,
) -> Float[Array, "n d"]:
    r"""Attention with doubly stochastic weights, on the sphere.

    $$\dot x_i = P_{x_i} \sum_h \sum_j W^h_{ij} V_h x_j, \qquad
      W^h = \text{the doubly stochastic scaling of }
      e^{\beta \langle Q_h x_i, K_h x_j \rangle}$$

    Each token gives as much attention as it gets. With Q = K = V = I the weights are
    symmetric and the field is n times the gradient of
    $-\frac{1}{\beta n} \sum_i u_i$, where $\log W_{ij} = u_i + u_j + \beta
    \langle x_i, x_j \rangle$.

    **Arguments:**

    - `t`: time, which the parameters may depend on.
    - `x`: tokens, of shape (n, d).
    - `args`: an [`AttentionParams`][], or a function of time that returns one; its
      defaults where None. `chunk_size` must be None.

    **Returns:** the velocities, of shape (n, d), in the dtype of `x`: tangent to the
    sphere, and 0 for tokens that are absent.

    **Raises:** ValueError where shapes do not fit together, or where the scaling does
    not converge (outside jit; inside a solve the solver reports it).

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.fields import AttentionParams, sinkhorn_attention
        >>> sinkhorn_attention(0.0, jnp.eye(2), AttentionParams(beta=0.0)).tolist()
        [[0.0, 0.5], [0.5, 0.0]]

    Source: arXiv 2312.10794, remark 3.5; arXiv 2110.11773.
    """
    params = params_at(t, args, AttentionParams)
    if params.chunk_size is not None:
        raise must("chunk_size", "be None for this field", repr(params.chunk_size))
    tokens = prepare(x, params, normalized=True)
    x, params = tokens.x, tokens.params
    symmetric = params.query is None and params.key is None

    def head(q, k, value):
        return attend_sinkhorn(
            q,
            k,
            apply(value, x),
            beta=params.beta,
            mask=params.mask,
            symmetric=symmetric,
        )

    return tokens.tangential(sum_over_heads(head, x, params))
