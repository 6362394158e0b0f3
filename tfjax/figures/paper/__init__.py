"""The paper's figures and theorems, an experiment each: data, figure, expected, found.

An experiment is a function `(*, seed=0, quick=False, progress=quiet) -> Report`. With
`quick` it takes seconds and its tolerances are wider. `EXPERIMENTS` names them all;
`load(name)` imports one; `tfjax reproduce` runs them.
"""

import importlib
from collections.abc import Callable
from typing import NamedTuple

from ._base import Report as Report, Row as Row


class Experiment(NamedTuple):
    """Where an experiment is found, what it shows in a line, which weights it needs."""

    module: str
    title: str
    weights: tuple[str, ...] = ()


# In the order of the paper. The function in the module has the experiment's name, with
# underscores.
EXPERIMENTS: dict[str, Experiment] = {
    "trajectories": Experiment(
        "_trajectories", "every dynamics of section 2, beside an independent program"
    ),
    "energy-identities": Experiment(
        "_identities", "how the energy rises along attention, and when it does not"
    ),
    "uniform-energy": Experiment(
        "_extremes", "every energy lies between the uniform one and a point's"
    ),
    "small-beta": Experiment(
        "_limits", "the flow at small beta stays near that at beta = 0"
    ),
    "orders": Experiment(
        "_orders", "how fast layers converge to the flow as they thin out"
    ),
    "equiangular": Experiment(
        "_equiangular", "orthogonal tokens keep one inner product, gamma(t)"
    ),
    "concentration": Experiment(
        "_limits", "in many dimensions random tokens follow gamma(t)"
    ),
    "pair-histograms": Experiment(
        "_pairs", "the inner products of all pairs over time, and when all are close"
    ),
    "phase-diagrams": Experiment(
        "_phase", "the share of pairs that have met, by time, beta and dimension"
    ),
    "unnormalized": Experiment(
        "_unnormalized", "the same without normalisation: sooner for larger beta"
    ),
    "published-scheme": Experiment(
        "_published",
        "adding and normalising slows the clock, by how much, and the cure",
    ),
    "pretrained-models": Experiment(
        "_pretrained_models",
        "inner products of tokens in trained models, layer by layer",
        weights=("minilm", "antiberty", "albert"),
    ),
    "words": Experiment(
        "_words", "the words of a paragraph gather by topic", weights=("minilm",)
    ),
    "random-weights": Experiment(
        "_random_weights", "phase diagrams with random Q, K and V"
    ),
    "redrawn-weights": Experiment(
        "_redrawn", "the same with weights drawn anew as time goes on"
    ),
    "clusters-on-the-circle": Experiment(
        "_circle_clusters", "how many clusters tokens on the circle rest in, by beta"
    ),
    "time-scales": Experiment(
        "_time_scales", "on the sphere clusters form soon, and merge late"
    ),
    "optimal-configurations": Experiment(
        "_configurations", "repulsive attention finds the best points on the sphere"
    ),
    "metastability": Experiment(
        "_metastability", "clusters rest long, and the energy climbs by steps"
    ),
    "hemisphere": Experiment(
        "_hemisphere", "tokens in a hemisphere gather exponentially fast"
    ),
    "circle": Experiment(
        "_circle", "on the circle attention is a model of coupled oscillators"
    ),
    "landscape": Experiment(
        "_landscape", "regular polygons are strict saddles of the energy"
    ),
    "sequential-merging": Experiment(
        "_merging", "clusters merge one after another, the nearest pair first"
    ),
    "causal": Experiment(
        "_causal", "with a causal mask all follow the first token, late"
    ),
    "rank": Experiment(
        "_rank", "tokens become one, slowly in a window, and not with another V"
    ),
    "density": Experiment(
        "_density", "the density of many tokens: mass, energy, and tokens beside it"
    ),
    "growth": Experiment(
        "_growth", "which waves on the uniform circle grow, and how fast"
    ),
    "noisy-circle": Experiment(
        "_noisy_circle",
        "with noise on the circle order sets in, at high beta by a jump",
    ),
    "noisy-sphere": Experiment(
        "_noisy_sphere", "with noise on the sphere S^2: order, thresholds, hysteresis"
    ),
    "rescaled-limits": Experiment(
        "_rescaled", "tokens without LayerNorm end on polygons and lines, rescaled"
    ),
    "long-context": Experiment(
        "_long_context", "one layer over a long context: all one, or untouched"
    ),
    "normalization": Experiment(
        "_normalization", "the law of clustering of each place of LayerNorm"
    ),
    "signal-propagation": Experiment(
        "_initialization", "random blocks: when angles between tokens grow with depth"
    ),
}


def load(name: str) -> Callable[..., Report]:
    """The function of an experiment, by its name.

    **Arguments:**

    - `name`: one of `EXPERIMENTS`.

    **Returns:** the function `(*, seed=0, quick=False, progress=quiet) -> Report`.

    **Raises:** KeyError where there is no such experiment.

    !!! example

        >>> from tfjax.figures.paper import EXPERIMENTS, load
        >>> all(callable(load(name)) for name in EXPERIMENTS)
        True
    """
    module = importlib.import_module(f".{EXPERIMENTS[name].module}", __name__)
    return getattr(module, name.replace("-", "_"))
