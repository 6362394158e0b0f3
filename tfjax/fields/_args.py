"""How the fields that are not plain attention read an `AttentionParams`."""

from collections.abc import Sequence
from typing import Any

from .._core import must
from ._params import AttentionParams, params_at


def attention_args(t: Any, args: Any, unused: Sequence[str]) -> AttentionParams:
    """The parameters at time t; `unused` entries must be None."""
    params = params_at(t, args, AttentionParams)
    if params.beta.ndim:
        raise must("beta", "be a scalar", f"of shape {params.beta.shape}")
    for name in unused:
        value = getattr(params, name)
        if value is not None:
            shape = getattr(value, "shape", None)
            got = repr(value) if shape is None else f"an array of shape {shape}"
            raise must(name, "be None for this field", got)
    return params
