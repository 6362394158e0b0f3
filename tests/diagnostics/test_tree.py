"""Merge trees, lifetimes of clusters, and the staircase of the energy."""

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.cluster import hierarchy

from tfjax.diagnostics import (
    Lifetime,
    cluster_persistence,
    energy_staircase,
    label_merges,
    merge_events,
    merge_tree,
)


DTYPE = jnp.zeros(()).dtype
TIMES = np.array([0.0, 1.0, 2.5, 4.0])
# 0 and 1 merge at 1.0; then 2, 3 and 4 in one step at 2.5; 5 stays alone.
LABELS = np.array([[0, 1, 2, 3, 4, 5], [0, 0, 2, 3, 4, 5]] + [[0, 0, 2, 2, 2, 5]] * 2)


def as_tokens(labels):
    """Tokens on the sphere that have these clusters."""
    return np.eye(labels.max() + 1, dtype=DTYPE)[labels]


def random_merging(seed, n=12, steps=7):
    """Labels of clusters that only ever merge."""
    random = np.random.default_rng(seed)
    rows = [np.arange(n)]
    for _ in range(steps - 1):
        row = rows[-1].copy()
        for _ in range(random.integers(0, 3)):
            a, b = random.choice(np.unique(row), 2)
            row[row == max(a, b)] = min(a, b)
        rows.append(row)
    return np.sort(random.uniform(0, 10, steps)), np.array(rows)


def same_partition(a, b):
    return len(set(zip(a, b, strict=True))) == len(set(a)) == len(set(b))


# --- The tree -------------------------------------------------------------------------


def test_the_rows_of_the_tree_are_the_merges_in_order():
    tree = merge_tree(TIMES, LABELS)
    expected = [
        [0, 1, 1.0, 2],
        [2, 3, 2.5, 2],
        [4, 7, 2.5, 3],
        [6, 8, 8.0, 5],  # never: as long after the end as that is after the start
        [5, 9, 8.0, 6],
    ]
    np.testing.assert_array_equal(tree.linkage, expected)
    assert tree.happened.tolist() == [True, True, True, False, False]


def test_tokens_and_their_labels_give_the_same_tree():
    tree, same = merge_tree(TIMES, as_tokens(LABELS)), merge_tree(TIMES, LABELS)
    np.testing.assert_array_equal(tree.linkage, same.linkage)
    np.testing.assert_array_equal(tree.happened, same.happened)


def test_the_times_are_those_of_the_merge_events():
    times, labels = random_merging(3)
    events = merge_events(times, as_tokens(labels))
    expected = [e.time for e in events for _ in e.parts[1:]]
    tree = merge_tree(times, labels)
    got = tree.linkage[tree.happened, 2]
    np.testing.assert_allclose(got, expected, rtol=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_scipy_accepts_the_tree_and_cuts_it_into_the_clusters_of_every_time(seed):
    times, labels = random_merging(seed)
    tree = merge_tree(times, labels)
    assert hierarchy.is_valid_linkage(tree.linkage, throw=True)
    assert hierarchy.is_monotonic(tree.linkage)
    for time, row in zip(times, labels, strict=True):
        cut = hierarchy.fcluster(tree.linkage, time, "distance")
        assert same_partition(cut, row)
    drawn = hierarchy.dendrogram(tree.linkage, no_plot=True)
    assert sorted(drawn["leaves"]) == list(range(12))


def test_what_falls_apart_stays_joined_and_a_state_without_labels_joins_nothing():
    labels = np.array([[0, 0, 2], [0, 1, 2], [-1, -1, -1], [0, 1, 1]])
    tree = merge_tree(TIMES, labels)
    np.testing.assert_array_equal(tree.linkage, [[0, 1, 0, 2], [2, 3, 4, 3]])
    assert tree.happened.all()


def test_one_token_has_an_empty_tree_and_one_state_a_finite_one():
    assert merge_tree(TIMES, LABELS[:, :1]).linkage.shape == (0, 4)
    tree = merge_tree(TIMES[:1], LABELS[:1, :2])
    np.testing.assert_array_equal(tree.linkage, [[0, 1, 1, 2]])
    assert not tree.happened.any()


# --- Lifetimes ------------------------------------------------------------------------


def test_clusters_live_from_the_first_time_to_the_next_at_which_they_are_not():
    lives = cluster_persistence(TIMES, LABELS)
    assert lives.clusters == [
        Lifetime((0,), 0.0, 1.0),
        Lifetime((1,), 0.0, 1.0),
        Lifetime((2,), 0.0, 2.5),
        Lifetime((3,), 0.0, 2.5),
        Lifetime((4,), 0.0, 2.5),
        Lifetime((5,), 0.0, np.inf),
        Lifetime((0, 1), 1.0, np.inf),
        Lifetime((2, 3, 4), 2.5, np.inf),
    ]
    assert lives.durations.tolist() == [0.0, 0.0, 1.5, 0.0, 1.5, 1.0]
    assert cluster_persistence(TIMES, as_tokens(LABELS)).clusters == lives.clusters


def test_a_set_that_forms_again_lives_again():
    labels = np.array([[0, 0], [-1, -1], [0, 0], [0, 1]])
    lives = cluster_persistence(TIMES, labels)
    assert [life for life in lives.clusters if len(life.members) == 2] == [
        Lifetime((0, 1), 0.0, 1.0),
        Lifetime((0, 1), 2.5, 4.0),
    ]
    assert lives.durations.tolist() == [2.5, 0.0]  # nothing while nothing is known


@pytest.mark.parametrize("seed", range(3))
def test_at_every_time_the_living_clusters_hold_every_token_once(seed):
    times, labels = random_merging(seed)
    lives = cluster_persistence(times, labels)
    assert lives.durations.sum() == pytest.approx(times[-1] - times[0])
    for time, row in zip(times, labels, strict=True):
        alive = [c for c in lives.clusters if c.birth <= time < c.death]
        assert sorted(i for c in alive for i in c.members) == list(range(12))
        assert len(alive) == len(np.unique(row))


# --- The staircase --------------------------------------------------------------------

GRID = np.geomspace(0.1, 1000.0, 81)


def test_the_plateaus_of_a_staircase_are_its_steps():
    values = np.select([GRID < 1, GRID < 30, GRID < 300], [0.2, 0.52, 0.7], 1.0)
    found = energy_staircase(GRID, values)
    assert [p.level for p in found] == [0.2, 0.52, 0.7, 1.0]
    for plateau, (low, high) in zip(
        found, [(0.1, 1), (1, 30), (30, 300), (300, 1000)], strict=True
    ):
        assert low <= plateau.start < low * 1.13  # one step of the grid
        assert high / 1.13 <= plateau.end <= high * (1 + 1e-12)


def test_noise_below_the_width_changes_no_plateau():
    values = np.where(GRID < 30, 0.52, 1.0)
    noise = np.random.default_rng(0).uniform(-2e-3, 2e-3, GRID.size)
    clean, noisy = (
        energy_staircase(GRID, values),
        energy_staircase(GRID, values + noise),
    )
    assert [p[1:] for p in noisy] == [p[1:] for p in clean]
    levels = np.array([[a.level, b.level] for a, b in zip(clean, noisy, strict=True)])
    assert np.abs(levels[:, 0] - levels[:, 1]).max() < 2e-3


def test_a_steady_rise_in_log_time_has_no_plateau_until_the_band_is_wide():
    values = np.log(GRID / 0.1) / np.log(1e4)
    assert energy_staircase(GRID, values, width=0.05) == []
    wide = energy_staircase(GRID, values, width=0.1)
    assert all(p.end >= 2 * p.start for p in wide)
    assert len(wide) > 3


def test_the_ratio_is_the_least_length_of_a_plateau():
    values = np.where(GRID < 500, 0.5, 1.0)
    assert len(energy_staircase(GRID, values)) == 1 + (1000 / GRID[GRID >= 500][0] >= 2)
    assert len(energy_staircase(GRID, values, ratio=3.0)) == 1
    assert len(energy_staircase(GRID, values, ratio=1.5)) == 2


def test_a05_five_tokens_rest_at_the_level_of_two_and_three_of_five():
    with np.load(Path(__file__).parents[1] / "reference" / "a05_energy.npz") as file:
        ts, energies = file["t"], file["E"]
    at = lambda t: float(np.interp(t, ts, energies))
    for time, level in ((5, 0.51931), (20, 0.52033), (100, 0.52040)):
        assert at(time) == pytest.approx(level, abs=5e-6)
    start, longest = energy_staircase(ts, energies)
    # In log time every trajectory rests at its first energy, as t tends to 0.
    assert (start.start, start.end < 1.0) == (ts[1], True)
    assert start.level == pytest.approx(energies[0], abs=1e-2)
    assert longest.level == pytest.approx(13 / 25, abs=1e-3)
    assert longest.level == pytest.approx(0.5204, abs=5e-5)
    assert longest.start < 5.2  # the last of the early merges
    assert 290 < longest.end < 328.364063  # it rises before the exit
    assert energy_staircase(ts, energies, ratio=1.15)[-1].level == pytest.approx(1.0)


@pytest.mark.usefixtures("unchecked")
def test_the_errors_name_the_argument():
    rule = r"^`xs` must be tokens \(t, n, d\) or integer labels \(t, n\), a row for eac"
    for function in (merge_tree, cluster_persistence):
        for bad in (LABELS[:3], LABELS.astype(float), LABELS[:, :0]):
            with pytest.raises(ValueError, match=rule):
                function(TIMES, bad)
        with pytest.raises(ValueError, match="^`xs` must have 3 states, one for each"):
            function(TIMES[:3], as_tokens(LABELS))
    values = np.zeros(81)
    with pytest.raises(
        ValueError,
        match=r"^`ts` must be (increasing times of shape|finite and increasing)",
    ):
        energy_staircase(GRID[::-1], values)
    with pytest.raises(ValueError, match=r"^`energies` must have shape \(81,\), one"):
        energy_staircase(GRID, values[1:])
    with pytest.raises(ValueError, match="^`energies` must be finite, but was"):
        energy_staircase(GRID, values + np.nan)
    with pytest.raises(ValueError, match="^`width` must be finite and not negative, b"):
        energy_staircase(GRID, values, width=-1.0)
    with pytest.raises(ValueError, match="^`ratio` must be finite and above 1, but"):
        energy_staircase(GRID, values, ratio=1.0)


THREE = np.array([[0, 1, 2], [0, 0, 2], [0, 0, 0]])


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("ts", [[0.0, 5.0, 3.0], [0.0, np.nan, 3.0], [0, 1, np.inf]])
@pytest.mark.parametrize("what", [merge_tree, cluster_persistence, label_merges])
def test_times_that_do_not_increase_are_refused_by_name(what, ts):
    with pytest.raises(ValueError, match="`ts` must be finite and increasing, but was"):
        what(np.array(ts), THREE)


@pytest.mark.usefixtures("unchecked")
def test_states_and_thresholds_that_are_not_finite_are_refused_by_name():
    ts, lost = np.arange(2.0), np.full((2, 3, 2), np.nan)
    for what in (merge_tree, cluster_persistence):
        with pytest.raises(ValueError, match="`xs` must be finite"):
            what(ts, lost)
    sound = np.ones((2, 3, 2)) / np.sqrt(2)
    with pytest.raises(ValueError, match="`threshold` must be finite, but was nan"):
        merge_tree(ts, sound, np.nan)
    with pytest.raises(ValueError, match="`labels` must be integers"):
        label_merges(ts, np.zeros((2, 3)))
    with pytest.raises(ValueError, match="`ts` must be finite and increasing"):
        energy_staircase(np.array([1.0, 2.0, np.inf]), np.ones(3))
    with pytest.raises(ValueError, match="`energies` must be a real array"):
        energy_staircase(np.arange(3.0), np.ones(3) * 1j)
