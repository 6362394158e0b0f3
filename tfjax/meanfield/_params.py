"""The parameters of the mean-field equations."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._core import as_float, is_concrete, must, require


def _scalar(name):
    return lambda value: as_float(name, value)


class MeanFieldParams(eqx.Module):
    r"""The parameters of the equations of this room: a PyTree of arrays.

    **Arguments:**

    - `beta`: the inverse temperature, a scalar, not negative.
    - `diffusivity`: D of the noise $\sqrt{2D}\, dW$ of every token, a scalar, not
      negative.
    - `normalized`: SA if true, USA otherwise; static.

    **Raises:** ValueError where an entry is not real. Whether shapes fit is checked by
    the field, since leaves may carry batch axes.

    !!! example

        >>> from tfjax.meanfield import MeanFieldParams
        >>> MeanFieldParams(beta=4.0, normalized=True).diffusivity.shape
        ()

    Source: arXiv 2312.10794, section 3; arXiv 2510.20094 for the noise.
    """

    beta: Float[Array, "..."] = eqx.field(default=1.0, converter=_scalar("beta"))
    diffusivity: Float[Array, "..."] = eqx.field(
        default=0.0, converter=_scalar("diffusivity")
    )
    normalized: bool = eqx.field(default=False, static=True)


def mean_field_args(args: Any, dtype: Any) -> MeanFieldParams:
    """The parameters in a dtype, their defaults where None; values where concrete."""
    params = MeanFieldParams() if args is None else args
    if not isinstance(params, MeanFieldParams):
        raise must("args", "be a MeanFieldParams or None", f"a {type(args).__name__}")
    values = {}
    for name in ("beta", "diffusivity"):
        value = getattr(params, name).astype(dtype)
        if value.ndim:
            raise must(name, "be a scalar", f"of shape {value.shape}")
        if is_concrete(value):
            fits = jnp.isfinite(value) & (value >= 0)
            require(value, fits, name, "be finite and not negative")
        values[name] = value
    if is_concrete(params) and not params.normalized:
        limit = jnp.log(jnp.asarray(jnp.finfo(dtype).max, dtype))
        rule = f"keep exp(beta) within {jnp.dtype(dtype)}"
        require(values["beta"], values["beta"] < limit, "beta", rule)
    return MeanFieldParams(**values, normalized=params.normalized)
