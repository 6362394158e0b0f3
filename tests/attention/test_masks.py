"""Who may attend to whom, from the several ways to say it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tfjax.attention import Causal, resolve_mask


EXISTS = np.array([True, False, True])
PAIRS = np.array([[True, True, True], [True, True, True], [False, True, True]])
TRIANGLE = np.tril(np.ones((3, 3), bool))


def test_causal_lets_i_see_j_up_to_i_and_has_no_leaves():
    np.testing.assert_array_equal(Causal()(3, 3), TRIANGLE)
    np.testing.assert_array_equal(Causal()(2, 3), TRIANGLE[:2])
    assert jax.tree.leaves(Causal()) == []


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
