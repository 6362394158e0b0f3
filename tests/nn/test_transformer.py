"""The Transformer to be trained: what each choice keeps, and what it refuses."""

import dataclasses
import json
import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tfjax.attention import attend
from tfjax.nn import Transformer, TransformerConfig
from tfjax.nn._branches import Attention, Norm, dropped, rotated
from tfjax.nn._transformer import turned


SMALL = TransformerConfig(vocabulary=11, layers=2, heads=2, head_dim=8, context=12)
IDS = jnp.asarray(np.random.default_rng(0).integers(0, 11, (2, 12)))
CHOICES = [
    {"norm": "pre"},
    {"norm": "post"},
    {"norm": "peri"},
    {"norm": "ngpt"},
    {"block": "leapfrog"},
    {"block": "cayley"},
    {"positions": "learned", "tied": False},
    {"branch_exponent": 0.5, "positions": "none"},
]
every_choice = pytest.mark.parametrize("choice", CHOICES, ids=str)


def model_of(choice=None, **more):
    config = dataclasses.replace(SMALL, **(choice or {}), **more)
    return Transformer(config, key=jax.random.key(1))


def random(*shape, seed=0):
    return jnp.asarray(np.random.default_rng((seed, *shape)).standard_normal(shape))


def gap(a, b):
    return float(jnp.max(jnp.abs(a - b)))


# --- The model ------------------------------------------------------------------------


@every_choice
def test_no_place_sees_a_later_one(choice):
    model = eqx.filter_jit(model_of(choice))
    logits, other = model(IDS), model(IDS.at[:, 7:].set(0))
    assert gap(logits[:, :7], other[:, :7]) == 0
    assert gap(logits[:, 7:], other[:, 7:]) > 0.01
    prefix = model(IDS[:, :7])
    assert gap(prefix, logits[:, :7]) < 1e-5


@every_choice
def test_layers_in_a_loop_are_those_in_a_row(choice, tol):
    row, loop = model_of(choice), model_of(choice, scan=True)
    assert gap(row(IDS), loop(IDS)) < 50 * tol.identity
    states = row.hidden_states(IDS)
    assert states.shape == (3, 2, 12, 16)
    assert gap(states, loop.hidden_states(IDS)) < 50 * tol.identity
    assert gap(row.logits(states[-1]), row(IDS)) < 50 * tol.identity


@every_choice
def test_a_batch_is_what_each_sequence_is_alone(choice, tol):
    model = eqx.filter_jit(model_of(choice))
    both = model(IDS)
    for k in range(2):
        assert gap(both[k], model(IDS[k])) < 50 * tol.identity
    stack = jnp.stack([IDS, IDS[::-1]])
    assert gap(model(stack)[1], both[::-1]) < 50 * tol.identity


@pytest.mark.parametrize("choice", CHOICES[:6], ids=str)
def test_every_parameter_has_a_gradient_that_the_difference_confirms(choice):
    if not jax.config.jax_enable_x64:
        pytest.skip("needs JAX_ENABLE_X64: float32 has no digits for a difference")
    floats, rest = eqx.partition(model_of(choice), eqx.is_inexact_array)

    @jax.jit
    def loss(floats):
        logits = eqx.combine(floats, rest)(IDS[:, :-1])
        picked = jax.nn.log_softmax(logits)[..., :1] * logits
        return jnp.mean(picked)

    gradient = jax.grad(loss)(floats)
    for k, leaf in enumerate(jax.tree.leaves(gradient)):
        assert float(jnp.abs(leaf).max()) > 0, k
    ways = [random(*a.shape, seed=k) for k, a in enumerate(jax.tree.leaves(floats))]
    way = jax.tree.unflatten(jax.tree.structure(floats), ways)
    moved = lambda s: jax.tree.map(lambda a, w: a + s * w, floats, way)
    expected = float(loss(moved(1e-6)) - loss(moved(-1e-6))) / 2e-6
    products = jax.tree.map(lambda g, w: jnp.sum(g * w), gradient, way)
    assert float(sum(jax.tree.leaves(products))) == pytest.approx(expected, rel=1e-6)


def test_a_classifier_sees_all_places_and_takes_vectors():
    options = {"vocabulary": None, "features": 3, "classes": 5, "positions": "learned"}
    model = model_of(options)
    x = random(4, 12, 3)
    logits = model(x)
    assert logits.shape == (4, 5)
    assert gap(logits, model(x.at[:, -1].set(0))) > 1e-3
    assert model.layers[0].attention.qkv.shape == (48, 16)


def test_dropout_needs_a_key_and_keeps_the_mean():
    model = model_of(dropout=0.25)
    assert gap(model(IDS), model_of()(IDS)) == 0
    one, two = (model(IDS, key=jax.random.key(k)) for k in (1, 2))
    assert gap(one, two) > 0.01
    x = jnp.ones((1, 400, 100))
    kept = dropped(x, 0.25, jax.random.key(0))
    assert np.unique(kept).tolist() == [0, float(x[0, 0, 0] / 0.75)]
    assert float(jnp.mean(kept)) == pytest.approx(1, abs=5 * (1 / 3 / 40_000) ** 0.5)


# --- Its parts ------------------------------------------------------------------------


def test_attention_is_that_of_the_kernels_head_by_head(tol):
    config = dataclasses.replace(SMALL, positions="none")
    part = Attention(config, 16, key=jax.random.key(2), dtype=jnp.zeros(()).dtype)
    x, mask = random(2, 12, 16), jnp.tril(jnp.ones((12, 12), bool))
    expected = []
    for tokens in x:
        q, k, v = (tokens @ w.T for w in jnp.split(part.qkv, 3))
        heads = [
            attend(q[:, s], k[:, s], v[:, s], mask=mask)
            for s in (slice(0, 8), slice(8, 16))
        ]
        expected.append(jnp.concatenate(heads, axis=1) @ part.out.T)
    assert gap(part(x, mask), jnp.stack(expected)) < 20 * tol.identity


def test_rotary_positions_keep_lengths_and_see_differences_only(tol):
    x = random(1, 1, 2, 8)
    rows = rotated(jnp.broadcast_to(x, (1, 12, 2, 8)))
    lengths = jnp.linalg.norm(rows, axis=-1)
    assert gap(lengths, lengths[:, :1] * jnp.ones((1, 12, 1))) < 50 * tol.identity
    products = jnp.einsum("bnhk,bmhk->hnm", rows, rows)
    for lag in (1, 5):  # constant along diagonals
        diagonal = jnp.diagonal(products, lag, axis1=1, axis2=2)
        assert float(jnp.ptp(diagonal, axis=1).max()) < 1e-5 * float(products.max())
    assert gap(products[:, 0, 0], products[:, 0, 5]) > 0.01
    numbers = np.asarray(rows[0, :, :, :4]) + 1j * np.asarray(rows[0, :, :, 4:])
    angle = np.arange(12)[:, None] * 10000.0 ** (-np.arange(4) / 4)
    turned = np.exp(1j * angle)[:, None] * numbers[:1]
    np.testing.assert_allclose(numbers, turned, atol=50 * tol.identity)


def test_derivatives_go_forwards_too_and_layers_can_be_stacked(tol):
    layers = model_of().layers
    x, way, mask = random(1, 12, 16), random(1, 12, 16, seed=1), jnp.ones((12, 12)) > 0
    size = lambda x, layer=layers[0]: jnp.sum(jnp.sin(layer(x, mask)))
    _, forwards = jax.jvp(size, (x,), (way,))
    slope, turn = jax.jvp(jax.grad(size), (x,), (way,))
    assert gap(forwards, jnp.sum(slope * way)) < 500 * tol.identity
    assert bool(jnp.all(jnp.isfinite(turn)))
    stack = jax.tree.map(lambda *a: jnp.stack(a), *layers)
    both = jax.vmap(lambda layer: layer(x, mask))(stack)
    for k, layer in enumerate(layers):
        assert gap(both[k], layer(x, mask)) < 50 * tol.identity


def test_case_S44_layer_norm_of_large_offsets():
    norm = Norm(4, sphere=False, dtype=jnp.float32)
    x = jnp.array([40000.0, 40001, 40002, 40003], jnp.float32)
    expected = [-1.341635, -0.447212, 0.447212, 1.341635]
    np.testing.assert_allclose(norm(x[None])[0], expected, atol=1e-3)


def test_cayley_blocks_keep_the_length_of_every_token_and_are_rotations(tol):
    states = model_of({"block": "cayley"}).hidden_states(IDS)
    lengths = jnp.linalg.norm(states, axis=-1)
    assert gap(lengths, lengths[:1] * jnp.ones((3, 1, 1))) < 50 * tol.identity
    assert gap(states[0], states[-1]) > 0.1
    x, y = random(1, 3), random(1, 3, seed=1)
    found, (x,), (y,) = turned(x, y)[0], x, y
    unit = x / jnp.linalg.norm(x)
    w = y - unit * (unit @ y)
    W = 0.5 * (jnp.outer(w, unit) - jnp.outer(unit, w))
    rotation = jnp.linalg.solve(jnp.eye(3) - W, jnp.eye(3) + W)
    assert gap(found, rotation @ x) < 10 * tol.identity


def test_leapfrog_blocks_keep_volume(tol):
    layer = model_of({"block": "leapfrog"}).layers[0]
    x = random(3, 16)
    mask = jnp.tril(jnp.ones((3, 3), bool))
    J = jax.jacobian(lambda z: layer(z.reshape(3, 16), mask).ravel())(x.ravel())
    assert abs(float(jnp.linalg.slogdet(J)[1])) < 200 * tol.identity
    assert gap(J, jnp.eye(48)) > 0.1


def test_tokens_of_ngpt_are_on_the_unit_sphere(tol):
    states = model_of({"norm": "ngpt"}).hidden_states(IDS)
    assert gap(jnp.linalg.norm(states, axis=-1), jnp.ones((3, 2, 12))) < 50 * (
        tol.identity
    )


def test_branches_of_deep_models_are_scaled():
    x = random(1, 12, 16)
    norm = Norm(16, sphere=False, dtype=x.dtype)
    for exponent in (0.5, 1.0):
        plain, scaled = (
            model_of({"branch_exponent": e}).layers[0] for e in (0.0, exponent)
        )
        attended = x + 2**-exponent * plain.attention(norm(x), None)
        expected = attended + 2**-exponent * plain.feed_forward(norm(attended))
        assert gap(scaled(x), expected) < 1e-5


# --- The configuration ----------------------------------------------------------------


def test_a_configuration_survives_json():
    for choice in CHOICES:
        config = dataclasses.replace(SMALL, **choice)
        text = json.dumps(config.to_dict())
        assert TransformerConfig.from_dict(json.loads(text)) == config


def test_head_dimensions_that_are_slow_are_warned_of():
    with pytest.warns(UserWarning, match="`head_dim` = 12 is no multiple of 8"):
        TransformerConfig(head_dim=12)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        TransformerConfig(head_dim=16)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"layer": 3}, "`values` must have keys among .* but was given"),
        ({"layers": 0}, "`layers` must be an integer of at least 1, but was 0"),
        ({"heads": 2.0}, "`heads` must be an integer"),
        ({"vocabulary": None}, "`vocabulary` must be given, or `features`"),
        ({"features": 3}, "`vocabulary` must be given, or `features`, not both"),
        ({"vocabulary": None, "features": 3}, "`classes` must be given where tokens"),
        ({"norm": "batch"}, "`norm` must be one of 'pre', 'post', 'peri', 'ngpt'"),
        ({"block": "cayley", "norm": "post"}, "`norm` must be 'pre' or 'peri' for"),
        ({"block": "leapfrog", "heads": 3}, "`heads` must be even for block"),
        ({"head_dim": 7}, "`head_dim` must be even for rotary positions"),
        ({"dropout": 1.0}, r"`dropout` must be in \[0, 1\), but was 1.0"),
        ({"dropout": float("nan")}, "`dropout` must be in"),
        ({"branch_exponent": -1}, r"`branch_exponent` must be in \[0, inf\)"),
        ({"tied": 1}, "`tied` must be true or false"),
        ({"causal": "yes"}, "`causal` must be true, false or None"),
    ],
)
def test_impossible_values_are_named(values, message, unchecked):
    with pytest.raises(ValueError, match=message):
        TransformerConfig.from_dict(SMALL.to_dict() | values)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (jnp.zeros((2, 5)), "`inputs` must be integers, but was of dtype"),
        (
            jnp.zeros((2, 13), int),
            "`inputs` must have sequences of from 1 to 12",
        ),
        (jnp.zeros((2, 0), int), "`inputs` must have sequences of from 1 to 12"),
        (jnp.full((2, 5), 11), r"`inputs` must lie in \[0, 11\)"),
        (jnp.full((2, 5), -1), r"`inputs` must lie in \[0, 11\)"),
    ],
)
def test_bad_inputs_are_named(inputs, message):
    with pytest.raises(ValueError, match=message):
        model_of()(inputs)


def test_bad_vectors_are_named():
    model = model_of({"vocabulary": None, "features": 3, "classes": 5})
    with pytest.raises(ValueError, match="`inputs` must have vectors of length 3"):
        model(jnp.zeros((2, 5, 4)))
    with pytest.raises(ValueError, match="`inputs` must be vectors, but was of dtype"):
        model(jnp.zeros((2, 5), int))
