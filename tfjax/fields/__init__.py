"""Right-hand sides `(t, x, args) -> dx/dt`: pure functions of their arguments.

Tokens on the sphere, with LayerNorm:

- `self_attention`: SA, with general, multi-head and masked weights.
- `unnormalized_self_attention`: USA. `sinkhorn_attention`: doubly stochastic.
- `transformer_block`: attention and a feed-forward layer, of `BlockParams`.
- `normalized_attention`: where LayerNorm stands, by `NormalizedParams` and a scheme:
  `PostNorm`, `PreNorm`, `MixNorm`, `PeriNorm`, `NGPT`, `LNScaling`.

Tokens on R^d:

- `euclidean_attention`: without LayerNorm; `rescaled_attention`: in a frame that grows
  along; `displacement_attention`: towards the others; `hardmax_attention`: its limit.
- `feed_forward`: a neural ODE, of `FeedForward` parameters.

Angles:

- `circle_attention`, `unnormalized_circle_attention`: attention on the circle.
- `kuramoto`: coupled oscillators, of `Kuramoto` parameters.

Matrices:

- `lie_bracket(W, F)`: a bracket and a force; `rectangular_bracket(A, B)`: products from
  both sides, for tokens.
- `lax_pair(B)`: flows that keep the eigenvalues; `double_bracket(N)`: Brockett's, which
  sorts; `toda`: that of the QR algorithm.

Made of other things:

- `intrinsic_attention(manifold)`: attention by geodesics, on any manifold.
- `gradient_flow(energy, manifold)`: the flow that raises or lowers an energy.
- `hamiltonian(H)`: Hamilton's equations, with damping and control.
- `Sum(f, g)`, `Scaled(f, factor)`, `Bound(f, args)`: fields made of fields.

Parameters:

- `AttentionParams`: of all that attend; `PiecewiseConstant`: a set a layer.
- `present_tokens`: which tokens the parameters say exist; `TokenParams`: what new
  parameters that say so extend.
- `VectorField`: what a field is.
"""

from ._attention import (
    self_attention as self_attention,
    unnormalized_self_attention as unnormalized_self_attention,
)
from ._base import VectorField as VectorField
from ._block import (
    BlockParams as BlockParams,
    FeedForward as FeedForward,
    feed_forward as feed_forward,
    transformer_block as transformer_block,
)
from ._circle import (
    Kuramoto as Kuramoto,
    circle_attention as circle_attention,
    kuramoto as kuramoto,
    unnormalized_circle_attention as unnormalized_circle_attention,
)
from ._combine import Bound as Bound, Scaled as Scaled, Sum as Sum
from ._euclidean import (
    displacement_attention as displacement_attention,
    euclidean_attention as euclidean_attention,
    hardmax_attention as hardmax_attention,
    rescaled_attention as rescaled_attention,
)
from ._gradient import gradient_flow as gradient_flow
from ._hamiltonian import hamiltonian as hamiltonian
from ._intrinsic import intrinsic_attention as intrinsic_attention
from ._lax import (
    double_bracket as double_bracket,
    lax_pair as lax_pair,
    toda as toda,
)
from ._lie import (
    lie_bracket as lie_bracket,
    rectangular_bracket as rectangular_bracket,
)
from ._normalized import (
    NGPT as NGPT,
    AbstractNormalization as AbstractNormalization,
    LNScaling as LNScaling,
    MixNorm as MixNorm,
    NormalizedParams as NormalizedParams,
    PeriNorm as PeriNorm,
    PostNorm as PostNorm,
    PreNorm as PreNorm,
    normalized_attention as normalized_attention,
)
from ._params import (
    AttentionParams as AttentionParams,
    PiecewiseConstant as PiecewiseConstant,
    TokenParams as TokenParams,
    present_tokens as present_tokens,
)
from ._sinkhorn import sinkhorn_attention as sinkhorn_attention
