"""The figures and theorems of arXiv 2312.10794 and what followed, by name."""

from .._report import Experiment


# In the order of the paper.
EXPERIMENTS: dict[str, Experiment] = {
    "trajectories": Experiment(
        "paper._trajectories",
        "every dynamics of section 2, beside an independent program",
    ),
    "energy-identities": Experiment(
        "paper._identities",
        "how the energy rises along attention, and when it does not",
    ),
    "uniform-energy": Experiment(
        "paper._extremes", "every energy lies between the uniform one and a point's"
    ),
    "small-beta": Experiment(
        "paper._limits", "the flow at small beta stays near that at beta = 0"
    ),
    "orders": Experiment(
        "paper._orders", "how fast layers converge to the flow as they thin out"
    ),
    "equiangular": Experiment(
        "paper._equiangular", "orthogonal tokens keep one inner product, gamma(t)"
    ),
    "concentration": Experiment(
        "paper._limits", "in many dimensions random tokens follow gamma(t)"
    ),
    "pair-histograms": Experiment(
        "paper._pairs",
        "the inner products of all pairs over time, and when all are close",
    ),
    "phase-diagrams": Experiment(
        "paper._phase", "the share of pairs that have met, by time, beta and dimension"
    ),
    "unnormalized": Experiment(
        "paper._unnormalized", "the same without normalisation: sooner for larger beta"
    ),
    "published-scheme": Experiment(
        "paper._published",
        "adding and normalising slows the clock, by how much, and the cure",
    ),
    "pretrained-models": Experiment(
        "paper._pretrained_models",
        "inner products of tokens in trained models, layer by layer",
        weights=("minilm", "antiberty", "albert"),
    ),
    "words": Experiment(
        "paper._words", "the words of a paragraph gather by topic", weights=("minilm",)
    ),
    "random-weights": Experiment(
        "paper._random_weights", "phase diagrams with random Q, K and V"
    ),
    "redrawn-weights": Experiment(
        "paper._redrawn", "the same with weights drawn anew as time goes on"
    ),
    "clusters-on-the-circle": Experiment(
        "paper._circle_clusters",
        "how many clusters tokens on the circle rest in, by beta",
    ),
    "time-scales": Experiment(
        "paper._time_scales", "on the sphere clusters form soon, and merge late"
    ),
    "optimal-configurations": Experiment(
        "paper._configurations",
        "repulsive attention finds the best points on the sphere",
    ),
    "metastability": Experiment(
        "paper._metastability", "clusters rest long, and the energy climbs by steps"
    ),
    "hemisphere": Experiment(
        "paper._hemisphere", "tokens in a hemisphere gather exponentially fast"
    ),
    "circle": Experiment(
        "paper._circle", "on the circle attention is a model of coupled oscillators"
    ),
    "landscape": Experiment(
        "paper._landscape", "regular polygons are strict saddles of the energy"
    ),
    "sequential-merging": Experiment(
        "paper._merging", "clusters merge one after another, the nearest pair first"
    ),
    "causal": Experiment(
        "paper._causal", "with a causal mask all follow the first token, late"
    ),
    "rank": Experiment(
        "paper._rank", "tokens become one, slowly in a window, and not with another V"
    ),
    "density": Experiment(
        "paper._density",
        "the density of many tokens: mass, energy, and tokens beside it",
    ),
    "growth": Experiment(
        "paper._growth", "which waves on the uniform circle grow, and how fast"
    ),
    "noisy-circle": Experiment(
        "paper._noisy_circle",
        "with noise on the circle order sets in, at high beta by a jump",
    ),
    "noisy-sphere": Experiment(
        "paper._noisy_sphere",
        "with noise on the sphere S^2: order, thresholds, hysteresis",
    ),
    "rescaled-limits": Experiment(
        "paper._rescaled",
        "tokens without LayerNorm end on polygons and lines, rescaled",
    ),
    "long-context": Experiment(
        "paper._long_context", "one layer over a long context: all one, or untouched"
    ),
    "normalization": Experiment(
        "paper._normalization", "the law of clustering of each place of LayerNorm"
    ),
    "signal-propagation": Experiment(
        "paper._initialization",
        "random blocks: when angles between tokens grow with depth",
    ),
}
