"""Choices of Bayesian attention."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from .._core import must


_CHOICES = {
    "prior": ("uniform", "learned", "positional"),
    "precision": ("fixed", "learned"),
    "keys": ("unit", "free"),
    "combine": ("sum", "gated"),
    "scores": ("exact", "stochastic"),
}


@dataclasses.dataclass(frozen=True)
class BayesianConfig:
    r"""Choices of [`BayesianAttention`][tfjax.nn.BayesianAttention].

    The defaults are common attention but for its keys, all of one length.

    **Arguments:**

    - `prior`: of each head over the keys: `"uniform"`; `"learned"`, whose logarithm is
      a linear function of the key's token, at first 0; or `"positional"`,
      $-s\,|i - j|$ with a learned slope $s > 0$, at first that of ALiBi.
    - `precision`: $\beta$ is `"fixed"` at $1 / \sqrt{d_k}$, or `"learned"` by each
      head, from there.
    - `keys`: all of length $\sqrt{d_k}$ (`"unit"`), or `"free"`, where the term
      $-\beta |k_j|^2 / 2$ of the Gaussian likelihood counts.
    - `combine`: the outputs of heads are added (`"sum"`), or weighed by the posterior
      over heads (`"gated"`), with a learned prior, at first uniform.
    - `scores`: `"exact"`, or `"stochastic"`: log-normal around the exact ones.
    - `deviation`: $\sigma$, of the logarithm of a stochastic score, at first.
    - `learned_deviation`: whether each head learns its own.
    - `prior_deviation`: $\sigma_0$, of the prior that stochastic scores diverge from.
    - `spread`: whether the output reads the variance of the values too, by a matrix
      that is 0 at first.

    **Raises:** ValueError where a value is impossible.

    !!! example

        >>> from tfjax.nn import BayesianConfig
        >>> config = BayesianConfig(prior="positional", combine="gated")
        >>> BayesianConfig.from_dict(config.to_dict()) == config
        True

    Source: arXiv 2010.10604 for stochastic scores; arXiv 2108.12409 for the slopes.
    """

    prior: str = "uniform"
    precision: str = "fixed"
    keys: str = "unit"
    combine: str = "sum"
    scores: str = "exact"
    deviation: float = 0.3
    learned_deviation: bool = True
    prior_deviation: float = 1.0
    spread: bool = False

    def __post_init__(self) -> None:
        for name, known in _CHOICES.items():
            if getattr(self, name) not in known:
                rule = f"be one of {', '.join(map(repr, known))}"
                raise must(name, rule, repr(getattr(self, name)))
        for name in ("deviation", "prior_deviation"):
            value = getattr(self, name)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or not 0 < value < math.inf:
                raise must(name, "be finite and positive", repr(value))
        for name in ("learned_deviation", "spread"):
            if not isinstance(getattr(self, name), bool):
                raise must(name, "be true or false", repr(getattr(self, name)))

    def to_dict(self) -> dict[str, Any]:
        """All values, as a dictionary that JSON can hold."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "BayesianConfig":
        """The inverse of `to_dict`; **Raises** ValueError for an unknown key."""
        known = [field.name for field in dataclasses.fields(cls)]
        unknown = sorted(set(values) - set(known))
        if unknown:
            raise must("values", f"have keys among {known}", f"given {unknown}")
        return cls(**values)
