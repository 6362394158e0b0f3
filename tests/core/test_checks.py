"""Argument checks: what passes, and the one sentence of refusal."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tfjax._core import as_float, check_shape, is_concrete, must, require


def default_dtype():
    return jnp.zeros(()).dtype


def test_the_sentence_names_the_argument_the_rule_and_what_was_got():
    error = must("beta", "be a scalar", "of shape (2,)")
    assert isinstance(error, ValueError)
    assert str(error) == "`beta` must be a scalar, but was of shape (2,)."


@pytest.mark.parametrize(
    "value", [[1, 2], np.array([1, 2]), np.array([1, 2], np.uint8)]
)
def test_integers_take_the_default_dtype(value):
    out = as_float("x", jnp.asarray(value))
    assert out.dtype == default_dtype()
    assert out.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float16, jnp.bfloat16])
def test_floats_keep_their_dtype(dtype):
    assert as_float("x", jnp.zeros(3, dtype)).dtype == dtype


@pytest.mark.parametrize("scalar", [2, 2.0])
def test_python_scalars_follow_the_dtype_they_meet(scalar):
    # Under the strict promotion of this suite only a weakly typed scalar can.
    out = as_float("beta", scalar) * jnp.ones(2, jnp.bfloat16)
    assert (out.dtype, out.tolist()) == (jnp.bfloat16, [2.0, 2.0])


@pytest.mark.parametrize(
    ("value", "got"),
    [
        ("text", "a str: 'text'"),
        (None, "a NoneType: None"),
        (np.array([True]), "of dtype bool"),
        (1j, "of dtype complex"),
        ([[1.0], [1.0, 2.0]], "a list"),
    ],
    ids=["text", "none", "bool", "complex", "ragged"],
)
def test_what_is_not_real_is_refused(value, got):
    with pytest.raises(ValueError, match=f"`x` must be a real array, but was {got}"):
        as_float("x", value)


def test_check_shape_counts_axes_and_refuses_empty_ones():
    check_shape("x", np.zeros((2, 3)), 2, "(n, d)")
    wrong = r"^`x` must have shape \(n, d\), but was of shape \(2,\).$"
    with pytest.raises(ValueError, match=wrong):
        check_shape("x", np.zeros(2), 2, "(n, d)")
    empty = r"with no axis of length 0, but was of shape \(0, 3\)"
    with pytest.raises(ValueError, match=empty):
        check_shape("x", np.zeros((0, 3)), 2, "(n, d)")


def test_is_concrete_tells_values_from_tracers():
    seen = []
    f = lambda x: seen.append(is_concrete({"x": x}, None, 1.0)) or x
    f(jnp.ones(1))
    jax.jit(f)(jnp.ones(1))
    assert seen == [True, False]


def test_require_raises_at_once_for_values():
    value = jnp.array(2.5)
    assert require(value, value > 0, "beta", "be positive") is value
    with pytest.raises(ValueError, match="^`beta` must be positive, but was 2.5.$"):
        require(value, value < 0, "beta", "be positive")
    array = jnp.array([1.0, jnp.nan])
    with pytest.raises(ValueError, match=r"`x` must be finite, but was \[ ?1. nan\]."):
        require(array, jnp.isfinite(array), "x", "be finite")


def test_require_raises_at_run_time_under_jit():
    checked = eqx.filter_jit(lambda b: 2 * require(b, b > 0, "beta", "be positive"))
    assert float(checked(jnp.array(1.0))) == 2.0
    with pytest.raises(RuntimeError, match="`beta` must be positive."):
        checked(jnp.array(-1.0))
