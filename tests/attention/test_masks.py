"""Who may attend to whom, from the several ways to say it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tfjax.attention import (
    Causal,
    TopK,
    Window,
    attend,
    existing_tokens,
    log_weights,
    resolve_mask,
)


EXISTS = np.array([True, False, True])
PAIRS = np.array([[True, True, True], [True, True, True], [False, True, True]])
TRIANGLE = np.tril(np.ones((3, 3), bool))


def test_causal_lets_i_see_j_up_to_i_and_has_no_leaves():
    np.testing.assert_array_equal(Causal()(3, 3), TRIANGLE)
    np.testing.assert_array_equal(Causal()(2, 3), TRIANGLE[:2])
    assert jax.tree.leaves(Causal()) == []


@pytest.mark.parametrize("w", [0, 1, 3])
def test_a_window_lets_i_see_j_as_far_as_w_and_has_no_leaves(w):
    i, j = np.arange(5)[:, None], np.arange(4)[None, :]
    np.testing.assert_array_equal(Window(w)(5, 4), np.abs(i - j) <= w)
    assert jax.tree.leaves((Window(w), TopK(2))) == []


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("bad", [-1, 1.5, True, "2"])
def test_a_width_and_a_number_of_keys_are_integers(bad):
    message = f"`w` must be an integer of at least 0, but was {bad!r}"
    with pytest.raises(ValueError, match=message):
        Window(bad)
    with pytest.raises(
        ValueError, match=f"`k` must be a positive integer, but was {bad!r}"
    ):
        TopK(bad)


def test_no_mask_restricts_nothing():
    assert resolve_mask(None, 3) == (None, None)
    assert resolve_mask((), 3) == (None, None)
    assert resolve_mask((None, None), 3) == (None, None)


def test_one_mask_says_which_exist_or_which_pairs():
    exists, pairs = resolve_mask(EXISTS, 3)
    np.testing.assert_array_equal(exists, EXISTS)
    assert pairs is None
    exists, pairs = resolve_mask(PAIRS, 3)
    assert exists is None
    np.testing.assert_array_equal(pairs, PAIRS)


def test_all_masks_of_a_tuple_must_permit():
    other = np.array([True, True, False])
    exists, pairs = resolve_mask((EXISTS, other), 3)
    np.testing.assert_array_equal(exists, EXISTS & other)
    assert pairs is None
    exists, pairs = resolve_mask((Causal(), PAIRS), 3)
    assert exists is None
    np.testing.assert_array_equal(pairs, PAIRS & TRIANGLE)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_absent_tokens_are_struck_from_the_pairs_in_row_and_column(order):
    parts = (Causal(), PAIRS, EXISTS)
    exists, pairs = resolve_mask(tuple(parts[i] for i in order), 3)
    np.testing.assert_array_equal(exists, EXISTS)
    both = EXISTS[:, None] & EXISTS[None, :]
    np.testing.assert_array_equal(pairs, PAIRS & TRIANGLE & both)


def test_masks_are_resolved_under_jit():
    run = jax.jit(lambda exists: resolve_mask((Causal(), exists), 3)[1])
    np.testing.assert_array_equal(run(EXISTS), resolve_mask((Causal(), EXISTS), 3)[1])


@pytest.mark.usefixtures("unchecked")
def test_bad_masks_are_refused():
    with pytest.raises(
        ValueError, match="`mask` must be boolean, but was of dtype int"
    ):
        resolve_mask(jnp.array([1, 0, 1]), 3)
    shape = r"must have shape \(4,\) or \(4, 4\) for 4 tokens, but was of shape \(3,\)"
    with pytest.raises(ValueError, match=shape):
        resolve_mask(EXISTS, 4)
    with pytest.raises(ValueError, match=r"was of shape \(3, 3\)"):
        resolve_mask((Causal(), PAIRS), 4)


def test_existing_tokens_are_found_without_looking_at_pairs():
    other = np.array([True, True, False])
    mask = (Causal(), (EXISTS, TopK(2)), PAIRS, Window(1), other, lambda n, m: 1 / 0)
    np.testing.assert_array_equal(existing_tokens(mask, 3), EXISTS & other)
    for mask in (None, (), Causal(), (PAIRS, TopK(1))):
        assert existing_tokens(mask, 3) is None
    found = jax.make_jaxpr(lambda e: existing_tokens((Causal(), e), 1000))(
        np.ones(1000, bool)
    )
    assert all(out.aval.size <= 1000 for eqn in found.eqns for out in eqn.outvars)


@pytest.mark.usefixtures("unchecked")
def test_bad_masks_are_refused_wherever_they_are_read():
    x = jnp.ones((3, 2))
    for bad, message in (
        (np.ones(3), "`mask` must be boolean, but was of dtype float"),
        (
            np.ones(4, bool),
            r"must have shape \(3,\) or \(3, 3\).*, but was of shape \(4,\)",
        ),
        ((Causal(), np.ones((3, 4), bool)), r"but was of shape \(3, 4\)"),
        ("causal", "`mask` must be boolean, or a mask module, but was 'causal'"),
    ):
        for read in (
            lambda mask: attend(x, x, x, mask=mask),
            lambda mask: log_weights(x, x, mask=mask),
            lambda mask: existing_tokens(mask, 3),
            lambda mask: resolve_mask(mask, 3),
        ):
            with pytest.raises(ValueError, match=message):
                read(bad)
    with pytest.raises(ValueError, match="must be known without the scores"):
        resolve_mask((EXISTS, TopK(1)), 3)


def test_attend_reads_what_resolve_mask_reads():
    x = jnp.asarray(np.random.default_rng(0).standard_normal((3, 2)))
    seen = np.asarray(resolve_mask((Causal(), EXISTS, PAIRS), 3)[1])
    weights = np.asarray(log_weights(x, x, mask=((Causal(), EXISTS), PAIRS)))
    np.testing.assert_array_equal(weights[EXISTS] > -np.inf, seen[EXISTS])
