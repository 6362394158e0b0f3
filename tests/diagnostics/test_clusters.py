"""Clusters of a state, and how they merge along a trajectory."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.sparse import csgraph

from tfjax.diagnostics import (
    Merge,
    cluster_labels,
    count_clusters,
    inner_products,
    label_merges,
    merge_events,
    merge_times,
)


def circle(*degrees):
    angles = np.deg2rad(np.asarray(degrees, np.float64))
    points = np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    return points.astype(jnp.zeros(()).dtype)


# Tokens are joined at 0.99 where they are less than 8.1 degrees apart.
TWO_CAPS = circle(0, 180, 2, 176, -3, 183)
CHAIN = circle(35, 0, 21, 7, 28, 14)


@functools.cache
def compiled(function):
    return jax.jit(function)


# --- One state ------------------------------------------------------------------------


def test_inner_products_are_those_of_all_pairs():
    x = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
    expected = [[float(np.dot(a, b)) for b in x] for a in x]
    np.testing.assert_allclose(inner_products(x), expected, rtol=1e-5, atol=1e-6)
    half = inner_products(jnp.asarray(x, jnp.bfloat16))
    assert half.dtype == jnp.bfloat16


def test_two_caps_are_two_clusters_named_by_their_first_token():
    assert cluster_labels(TWO_CAPS).tolist() == [0, 1, 0, 1, 0, 1]
    assert int(count_clusters(TWO_CAPS)) == 2


def test_a_chain_of_near_tokens_is_one_cluster_however_long():
    assert inner_products(CHAIN)[0, 1] < 0.99
    assert cluster_labels(CHAIN).tolist() == [0] * 6
    broken = CHAIN.copy()
    broken[2] = circle(100)
    assert cluster_labels(broken).tolist() == [0, 1, 2, 1, 0, 1]
    assert int(count_clusters(broken)) == 3


def test_the_threshold_decides_and_equality_does_not_join():
    assert int(count_clusters(TWO_CAPS, -1.1)) == 1
    assert int(count_clusters(TWO_CAPS, 0.9999)) == 6
    assert int(count_clusters(TWO_CAPS, 1.0)) == 6
    x = np.array([[1.0, 0.0], [0.5, np.sqrt(0.75)]], TWO_CAPS.dtype)
    assert int(count_clusters(x, 0.5)) == 2
    assert int(count_clusters(x, 0.499)) == 1


@pytest.mark.parametrize("seed", range(3))
def test_random_states_agree_with_scipy(seed):
    x = np.random.default_rng(seed).standard_normal((40, 2)).astype(TWO_CAPS.dtype)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    count, labels = csgraph.connected_components(x @ x.T > 0.995, directed=False)
    assert int(compiled(count_clusters)(x, 0.995)) == count
    _, first = np.unique(labels, return_index=True)
    got = compiled(cluster_labels)(x, 0.995)
    np.testing.assert_array_equal(got, first[labels])


def test_absent_tokens_are_in_no_cluster_and_join_none():
    mask = np.array([True, True, False, True, True, True])
    assert cluster_labels(CHAIN, mask=mask).tolist() == [0, 1, -1, 1, 0, 1]
    assert int(count_clusters(CHAIN, mask=mask)) == 2
    none = np.zeros(6, bool)
    assert cluster_labels(CHAIN, mask=none).tolist() == [-1] * 6
    assert int(count_clusters(CHAIN, mask=none)) == 0


def test_garbage_in_an_absent_token_does_no_harm():
    x = TWO_CAPS.copy()
    x[1] = np.nan
    mask = np.array([True, False, True, True, True, True])
    for run in (cluster_labels, compiled(cluster_labels)):
        assert run(x, mask=mask).tolist() == [0, -1, 0, 3, 0, 3]
    assert int(count_clusters(x, mask=mask)) == 2


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_token_that_is_not_finite_is_an_error_and_minus_1_under_jit(bad):
    x = TWO_CAPS.copy()
    x[2, 1] = bad
    for function in (cluster_labels, count_clusters):
        with pytest.raises(ValueError, match="^`x` must be finite, but was"):
            function(x)
    assert compiled(cluster_labels)(x).tolist() == [-1] * 6
    assert int(compiled(count_clusters)(x)) == -1
    batch = jax.vmap(count_clusters)(np.stack([TWO_CAPS, x]))
    assert batch.tolist() == [2, -1]


@pytest.mark.usefixtures("unchecked")
def test_bad_states_are_refused_by_name():
    for function in (inner_products, cluster_labels, count_clusters):
        shape = r"^`x` must have shape \(n, d\), but was of shape \(2, 3, 4\)"
        with pytest.raises(ValueError, match=shape):
            function(np.ones((2, 3, 4)))
        with pytest.raises(ValueError, match=r"but was of shape \(0, 3\)"):
            function(np.ones((0, 3)))
    message = r"^`mask` must be boolean of shape \(6,\), but was "
    with pytest.raises(ValueError, match=message + r"bool of shape \(5,\)"):
        cluster_labels(CHAIN, mask=np.ones(5, bool))
    with pytest.raises(ValueError, match=message + r"int\d\d of shape \(6,\)"):
        count_clusters(CHAIN, mask=np.ones(6, int))


# --- Along a trajectory ---------------------------------------------------------------

TIMES = np.array([0.0, 1.0, 2.5, 4.0], TWO_CAPS.dtype)
# 0 and 1 merge at 1.0; then 2, 3 and 4 in one step at 2.5; at 4.0 nothing.
STORY = np.stack(
    [
        circle(0, 20, 100, 120, 140),
        circle(8, 12, 105, 120, 135),
        circle(10, 10, 116, 120, 124),
        circle(10, 10, 120, 120, 120),
    ]
)


def test_merge_times_are_the_first_with_at_most_k_clusters():
    expected = [np.inf, 2.5, 2.5, 1.0, 0.0]
    assert merge_times(TIMES, STORY).tolist() == expected
    assert compiled(merge_times)(TIMES, STORY).tolist() == expected


def test_merge_events_tell_which_clusters_merge_and_when():
    assert merge_events(TIMES, STORY) == [
        Merge(1.0, ((0,), (1,))),
        Merge(2.5, ((2,), (3,), (4,))),
    ]


def test_larger_parts_come_first_and_several_merges_at_one_time_are_apart():
    xs = np.stack([circle(0, 20, 22, 90, 180, 175), circle(0, 2, 2, 178, 178, 178)])
    assert merge_events(TIMES[1:3], xs) == [
        Merge(2.5, ((1, 2), (0,))),
        Merge(2.5, ((4, 5), (3,))),
    ]


def test_tokens_that_never_meet_never_merge():
    xs = np.stack([circle(0, 72, 144, 216, 288)] * 4)
    assert merge_events(TIMES, xs) == []
    assert compiled(merge_times)(TIMES, xs).tolist() == [np.inf] * 4 + [0.0]


def test_a_merge_at_the_first_time_is_no_event():
    xs = np.stack([circle(0, 1, 2, 3, 4)] * 4)
    assert merge_events(TIMES, xs) == []
    assert compiled(merge_times)(TIMES, xs).tolist() == [0.0] * 5


def test_the_threshold_moves_the_merges():
    # At 0.96 the limit is 16 degrees: the last three are a chain at time 1.0 already.
    assert merge_times(TIMES, STORY, 0.96).tolist() == [np.inf, 1.0, 1.0, 1.0, 0.0]
    assert merge_events(TIMES, STORY, 0.96) == [
        Merge(1.0, ((0,), (1,))),
        Merge(1.0, ((2,), (3,), (4,))),
    ]


def test_states_that_are_not_finite_count_as_no_state():
    # A failed solve leaves inf behind.
    xs = STORY.copy()
    xs[2:] = np.inf
    assert merge_times(TIMES, xs).tolist() == [np.inf, np.inf, np.inf, 1.0, 0.0]
    assert merge_events(TIMES, xs) == [Merge(1.0, ((0,), (1,)))]


def test_merges_from_labels_leave_out_what_is_labelled_minus_1():
    ts = np.array([0.0, 1.0, 2.0, 3.0])
    labels = np.array([[0, 1, 2, 3], [0, 0, -1, 3], [0, 0, 2, 2], [0, 0, 0, 0]])
    assert label_merges(ts, labels) == [
        Merge(1.0, ((0,), (1,))),
        Merge(3.0, ((0, 1), (2, 3))),
    ]


def test_a_cluster_that_splits_is_no_merge_and_its_parts_may_merge_again():
    ts, labels = np.arange(3.0), np.array([[0, 0, 2], [0, 1, 2], [0, 0, 0]])
    assert label_merges(ts, labels) == [Merge(2.0, ((0,), (1,), (2,)))]


@pytest.mark.usefixtures("unchecked")
def test_labels_that_do_not_fit_the_times_are_refused_by_name():
    message = r"^`labels` must have shape \(t, n\), with a row for each of ts, but was"
    for labels in (np.zeros((2, 4), int), np.zeros(3, int)):
        with pytest.raises(ValueError, match=message):
            label_merges(np.arange(3.0), labels)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("function", [merge_times, merge_events])
def test_bad_trajectories_are_refused_by_name(function):
    message = (
        r"^`xs` must have 3 states, one for each of ts, but was of shape \(4, 5, 2\)"
    )
    with pytest.raises(ValueError, match=message):
        function(TIMES[:3], STORY)
    with pytest.raises(ValueError, match=r"^`xs` must have shape \(t, n, d\), but was"):
        function(TIMES, STORY[0])
    with pytest.raises(ValueError, match=r"^`ts` must have shape \(t,\), but was"):
        function(TIMES[:, None], STORY)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("threshold", "rule"), [(np.nan, "be finite"), (np.zeros(2), "be a scalar")]
)
def test_a_bad_threshold_is_named(threshold, rule):
    with pytest.raises(ValueError, match=f"`threshold` must {rule}"):
        count_clusters(np.eye(3), threshold)
