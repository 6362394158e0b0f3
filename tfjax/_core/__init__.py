"""The cellar: argument checks, safe numerics and graph predicates for every room."""

from ._checks import (
    as_float as as_float,
    check_shape as check_shape,
    count as count,
    is_concrete as is_concrete,
    must as must,
    require as require,
)
from ._components import connected_components as connected_components
from ._linear import (
    commutator as commutator,
    identity_like as identity_like,
    skew as skew,
    square as square,
    symmetric as symmetric,
    transpose as transpose,
)
from ._numerics import (
    cos_sqrt as cos_sqrt,
    expm1_over as expm1_over,
    log1p_over as log1p_over,
    matmul as matmul,
    normalize as normalize,
    normalize_exactly as normalize_exactly,
    safe_norm as safe_norm,
    sinc_sqrt as sinc_sqrt,
    widen as widen,
)
