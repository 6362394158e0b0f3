"""Trained models: the inner products of their tokens, layer by layer, and iterated."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from ...fields import AttentionParams, self_attention
from ...geometry import Sphere
from ...integrate import reduce_to_span, solve
from ...nn import Pretrained, Tokens, load_pretrained
from .._base import GREY, PALETTE, new_figure, style
from .._report import Progress, Report, Row, above, below, near, quiet, within
from ._texts import ANTIBODY, PHONEMES, paragraph


_NEAR = 0.9  # the inner product above which a pair counts as near
_TITLES = {
    "minilm": "MiniLM, English",
    "antiberty": "AntiBERTy, an antibody",
    "albert": "ALBERT, phonemes",
}
# Mean inner product of two tokens in each layer, found by others: by the original
# implementation, by another reader of the same file, by the int8 original.
_EXPECTED = {
    "minilm": (0.085, 0.164, 0.183, 0.204, 0.237, 0.289, 0.305),
    "antiberty": (0.022, 0.078, 0.095, 0.108, 0.129, 0.176, 0.246, 0.276, 0.354),
    "albert": (
        *(0.129, 0.425, 0.401, 0.364, 0.352, 0.347, 0.343),
        *(0.354, 0.354, 0.343, 0.370, 0.382, 0.571),
    ),
}
# The int8 original rounds its activations too.
_TOLERANCE = {"minilm": 1e-3, "antiberty": 1e-3, "albert": 0.015}


class _Layers(NamedTuple):
    """What is measured of states of shape (t, n, d)."""

    pairs: np.ndarray  # (t, n (n - 1) / 2), inner products of the pairs i < j
    rank: np.ndarray  # (t,), exp of the entropy of the squared singular values
    step: np.ndarray  # (t - 1,), |x' - x| / |x|

    @property
    def mean(self) -> np.ndarray:
        return self.pairs.mean(axis=1)

    @property
    def near(self) -> np.ndarray:
        """The share of pairs above `_NEAR`."""
        return (self.pairs > _NEAR).mean(axis=1)


def pretrained_models(
    *, seed: int = 0, quick: bool = False, progress: Progress = quiet
) -> Report:
    """Figure 1 of trained models: pairs near 1 gather in depth; beyond it, no collapse.

    **Arguments:**

    - `seed`: of the random symbols.
    - `quick`: one sentence, iterated 100 times, in place of five and 400.
    - `progress`: is called with the fraction that is done.

    **Returns:** a report: means and histograms of the inner products by layer, and
    what the one layer of the ALBERT does to them when it is applied beyond its depth.

    Source: arXiv 2312.10794, figure 1 and section 2; other models than there.
    """
    steps, sentences = (100, PHONEMES[:1]) if quick else (400, PHONEMES)
    models = {name: load_pretrained(name) for name in _TITLES}
    texts = {"minilm": paragraph(), "antiberty": ANTIBODY, "albert": PHONEMES[0]}
    found = {}
    for k, (name, text) in enumerate(texts.items()):
        tokens = models[name].encode(text)
        found[name] = _measured(models[name].hidden_states(tokens))
        progress(0.1 * (k + 1))
    rows = _by_layer(found)
    albert, runs = models["albert"], []
    for k, text in enumerate(sentences):
        states = albert.hidden_states(albert.encode(text), steps=steps)
        runs.append(_measured(states))
        progress(0.3 + 0.6 * (k + 1) / len(sentences))
    rows += _random_symbols(albert, seed)
    rows += _iterated(runs, steps)
    rows += _attention_alone(albert)
    data = {}
    for name, layers in found.items():
        data |= {f"{name}: pairs": layers.pairs, f"{name}: effective rank": layers.rank}
    data |= {
        "iterated: mean inner product": np.array([run.mean for run in runs]),
        "iterated: share of pairs near 1": np.array([run.near for run in runs]),
        "iterated: effective rank": np.array([run.rank for run in runs]),
        "iterated: relative step": np.array([run.step for run in runs]),
    }
    note = (
        "Tokens are normalised, special ones included; pairs i < j, without the pairs "
        "i = j of the paper. The ALBERT is PL-BERT with int8-dequantised weights; its "
        "table is of the int8 original, whose activations are int8 too. Iterations are "
        "in float32."
    )
    return Report(rows, _figure(found, runs, steps), data, note)


def _measured(states) -> _Layers:
    x = np.asarray(states, float)
    step = np.linalg.norm(np.diff(x, axis=0), axis=(1, 2))
    step = step / np.linalg.norm(x[:-1], axis=(1, 2))
    x = x / np.linalg.norm(x, axis=2, keepdims=True)
    gram = x @ np.swapaxes(x, 1, 2)
    i, j = np.triu_indices(x.shape[1], 1)
    share = np.clip(np.linalg.eigvalsh(gram) / x.shape[1], 1e-30, None)
    rank = np.exp(-np.sum(share * np.log(share), axis=1))
    return _Layers(gram[:, i, j], rank, step)


# --- The claims -----------------------------------------------------------------------


def _by_layer(found) -> list[Row]:
    rows: list[Row] = []
    for name, layers in found.items():
        error = np.abs(layers.mean - _EXPECTED[name]).max()
        claim = f"{name}: mean of <x, x'> in every layer, off the table by at most"
        rows.append(below(claim, error, _TOLERANCE[name]))
        claim = f"{name}: share of pairs above {_NEAR:g}, last layer less first"
        rows.append(above(claim, layers.near[-1] - layers.near[0], 0))
    for name in ("minilm", "antiberty"):
        claim = f"{name}: mean of <x, x'>, least growth from layer to layer"
        rows.append(above(claim, np.diff(found[name].mean).min(), 0))
        claim = f"{name}: mean of <x, x'>, last layer less first"
        rows.append(above(claim, found[name].mean[-1] - found[name].mean[0], 0.15))
    mean = found["albert"].mean
    # Not every layer gathers: the same weights also drive tokens apart.
    claim = "albert: mean of <x, x'>, layer 1 less layer 9"
    return [*rows, above(claim, mean[1] - mean[9], 0.05)]


def _random_symbols(albert: Pretrained, seed: int) -> list[Row]:
    vocabulary = albert.model.config.vocabulary
    ids = np.random.default_rng(seed).integers(vocabulary, size=94)
    tokens = Tokens(jnp.asarray(ids, jnp.int32), ("",) * 94, jnp.zeros(94, bool))
    mean = _measured(albert.hidden_states(tokens)).mean
    claim = "albert, random symbols: mean of <x, x'> in layer 12"
    return [near(claim, mean[-1], 0.79, 0.1)]


def _iterated(runs, steps) -> list[Row]:
    """The negative one: what the theorems exclude does keep the tokens apart."""
    count = f"{len(runs)} sentence" + "s" * (len(runs) > 1)
    late = slice(16, None)
    mean = np.array([run.mean for run in runs])
    rank = np.array([run.rank for run in runs])
    step = np.array([run.step for run in runs])
    joined = np.array([run.near[-1] - run.near[12] for run in runs])
    what = f"albert iterated {steps} times, {count}"
    return [
        below(f"{what}: mean of <x, x'> at the end, at most", mean[:, -1].max(), 0.9),
        below(f"{what}: from t = 16 on, at most", mean[:, late].max(), 0.9),
        above(f"{what}: effective rank at the end, at least", rank[:, -1].min(), 3),
        within(f"{what}: its median from t = 16 on", np.median(rank[:, late]), 5, 14),
        above(f"{what}: relative step, at least", step.min(), 0.1),
        within(f"{what}: mean of it from t = 16 on", step[:, late].mean(), 0.4, 0.7),
        # Single pairs do meet: slow coarsening, far from one cluster.
        above(f"{what}: growth of pairs above {_NEAR:g}, at least", joined.min(), 0),
    ]


def _attention_alone(albert: Pretrained) -> list[Row]:
    """The same tokens where the theorem holds: no feed-forward, no biases, V = I."""
    start = albert.hidden_states(albert.encode(PHONEMES[0]), steps=1)[0]
    start = jnp.asarray(start, float)
    x0, _ = reduce_to_span(Sphere(start.shape[1]).project(start))
    sol = solve(
        self_attention,
        x0,
        AttentionParams(beta=1.0),
        t1=30.0,
        manifold=Sphere(x0.shape[1]),
        throw=True,
    )
    least = _measured(sol.ys).pairs.min()
    claim = "the same tokens under attention alone, beta = 1, t = 30: least <x, x'>"
    return [near(claim, least, 1.0, 1e-3)]


# --- The figure -----------------------------------------------------------------------


def _figure(found, runs, steps):
    figure = new_figure(8.4, 5.6)
    above_, below_ = figure.subplots(2, 3)
    for axes, (name, title) in zip(above_, _TITLES.items(), strict=True):
        depth = len(found[name].pairs) - 1
        shown = np.unique(np.linspace(0, depth, 4).round().astype(int))
        _histograms(axes, found[name].pairs, shown, "layer")
        axes.set_title(title, fontsize=10)
    left, middle, right = (style(axes) for axes in below_)
    for k, (name, layers) in enumerate(found.items()):
        depth = np.linspace(0, 1, len(layers.mean))
        label = _TITLES[name].partition(",")[0]
        left.plot(depth, layers.mean, "o-", markersize=3, color=PALETTE[k], label=label)
    left.set(xlabel="layer over depth", ylabel="mean inner product", ylim=(0, 1))
    left.legend(frameon=False, fontsize=8)
    times = np.unique([12, steps // 4, steps])
    states = np.concatenate([run.pairs[times] for run in runs], axis=1)
    _histograms(middle, states, range(len(times)), "t", times)
    middle.set_title(f"ALBERT's layer, {steps} times", fontsize=10)
    ts = np.arange(1, steps + 1)
    for colour, label, lines in (
        (PALETTE[0], "mean inner product", [run.mean[1:] for run in runs]),
        (PALETTE[3], "relative step", [run.step for run in runs]),
    ):
        right.fill_between(
            ts, np.min(lines, 0), np.max(lines, 0), color=colour, alpha=0.25, lw=0
        )
        right.plot(ts, np.mean(lines, 0), color=colour, linewidth=0.9, label=label)
    right.axvline(12, color=GREY, linewidth=0.8, linestyle=":")
    right.set(xlabel="applications t (log scale)", xscale="log", xlim=(1, steps))
    right.set(ylabel="product, |x' - x| / |x|", ylim=(0, 1.4))
    right.set_title(f"sentences: {len(runs)}; dotted: trained depth", fontsize=9)
    right.legend(frameon=False, fontsize=8)
    return figure


def _histograms(axes, pairs, shown, what, names=None):
    from matplotlib import colormaps

    style(axes)
    edges = np.linspace(-0.4, 1.0, 57)
    top = 0.0
    for k, layer in enumerate(shown):
        name = layer if names is None else names[layer]
        colour = colormaps["viridis"](0.85 * (1 - k / (len(shown) - 1)))
        density, _ = np.histogram(pairs[layer], edges, density=True)
        top = max(top, density.max())
        axes.stairs(density, edges, color=colour, label=f"{what} {name}", linewidth=1.3)
    axes.set(xlabel="inner product of two tokens", ylabel="density of pairs")
    axes.set(xlim=(-0.35, 1.0), ylim=(0, 1.2 * top))
    axes.legend(frameon=False, fontsize=8)
