"""The words of a real paragraph as particles: their clusters, by beta."""

import jax.numpy as jnp
import numpy as np

from ...fields import AttentionParams, self_attention
from ...geometry import Sphere
from ...integrate import reduce_to_span, solve_ensemble
from ...nn import load_pretrained
from .._base import PALETTE, labels_along, log_time, new_figure, style
from .._report import Progress, Report, Row, below, near, quiet
from ._texts import KITCHEN, WORD_COUNTS, WORD_TIMES, paragraph


_THRESHOLD = 0.99
_SMALL = (3.0, 6.0, 9.0)


def words(*, seed: int = 0, quick: bool = False, progress: Progress = quiet) -> Report:
    """The last layer of MiniLM, put on the sphere and moved on by attention alone.

    **Arguments:**

    - `seed`: makes no difference: nothing is random.
    - `quick`: fewer inverse temperatures.
    - `progress`: is called with the fraction that is done.

    **Returns:** a report: the number of clusters by time and beta against a table, and
    one cluster in words.

    Source: arXiv 2312.10794, equation (2.3); the tokens are our own.
    """
    pretrained = load_pretrained("minilm")
    tokens = pretrained.encode(paragraph())
    last = jnp.asarray(pretrained.hidden_states(tokens)[-1], float)
    x0, _ = reduce_to_span(Sphere(last.shape[1]).project(last))
    progress(0.2)
    table = {13.0: WORD_COUNTS[13.0]} if quick else WORD_COUNTS
    betas = (9.0, *table) if quick else (*_SMALL, *table)
    ts = np.unique(np.concatenate([[0.0], np.geomspace(0.2, 200.0, 120), WORD_TIMES]))
    sol = solve_ensemble(
        self_attention,
        x0,
        AttentionParams(beta=jnp.asarray(betas)),
        in_axes=(None, {"beta": 0}),
        t1=ts[-1],
        ts=ts,
        manifold=Sphere(x0.shape[1]),
        max_steps=20_000,
        throw=True,
    )
    progress(0.8)
    labels = [labels_along(xs, _THRESHOLD) for xs in np.asarray(sol.ys)]
    counts = np.array([[len(set(state)) for state in each] for each in labels])
    at = np.searchsorted(ts, WORD_TIMES)
    rows: list[Row] = []
    for beta, each in zip(betas, counts, strict=True):
        if beta in table:
            error = np.abs(each[at] - np.array(table[beta])).max()
            claim = f"beta = {beta:g}: clusters from the table at seven times, at most"
            rows.append(below(claim, error, 1.5))
        else:
            found = each[np.searchsorted(ts, 10.0)]
            rows.append(near(f"beta = {beta:g}: clusters at t = 10", found, 1, 0))
    rows += _kitchen(tokens.words, labels[betas.index(13.0)][np.searchsorted(ts, 50.0)])
    figure = _figure(ts, betas, counts, table)
    data = {"t": ts, "beta": np.array(betas), "clusters": counts}
    data |= {"words": np.array(tokens.words), "labels": np.array(labels)}
    note = (
        "A cluster is a component of the graph of the pairs with inner product above "
        "0.99. The table has constant steps; here they are adaptive, and the 69 tokens "
        "are in the coordinates of their span."
    )
    return Report(rows, figure, data, note)


def _kitchen(names, state) -> list[Row]:
    """The tokens of one topic are together, and with no other."""
    members = np.array([name in KITCHEN for name in names])
    values, sizes = np.unique(state[members], return_counts=True)
    most = values[np.argmax(sizes)]
    claim = "beta = 13, t = 50: of the 8 tokens of the kitchen, in one cluster"
    return [
        near(claim, sizes.max(), 8, 0),
        near("the same: other tokens in it", np.sum(state == most) - sizes.max(), 0, 0),
    ]


def _figure(ts, betas, counts, table):
    figure = new_figure(7.0, 4.2)
    axes = style(figure.subplots())
    for k, (beta, each) in enumerate(zip(betas, counts, strict=True)):
        colour = PALETTE[k]
        axes.step(ts[1:], each[1:], where="post", color=colour, label=f"β = {beta:g}")
        if beta in table:
            axes.plot(WORD_TIMES, table[beta], "o", color=colour, markersize=4)
    log_time(axes, ts)
    axes.set(ylabel="clusters of the 69 tokens", ylim=(0, None))
    axes.set_title("MiniLM's last layer, moved on by attention; dots: table")
    axes.legend(frameon=False)
    return figure
