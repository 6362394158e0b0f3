"""How long clusters last, and how long an energy rests."""

from typing import NamedTuple

import numpy as np
from jaxtyping import ArrayLike, Float, Int

from .._core import as_float, must
from ._merging import check_times, labels_of


class Lifetime(NamedTuple):
    """A cluster: its tokens, and the saved times between which it was one.

    - `members`: the tokens, in increasing order.
    - `birth`: the first time at which exactly these tokens are a cluster.
    - `death`: the next time at which they are not; inf where they are at the end.
    """

    members: tuple[int, ...]
    birth: float
    death: float


class Persistence(NamedTuple):
    """How long clusters last.

    - `clusters`: the [`Lifetime`][] of every cluster, in order of birth, then largest
      first.
    - `durations`: of shape (n,): entry `k - 1` is for how long in all there were
      exactly k clusters.
    """

    clusters: list[Lifetime]
    durations: Float[np.ndarray, " n"]


def cluster_persistence(
    ts: Float[ArrayLike, " t"],
    xs: Float[ArrayLike, "t n d"] | Int[ArrayLike, "t n"],
    threshold: Float[ArrayLike, ""] | float = 0.99,
) -> Persistence:
    r"""When each cluster is born and dies, and how long there are k clusters.

    A cluster is its set of tokens, a single token included. It dies when it gains or
    loses one; if the same set forms again, that is another life. A saved state counts
    as lasting until the next saved time, the last one not at all.

    **Arguments:**

    - `ts`: increasing times, of shape (t,).
    - `xs`: tokens on the unit sphere at these times, of shape (t, n, d), or labels of
      clusters that are at hand, of shape (t, n); tokens labelled -1 are in none.
    - `threshold`: for tokens, the inner product above which two are joined.

    **Returns:** a [`Persistence`][]. The durations add to the length of the
    trajectory, less the times at which all tokens are labelled -1. Runs outside jit.

    **Raises:** ValueError where the shapes do not fit.

    !!! example

        >>> import numpy as np
        >>> from tfjax.diagnostics import cluster_persistence
        >>> labels = np.array([[0, 1, 2], [0, 0, 2], [0, 0, 0]])
        >>> lives = cluster_persistence(np.array([0.0, 1.0, 5.0]), labels)
        >>> lives.durations.tolist()
        [0.0, 4.0, 1.0]
        >>> lives.clusters[-1]
        Lifetime(members=(0, 1, 2), birth=5.0, death=inf)

    Source: own; for metastability, arXiv 2410.06833.
    """
    times, labels = labels_of(ts, xs, threshold)
    durations = np.zeros(labels.shape[1])
    living: dict[tuple[int, ...], float] = {}
    lives = []
    for k, (time, row) in enumerate(zip(times, labels, strict=True)):
        now = {
            tuple(np.flatnonzero(row == label).tolist())
            for label in np.unique(row[row >= 0])
        }
        for members in living.keys() - now:
            lives.append(Lifetime(members, living.pop(members), float(time)))
        for members in now - living.keys():
            living[members] = float(time)
        if now and k + 1 < len(times):
            durations[len(now) - 1] += times[k + 1] - time
    lives += [Lifetime(members, birth, np.inf) for members, birth in living.items()]
    lives.sort(key=lambda life: (life.birth, -len(life.members), life.members))
    return Persistence(lives, durations)


class Plateau(NamedTuple):
    """A rest of the energy: its level, and the saved times between which it holds."""

    level: float
    start: float
    end: float


def energy_staircase(
    ts: Float[ArrayLike, " t"],
    energies: Float[ArrayLike, " t"],
    *,
    width: float = 5e-3,
    ratio: float = 2.0,
) -> list[Plateau]:
    r"""The plateaus of an energy along a trajectory: where it rests in log time.

    A plateau is an interval of saved times in which the energy stays within a band of
    `width`, and whose end is at least `ratio` times its start. The longest one in
    logarithmic time is taken first, then the longest on either side of it, and so on:
    they do not overlap, and noise below the width does not part them. In logarithmic
    time every trajectory rests at its first energy too, until it has moved.

    For tokens that rest in clusters of m_1, m_2, ... of n tokens, the energy in units
    of that of one cluster, `2 beta exp(-beta) E`, is near `sum_k m_k^2 / n^2`.

    **Arguments:**

    - `ts`: increasing times, of shape (t,); times up to 0 are left out.
    - `energies`: the energies, of shape (t,), scaled so that full collapse is 1.
    - `width`: the height of the band, in the units of the energies.
    - `ratio`: the least ratio of end and start of a plateau, above 1.

    **Returns:** a list of [`Plateau`][]`(level, start, end)` in order of time; the
    level is the median of the energies in it. A plateau that goes on at the last time
    ends there. Runs outside jit.

    **Raises:** ValueError where shapes do not fit, an energy is not finite, or `width`
    or `ratio` is out of range.

    !!! example

        >>> import numpy as np
        >>> from tfjax.diagnostics import energy_staircase
        >>> ts = np.geomspace(1.0, 1000.0, 31)
        >>> energy_staircase(ts, np.where(ts < 99.0, 0.5, 1.0))[0].level
        0.5

    Source: own; for the staircase, arXiv 2410.06833.
    """
    times, values = _real("ts", ts), _real("energies", energies)
    if times.ndim != 1 or not times.size:
        raise must("ts", "be increasing times of shape (t,)", f"of shape {times.shape}")
    check_times(times)
    for name, value in (("width", width), ("ratio", ratio)):
        if _real(name, value).ndim:
            raise must(name, "be a scalar", f"of shape {np.shape(value)}")
    if values.shape != times.shape:
        rule = f"have shape {times.shape}, one for each of ts"
        raise must("energies", rule, f"of shape {values.shape}")
    if not np.all(np.isfinite(values)):
        raise must("energies", "be finite", "not in some place")
    if not 0 <= width < np.inf:
        raise must("width", "be finite and not negative", width)
    if not 1 < ratio < np.inf:
        raise must("ratio", "be finite and above 1", ratio)
    times, values = times[times > 0], values[times > 0]
    return _longest_first(times, values, width, ratio)


def _real(name, value):
    """Real numbers in double precision, also where jax has none."""
    array = np.asarray(value)
    if array.dtype.kind not in "iuf":
        array = np.asarray(as_float(name, value))  # half precision, or an error
    return array.astype(float)


def _longest_first(times, values, width, ratio):
    best = None
    for first in range(len(times)):
        rest = values[first:]
        band = np.maximum.accumulate(rest) - np.minimum.accumulate(rest)
        last = first + int(np.sum(band <= width)) - 1  # the band only ever grows
        length = times[last] / times[first]
        if length >= ratio * (1 - 1e-12) and (best is None or length > best[0]):
            best = length, first, last
    if best is None:
        return []
    _, first, last = best
    level = float(np.median(values[first : last + 1]))
    found = Plateau(level, float(times[first]), float(times[last]))
    before = _longest_first(times[:first], values[:first], width, ratio)
    after = _longest_first(times[last + 1 :], values[last + 1 :], width, ratio)
    return [*before, found, *after]
