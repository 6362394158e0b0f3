"""Three kinds of blocks on long sequences: states, gradients, feed-forward charts."""

from typing import Any

import numpy as np

from ...nn import TransformerConfig
from .._report import Progress, Report, Row, above, below, near, quiet, reported
from ._blocks import BLOCKS, Charts, Passage, charts, model_of, passage
from ._long_panels import Drawn, draw
from ._reading import sequences


LENGTHS = (64, 128, 256, 512, 1024)
DEPTHS = (8, 32)
EXPONENTS = (0.0, 1.0)
_TOKENS = 8  # of each layer, at which feed-forward parts are differentiated


def long_sequences(
    *, seed: int = 0, quick: bool = False, progress: Progress = quiet
) -> Report:
    """Whether blocks that keep a structure are stable on long sequences: as measured.

    **Arguments:**

    - `seed`: of the weights, and of the places in the text.
    - `quick`: two small models that read a paragraph, in place of the plays: states of
      one, the feed-forward parts of the other.
    - `progress`: is called with the fraction that is done.

    **Returns:** a report: norms of states and of gradients by length, depth and block;
    singular values of the feed-forward parts.

    **Raises:** FileNotFoundError where the plays were not fetched and `quick` is false.

    Source: own.
    """
    lengths, depths = ((16, 32), (2,)) if quick else (LENGTHS, DEPTHS)
    text, size = sequences(2, max(lengths) + 1, seed=seed, quick=quick)
    small = {"heads": 2, "head_dim": 8} if quick else {}
    options: Any = {"vocabulary": size, "context": max(lengths), "scan": True} | small
    passages: dict[tuple[str, int], Passage] = {}
    charted: dict[tuple[str, float], Charts] = {}
    done, total = 0, 2 if quick else len(BLOCKS) * (len(depths) + len(EXPONENTS))
    for block in BLOCKS:
        for depth in depths if not quick or block == "cayley" else ():
            config = TransformerConfig(layers=depth, block=block, **options)
            model = model_of(config, seed, "float32")
            passages[block, depth] = passage(model, text, lengths, seed)
            done += 1
            progress(done / total)
        for exponent in EXPONENTS if not quick else EXPONENTS[: block == "residual"]:
            config = TransformerConfig(
                layers=depths[0], block=block, branch_exponent=exponent, **options
            )
            short = text[:, : min(128, max(lengths))]
            model = model_of(config, seed)
            charted[block, exponent] = charts(model, short, _TOKENS, seed)
            done += 1
            progress(done / total)
    rows = []
    for (block, depth), one in passages.items():
        rows += _passage_rows(block, depth, lengths, one, quick)
    for (block, exponent), one in charted.items():
        rows += _chart_rows(block, exponent, one)
    if not quick:
        rows += _verdict_rows(passages, charted, lengths)
    data = {"lengths": np.array(lengths)}
    for (block, depth), one in passages.items():
        for name, array in one._asdict().items():
            data[f"{block}, {depth} layers: {name}"] = array
    for (block, exponent), one in charted.items():
        for name, array in one._asdict().items():
            data[f"{block}, branches / L^{exponent:g}: {name}"] = array
    progress(1.0)
    return Report(rows, draw(Drawn(lengths, passages, charted)), data, _NOTE)


def _exponent(lengths, ratios: np.ndarray) -> float:
    """How a ratio grows with the length: the slope of its logarithm."""
    return float(np.polyfit(np.log(lengths), np.log(ratios), 1)[0])


def _passage_rows(block, depth, lengths, one: Passage, quick: bool) -> list[Row]:
    """How states, gradients and changes grow, by depth and by length."""
    name, last = f"{block}, {depth} layers", one.states[:, -1]
    longest = f"{lengths[-1]:,} tokens"
    rows = []
    if block == "cayley":
        claim = f"{name}: largest change of the norm of a token, relative"
        rows.append(below(claim, one.off.max(), 1e-5))
    else:
        claim = f"{name}, {longest}: norm of a token, over its first one"
        rows.append(reported(claim, last[-1], "sqrt(1 + c layers), from its sums"))
    if not quick:
        claim = f"{name}: exponent of the norm of a token in the length"
        rows.append(near(claim, _exponent(lengths, last), 0.0, 0.05))
    for k, n in ((0, f"{lengths[0]} tokens"), (-1, longest)):
        claim = f"{name}, {n}: gradient in first tokens, over that in last ones"
        rows.append(reported(claim, one.gradients[k, 0], "1 were it kept"))
    claim = f"{name}: exponent of this ratio in the length"
    found = _exponent(lengths, one.gradients[:, 0])
    rows.append(reported(claim, found, "0 were it stable"))
    claim = f"{name}, {longest}: growth of a random small change"
    return [*rows, reported(claim, one.tangents[-1, -1], "1 were it kept")]


def _chart_rows(block, exponent, one: Charts) -> list[Row]:
    """Where the feed-forward part, and what a block makes of it, has an inverse."""
    name = f"{block}, branches / L^{exponent:g}"
    rows = []
    if block == "residual" and exponent == 0:
        claim = "feed-forward map alone: smallest singular value"
        rows.append(reported(claim, one.map[..., -1].min(), "above 0: an inverse"))
        condition = np.median(one.map[..., 0] / one.map[..., -1])
        claim = "feed-forward map alone: median condition"
        rows.append(reported(claim, condition, "1 for an isometry"))
        claim = "feed-forward map after its norm: smallest singular value"
        rows.append(below(claim, one.normed[..., -1].max(), 1e-12))
        claim = "feed-forward map after its norm: second smallest, over the largest"
        ratio = (one.normed[..., -2] / one.normed[..., 0]).max()
        rows.append(below(claim, ratio, 1e-4))
    claim = f"{name}: smallest singular value of the feed-forward step"
    rows.append(reported(claim, one.step[..., -1].min(), "above 0: an inverse"))
    claim = f"{name}: share of tokens where the step reverses orientation"
    share = (one.sign < 0).mean()
    if block == "leapfrog":
        rows.append(near(claim, share, 0.0, 0.0))
        largest = np.abs(one.log_volume).max()
        rows.append(below(f"{name}: largest |log det| of the step", largest, 1e-9))
        return rows
    rows.append(reported(claim, share, "0 were it a chart"))
    claim = f"{name}: mean of log |det| of the step"
    return [*rows, reported(claim, one.log_volume.mean(), "0 were volume kept")]


def _verdict_rows(passages, charted, lengths) -> list[Row]:
    """What holds of the claim that structure makes long sequences stable."""
    deep = {
        block: _exponent(lengths, passages[block, DEPTHS[-1]].gradients[:, 0])
        for block in BLOCKS
    }
    normed = charted["residual", 1.0].normed[..., 0].max() / DEPTHS[0]
    reversed_share = (charted["cayley", 1.0].sign < 0).mean()
    claim = f"cayley, {DEPTHS[-1]} layers: gradients grow with the length, exponent"
    return [
        above(claim, deep["cayley"], 0.05),
        below(
            f"leapfrog, {DEPTHS[-1]} layers: exponent less that of residual",
            deep["leapfrog"] - deep["residual"],
            0.0,
        ),
        below("residual, branches / L: largest |D| of a branch, so a chart", normed, 1),
        above(
            "cayley, branches / L: the step folds, share reversed", reversed_share, 0
        ),
    ]


_NOTE = (
    "New models of the default width (d = 128), of 8 and of 32 layers, on two "
    "sequences of Shakespeare's plays, in float32; derivatives of feed-forward parts "
    "in float64, of 8 layers, at 8 tokens each. Attention is causal, so that shorter "
    "sequences are starts of longer ones. Norms of states do not depend on the length "
    "for any block; with residual and leapfrog blocks they grow with the depth. "
    "Gradients in the first layer's tokens grow with the length with residual and "
    "with Cayley blocks, and hardly with leapfrog ones. So Cayley blocks keep the "
    "norm of every token, and no more: their feed-forward step, which turns a token "
    "by about the norm of a branch in radians whatever the token's own norm, shrinks "
    "volumes, and with branches / L it folds the sphere. Residual steps with branches "
    "/ L and leapfrog steps have an inverse. The map after its norm is nowhere a "
    "chart: the norm forgets a token's mean and, nearly, its length."
)
