"""A step of training: against optax alone, guarded, clipped, accumulated, resumed."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tfjax.train import (
    global_norm,
    load_checkpoint,
    make_step,
    save_checkpoint,
    start,
)


class Model(eqx.Module):
    w: jax.Array
    name: str = "linear"


def loss(model, batch, key):
    x, y = batch
    noise = 0.01 * jax.random.normal(key, ()).astype(x.dtype)
    return jnp.mean((x @ model.w - y + noise) ** 2)


def random(*shape, seed=0):
    rng = np.random.default_rng((seed, *shape))
    return jnp.asarray(rng.standard_normal(shape), jnp.float32)


def batch(step):
    """The data of a step is a function of its number: so it can be gone on from."""
    x = random(8, 3, seed=step)
    return x, x @ jnp.array([1.0, -2.0, 0.5], jnp.float32)


OPTIMIZER = optax.adamw(optax.warmup_cosine_decay_schedule(0.0, 0.1, 3, 10))
STEP = make_step(loss, OPTIMIZER, clip=1.0)


def first():
    return start(Model(jnp.zeros(3, jnp.float32)), OPTIMIZER, jax.random.key(0))


def run(state, steps):
    for _ in range(steps):
        state, metrics = STEP(state, batch(int(state.step)))
    return state


def test_a_step_is_that_of_optax():
    step = make_step(loss, OPTIMIZER)
    state, metrics = step(first(), batch(0))
    with jax.numpy_dtype_promotion("standard"):
        model, key = Model(jnp.zeros(3, jnp.float32)), jax.random.key(0)
        params = eqx.filter(model, eqx.is_inexact_array)
        value, grads = jax.value_and_grad(
            lambda p: loss(eqx.combine(p, model), batch(0), jax.random.fold_in(key, 0))
        )(params)
        updates, _ = OPTIMIZER.update(grads, OPTIMIZER.init(params), params)
        expected = optax.apply_updates(params, updates)
    np.testing.assert_allclose(state.model.w, expected.w, rtol=1e-6, atol=1e-8)
    assert float(metrics.loss) == pytest.approx(float(value), rel=1e-6)
    assert float(metrics.gradient_norm) == pytest.approx(
        float(jnp.linalg.norm(grads.w)), rel=1e-5
    )
    assert state.model.name == "linear"
    assert int(state.step) == 1


@pytest.mark.parametrize("stop", range(1, 10))
def test_ten_steps_are_the_same_whether_or_not_they_are_interrupted(tmp_path, stop):
    whole = run(first(), 10)
    state = run(first(), stop)
    save_checkpoint(tmp_path / "state.npz", state)
    again, _ = load_checkpoint(tmp_path / "state.npz", first())
    resumed = run(again, 10 - stop)
    for a, b in zip(*map(arrays, (whole, resumed)), strict=True):
        np.testing.assert_array_equal(a, b)
    assert int(whole.step) == 10


def arrays(state):
    leaves = jax.tree.leaves(eqx.filter(state, eqx.is_array))
    is_key = lambda x: jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
    return [jax.random.key_data(x) if is_key(x) else x for x in leaves]


def test_case_S43_a_gradient_that_is_not_finite_changes_nothing():
    state = run(first(), 1)
    x, y = batch(1)
    bad, metrics = STEP(state, (x.at[0, 0].set(jnp.inf), y))
    assert bool(metrics.skipped)
    np.testing.assert_array_equal(bad.model.w, state.model.w)
    assert (int(bad.step), int(bad.skipped)) == (2, 1)
    for a, b in zip(
        jax.tree.leaves(bad.optimizer_state),
        jax.tree.leaves(state.optimizer_state),
        strict=True,
    ):
        np.testing.assert_array_equal(a, b)
    good, metrics = STEP(bad, batch(2))
    assert not bool(metrics.skipped)
    assert np.all(np.isfinite(good.model.w))
    assert float(jnp.abs(good.model.w - bad.model.w).max()) > 0


def test_parts_of_a_batch_have_the_gradient_of_the_whole():
    plain = lambda model, batch, key: jnp.mean((batch[0] @ model.w - batch[1]) ** 2)
    sgd = optax.sgd(0.1)
    begin = start(Model(jnp.ones(3, jnp.float32)), sgd, jax.random.key(0))
    whole, one = make_step(plain, sgd)(begin, batch(0))
    for parts in (2, 4):
        cut, two = make_step(plain, sgd, accumulate=parts)(begin, batch(0))
        np.testing.assert_allclose(cut.model.w, whole.model.w, rtol=1e-6)
        assert float(two.loss) == pytest.approx(float(one.loss), rel=1e-6)
    with pytest.raises(ValueError, match="`batch` must have leading axes that `accum"):
        make_step(plain, sgd, accumulate=3)(begin, batch(0))


def test_gradients_are_shortened_to_the_limit_and_zeros_stay_zeros():
    linear = lambda model, batch, key: 100 * jnp.sum(model.w)
    sgd = optax.sgd(1.0)
    begin = start(Model(jnp.zeros(3, jnp.float32)), sgd, jax.random.key(0))
    state, metrics = make_step(linear, sgd, clip=0.5)(begin, None)
    assert float(jnp.linalg.norm(state.model.w)) == pytest.approx(0.5, rel=1e-5)
    assert float(metrics.gradient_norm) == pytest.approx(100 * 3**0.5, rel=1e-5)
    zero = lambda model, batch, key: 0 * jnp.sum(model.w)
    state, metrics = make_step(zero, sgd, clip=0.5)(begin, None)
    np.testing.assert_array_equal(state.model.w, 0)
    assert not bool(metrics.skipped)


def test_the_norm_does_not_overflow_in_half_precision_or_on_the_way():
    half = {"a": jnp.full((4,), 60000.0, jnp.float16), "b": jnp.zeros(2, jnp.float16)}
    assert float(global_norm(half)) == pytest.approx(120_000, rel=1e-3)
    large = {"a": jnp.full((4,), 1e30, jnp.float32)}
    assert float(global_norm(large)) == pytest.approx(2e30, rel=1e-5)
    assert float(global_norm({"a": jnp.zeros(3)})) == 0
    assert not np.isfinite(float(global_norm({"a": jnp.array([1.0, jnp.nan])})))
    assert not np.isfinite(float(global_norm({"a": jnp.array([1.0, jnp.inf])})))


def test_parameters_keep_their_precision_where_the_loss_is_computed_in_half():
    seen = []

    def note(model, batch, key):
        seen.append(model.w.dtype)
        return jnp.sum(model.w * jnp.asarray(1e-3, model.w.dtype))

    sgd = optax.sgd(1.0)
    begin = start(Model(jnp.ones(3, jnp.float32)), sgd, jax.random.key(0))
    step = make_step(note, sgd, dtype=jnp.bfloat16)
    state, metrics = step(begin, None)
    assert seen == [jnp.bfloat16]
    assert state.model.w.dtype == jnp.float32
    # In bfloat16 1 - 1e-3 would be 1 again.
    np.testing.assert_allclose(state.model.w, 1 - 1e-3, atol=1e-5)
    assert metrics.loss.dtype == jnp.float32


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"accumulate": 0}, "`accumulate` must be a positive integer"),
        ({"clip": 0.0}, "`clip` must be positive, or None, but was 0.0"),
        ({"clip": float("nan")}, "`clip` must be positive, or None, but was nan"),
    ],
)
def test_bad_options_are_named(options, message, unchecked):
    with pytest.raises(ValueError, match=message):
        make_step(loss, OPTIMIZER, **options)
