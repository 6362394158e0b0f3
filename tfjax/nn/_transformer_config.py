"""Sizes and choices of a Transformer that is to be trained."""

import dataclasses
import math
import warnings
from collections.abc import Mapping
from typing import Any

from .._core import must
from ._bayesian_config import BayesianConfig


NORMS = ("pre", "post", "peri", "ngpt")
BLOCKS = ("residual", "leapfrog", "cayley")
_MOST_LAYERS = 100_000
POSITIONS = ("rotary", "learned", "none")


@dataclasses.dataclass(frozen=True)
class TransformerConfig:
    r"""Sizes and choices of a [`Transformer`][tfjax.nn.Transformer].

    The width of a token is `heads * head_dim`, so that every combination is possible.

    **Arguments:**

    - `vocabulary`: how many tokens there are; None where tokens are vectors.
    - `features`: the length of these vectors; None where tokens are integers.
    - `classes`: how many classes a classifier tells apart; None for a language model,
      which gives the logits of the next token in every place.
    - `context`: the longest sequence.
    - `layers`, `heads`, `head_dim`: how many layers, heads in each, and dimensions of a
      head, whose multiples of 8 are faster on most accelerators, and nothing else.
    - `mlp_ratio`: hidden units of the feed-forward part, over the width.
    - `causal`: whether a place sees earlier ones only; None is yes for a language model
      and no for a classifier.
    - `norm`: where tokens are normalised: before each branch (`"pre"`), after each sum
      (`"post"`), around each branch (`"peri"`), or everywhere on the unit sphere, with
      weights of unit rows (`"ngpt"`).
    - `block`: what a layer does with its branches f (attention) and g (feed-forward).
      `"residual"` adds both. `"leapfrog"` splits tokens in halves and adds f of one to
      the other, and g of that to the first, which keeps volumes. `"cayley"` turns every
      token towards f, then towards g, which keeps its length.
    - `positions`: `"rotary"` turns queries and keys, `"learned"` adds a table, `"none"`
      does nothing.
    - `branch_exponent`: branches are multiplied by `layers ** -branch_exponent`: 0 is
      the common block, 1/2 keeps the variance of random layers, 1 has a limit in depth.
    - `dropout`: the share of entries that are dropped from branches in training.
    - `tied`: whether a language model reads its logits off its table of tokens.
    - `scan`: whether layers run in a loop of the compiled program: it compiles faster
      for many layers, and on CPU runs a quarter slower.
    - `bayesian`: the choices of [`BayesianAttention`][tfjax.nn.BayesianAttention], a
      [`BayesianConfig`][]; None is common attention.

    **Raises:** ValueError where a value is impossible. Warns where `head_dim` is no
    multiple of 8.

    !!! example

        >>> from tfjax.nn import TransformerConfig
        >>> config = TransformerConfig(vocabulary=65, layers=2, heads=2, head_dim=16)
        >>> config.width, TransformerConfig.from_dict(config.to_dict()) == config
        (32, True)

    Source: arXiv 2410.01131 for `"ngpt"`; arXiv 2502.02732 for `"peri"`.
    """

    vocabulary: int | None = 256
    features: int | None = None
    classes: int | None = None
    context: int = 128
    layers: int = 4
    heads: int = 4
    head_dim: int = 32
    mlp_ratio: int = 4
    causal: bool | None = None
    norm: str = "pre"
    block: str = "residual"
    positions: str = "rotary"
    branch_exponent: float = 0.0
    dropout: float = 0.0
    tied: bool = True
    scan: bool = False
    bayesian: BayesianConfig | None = None

    def __post_init__(self) -> None:
        for name in ("context", "layers", "heads", "head_dim", "mlp_ratio"):
            _check_count(name, getattr(self, name))
        for name in ("vocabulary", "features", "classes"):
            if getattr(self, name) is not None:
                _check_count(name, getattr(self, name))
        if (self.vocabulary is None) == (self.features is None):
            got = "both" if self.features else "neither"
            raise must("vocabulary", "be given, or `features`, not both", got)
        if self.vocabulary is None and self.classes is None:
            rule = "be given where tokens are vectors: there is no next one to guess"
            raise must("classes", rule, "None")
        choices = {"norm": NORMS, "block": BLOCKS, "positions": POSITIONS}
        for name, known in choices.items():
            if getattr(self, name) not in known:
                rule = f"be one of {', '.join(map(repr, known))}"
                raise must(name, rule, repr(getattr(self, name)))
        for name in ("tied", "scan"):
            if not isinstance(getattr(self, name), bool):
                raise must(name, "be true or false", repr(getattr(self, name)))
        if self.causal is not None and not isinstance(self.causal, bool):
            raise must("causal", "be true, false or None", repr(self.causal))
        for name, most in (("branch_exponent", math.inf), ("dropout", 1.0)):
            value = getattr(self, name)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or not 0 <= value < most:
                raise must(name, f"be in [0, {most:g})", repr(value))
        self._check_together()

    def _check_together(self) -> None:
        if self.block != "residual" and self.norm not in ("pre", "peri"):
            rule = f"be 'pre' or 'peri' for block = {self.block!r}"
            raise must("norm", rule, repr(self.norm))
        if not isinstance(self.bayesian, BayesianConfig | None):
            raise must("bayesian", "be a BayesianConfig, or None", repr(self.bayesian))
        if self.bayesian is not None and self.norm == "ngpt":
            rule = "be 'pre', 'post' or 'peri' with `bayesian`"
            raise must("norm", rule, "'ngpt', which has scales of its own for keys")
        if self.block == "leapfrog" and self.heads % 2:
            rule = "be even for block = 'leapfrog', whose halves share them"
            raise must("heads", rule, self.heads)
        if self.positions == "rotary" and self.head_dim % 2:
            raise must("head_dim", "be even for rotary positions", self.head_dim)
        if self.head_dim % 8:
            text = f"`head_dim` = {self.head_dim} is no multiple of 8, which is slower"
            warnings.warn(f"{text} on most accelerators.", stacklevel=4)

    @property
    def width(self) -> int:
        """The dimension of a token."""
        return self.heads * self.head_dim

    @property
    def sees_earlier_only(self) -> bool:
        """Whether attention is causal."""
        return self.classes is None if self.causal is None else self.causal

    def to_dict(self) -> dict[str, Any]:
        """All values, as a dictionary that JSON can hold."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "TransformerConfig":
        """The inverse of `to_dict`; **Raises** ValueError for an unknown key."""
        known = [field.name for field in dataclasses.fields(cls)]
        unknown = sorted(set(values) - set(known))
        if unknown:
            raise must("values", f"have keys among {known}", f"given {unknown}")
        bayesian = values.get("bayesian")
        if isinstance(bayesian, Mapping):
            values = {**values, "bayesian": BayesianConfig.from_dict(bayesian)}
        return cls(**values)


def _check_count(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise must(name, "be an integer of at least 1", repr(value))
    most = _MOST_LAYERS if name == "layers" else 2**31 - 1
    if value > most:
        raise must(name, f"be at most {most}", f"{float(min(value, 10**300)):.3g}")
