"""The Transformer whose depth is time: a flow, and the layers that are its steps."""

import dataclasses
import functools
import itertools
import json

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate

from tfjax.integrate import Leapfrog, SplitEuler
from tfjax.nn import ContinuousTransformer, Transformer, TransformerConfig
from tfjax.train import load_checkpoint, save_checkpoint


SMALL = TransformerConfig(
    vocabulary=11, layers=3, heads=2, head_dim=8, context=8, branch_exponent=0.5
)
IDS = jnp.asarray(np.random.default_rng(0).integers(0, 11, (2, 8)))
needs_x64 = pytest.mark.skipif(
    not jax.config.jax_enable_x64, reason="float32 has no digits for an order"
)


def continuous(config=SMALL, **options):
    return ContinuousTransformer(config, key=jax.random.key(1), **options)


def discrete(config=SMALL):
    return Transformer(config, key=jax.random.key(1))


def gap(a, b):
    return float(jnp.max(jnp.abs(a - b)))


def value(model):
    return jnp.mean(jnp.sin(3 * model(IDS)))


@eqx.filter_jit
def states_of(model, key=None):
    return model.hidden_states(IDS, key=key)


@eqx.filter_jit
def slopes(model):
    """The gradient in all parameters, as one vector."""
    found = eqx.filter_grad(value)(model)
    return jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(found)])


# --- Steps of Euler's method are layers -----------------------------------------------


@pytest.mark.parametrize(
    ("weights", "choice"),
    [("linear", {"norm": "pre"}), ("constant", {"norm": "peri", "scan": True})],
)
def test_split_steps_are_the_layers_of_the_transformer(weights, choice, tol):
    config = dataclasses.replace(SMALL, dropout=0.25, **choice)
    flow = continuous(config, solver=SplitEuler(), weights=weights)
    layers, key = discrete(config), jax.random.key(7)
    states = states_of(flow, key)
    assert states.shape == (4, 2, 8, 16)
    assert gap(states, states_of(layers, key)) < 50 * tol.identity
    calm = states_of(layers)
    assert gap(flow(IDS), layers.logits(calm[-1])) < 50 * tol.identity
    assert gap(states, calm) > 0.01


def test_gradients_through_split_steps_are_those_of_the_layers(tol):
    flow = continuous(solver=SplitEuler())
    assert gap(slopes(flow), slopes(flow.transformer)) < 50 * tol.identity


@pytest.mark.parametrize("weights", ["linear", "constant"])
def test_steps_of_euler_add_both_branches_at_once(weights, tol):
    flow = continuous(solver=dfx.Euler(), weights=weights)
    model = flow.transformer
    x, mask = model.embed(IDS), jnp.tril(jnp.ones((8, 8), bool))
    for layer in model.layers:
        norms, scale = layer.norms, 3**-0.5
        moved = layer.attention(norms[0](x), mask) + layer.feed_forward(norms[1](x))
        x = x + scale * moved
    assert gap(flow(IDS), model.logits(x)) < 50 * tol.identity
    assert gap(flow(IDS), model(IDS)) > 1e-3


def test_shorter_steps_of_constant_weights_repeat_a_layer(tol):
    flow = continuous(solver=SplitEuler(), steps=2, weights="constant")
    model = flow.transformer
    x, mask = model.embed(IDS), jnp.tril(jnp.ones((8, 8), bool))
    for layer in model.layers:
        attended, fed = layer.branches(mask, None)
        for _ in range(2):
            x = x + attended(x) / 2
            x = x + fed(x) / 2
    assert gap(flow(IDS), model.logits(x)) < 50 * tol.identity


def test_between_knots_weights_are_means_and_after_the_last_they_stay(tol):
    flow = continuous()  # the midpoint method, a step from knot to knot
    model, x = flow.transformer, flow.embed(IDS)
    mask, layers = jnp.tril(jnp.ones((8, 8), bool)), flow.transformer.layers
    moved = lambda layer, x: sum(branch(x) for branch in layer.branches(mask, None))
    mean = lambda a, b: jax.tree.map(
        lambda a, b: (a + b) / 2 if eqx.is_array(a) else a, a, b
    )
    for here, there in zip(layers, [*layers[1:], layers[-1]], strict=True):
        x = x + moved(mean(here, there), x + moved(here, x) / 2)
    assert gap(flow(IDS), model.logits(x)) < 50 * tol.identity


# --- The flow -------------------------------------------------------------------------


@needs_x64
def test_tokens_follow_the_velocity_from_knot_to_knot():
    flow = continuous(rtol=1e-9, atol=1e-9)
    states = flow.hidden_states(IDS)
    velocity = jax.jit(
        lambda t, x: flow.velocity(t, x.reshape(states[0].shape)).ravel()
    )
    x = np.asarray(states[0]).ravel()
    for k in range(3):
        span = (k / 3, (k + 1) / 3)
        tight = {"method": "DOP853", "rtol": 1e-10, "atol": 1e-10}
        x = scipy.integrate.solve_ivp(velocity, span, x, **tight).y[:, -1]
        assert gap(x, states[k + 1].ravel()) < 1e-7
    assert gap(flow.logits(states[-1]), flow(IDS)) < 1e-12


@needs_x64
@pytest.mark.slow
def test_gradients_through_steps_and_of_the_adjoint_equation_have_one_limit():
    exact, errors = slopes(continuous(rtol=1e-9, atol=1e-9)), []
    for steps in (16, 32):
        flow = continuous(solver=dfx.Euler(), steps=steps)
        back = eqx.tree_at(
            lambda model: model.adjoint,
            flow,
            dfx.BacksolveAdjoint(),
            is_leaf=lambda leaf: leaf is None,
        )
        through, adjoint = slopes(flow), slopes(back)
        wrong = through - exact, adjoint - exact, adjoint - through
        errors.append([float(jnp.linalg.norm(part)) for part in wrong])
    orders = np.log2(np.array(errors[0]) / np.array(errors[1]))
    assert np.abs(orders - 1).max() < 0.15, orders
    assert max(errors[1]) < 0.1 * float(jnp.linalg.norm(exact))


@needs_x64
@pytest.mark.parametrize(
    ("solver", "order"), [(dfx.Midpoint(), 2), (dfx.Bosh3(), 3)], ids=["2", "3"]
)
def test_steps_from_knot_to_knot_have_the_order_of_the_solver(solver, order):
    exact = continuous(rtol=1e-9, atol=1e-9).hidden_states(IDS)[-1]
    errors = [
        gap(continuous(solver=solver, steps=n).hidden_states(IDS)[-1], exact)
        for n in (8, 16)
    ]
    assert np.log2(errors[0] / errors[1]) == pytest.approx(order, abs=0.2)


@needs_x64
@pytest.mark.slow
def test_deep_layers_tend_to_a_flow_where_the_exponent_is_one_and_only_there():
    """Errors of O(1/L) in tokens and gradients, for weights that sample a function."""
    smooth = [sampled(layers, 1.0) for layers in (8, 16, 32)]
    for part in range(2):
        pairs = itertools.pairwise(each[part] for each in smooth)
        moves = [float(jnp.linalg.norm(a - b)) for a, b in pairs]
        assert np.log2(moves[0] / moves[1]) == pytest.approx(1, abs=0.15)
    half = [states_of(of_function(layers, 0.5))[-1] for layers in (8, 16, 32)]
    moves = [gap(a, b) for a, b in itertools.pairwise(half)]
    assert moves[1] > 0.8 * moves[0]
    # Interpolated weights are nearer to the limit than layers are: O(1/L^2).
    flow = ContinuousTransformer.from_transformer
    end = flow(of_function(64, 1.0), steps=2)(IDS)
    near = flow(of_function(16, 1.0), steps=4)(IDS)
    assert gap(near, end) < 0.1 * gap(smooth[1][0], end)


def of_function(layers, exponent):
    """A Transformer whose weights sample `A + cos(2 t) B` at t = k / L."""
    shape = dataclasses.replace(SMALL, scan=True, branch_exponent=exponent)
    pairs = jax.tree.leaves(discrete(dataclasses.replace(shape, layers=2)).layers)
    model = discrete(dataclasses.replace(shape, layers=layers))
    wave = jnp.asarray(np.cos(2 * np.arange(layers) / layers))
    along = lambda pair: wave.reshape(-1, *(1,) * (pair.ndim - 1))
    leaves = [pair[:1] + along(pair) * pair[1:] for pair in pairs]
    deep = jax.tree.unflatten(jax.tree.structure(model.layers), leaves)
    return eqx.tree_at(lambda m: m.layers, model, deep)


def sampled(layers, exponent):
    """Logits, and the gradient in the table of tokens."""
    model = of_function(layers, exponent)

    @eqx.filter_jit
    @functools.partial(eqx.filter_grad, has_aux=True)
    def both(model):
        logits = model(IDS)
        return jnp.mean(jnp.sin(3 * logits)), logits

    gradient, logits = both(model)
    return logits, gradient.embedding


# --- What it keeps of the Transformer -------------------------------------------------


def test_no_place_sees_a_later_one_and_a_batch_is_each_alone(tol):
    flow = continuous(solver=dfx.Euler())
    logits, other = flow(IDS), flow(IDS.at[:, 5:].set(0))
    assert gap(logits[:, :5], other[:, :5]) == 0
    assert gap(logits[:, 5:], other[:, 5:]) > 0.01
    assert gap(flow(IDS[0]), logits[0]) < 50 * tol.identity


def test_with_tolerances_a_batch_is_each_alone_to_within_them():
    flow = continuous(rtol=1e-4, atol=1e-4)
    together, alone = flow(IDS), jax.vmap(flow)(IDS)
    assert 0 < gap(together, alone) < 1e-2


def test_it_has_the_parameters_of_the_transformer_and_gives_them_back(tmp_path):
    flow, layers = continuous(), discrete()
    leaves = lambda model: jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array))
    assert [a.shape for a in leaves(flow)] == [a.shape for a in leaves(layers)]
    assert eqx.tree_equal(flow.transformer, layers)
    again = ContinuousTransformer.from_transformer(layers)
    assert eqx.tree_equal(again, flow)
    text = json.dumps(flow.config.to_dict())
    other = ContinuousTransformer(
        TransformerConfig.from_dict(json.loads(text)), key=jax.random.key(2)
    )
    file = tmp_path / "model.npz"
    save_checkpoint(file, flow)
    assert eqx.tree_equal(load_checkpoint(file, other)[0], flow)


def test_a_classifier_of_vectors_flows_too():
    config = dataclasses.replace(SMALL, vocabulary=None, features=3, classes=5)
    flow = continuous(config)
    x = jnp.asarray(np.random.default_rng(1).standard_normal((4, 8, 3)))
    logits = flow(x)
    assert logits.shape == (4, 5)
    assert gap(logits, flow(x.at[:, -1].set(0))) > 1e-3


def test_tokens_of_half_precision_flow_in_float32():
    flow = continuous(dtype=jnp.float32, solver=dfx.Euler())
    cast = lambda leaf: leaf.astype(jnp.bfloat16)
    half = jax.tree.map(lambda leaf: cast(leaf) if eqx.is_array(leaf) else leaf, flow)
    states, expected = states_of(half), states_of(flow)
    assert (states.dtype, expected.dtype) == (jnp.bfloat16, jnp.float32)
    assert half.logits(states[-1]).dtype == jnp.bfloat16
    # Eight bits at every weight and product: some 3e-3 each.
    assert gap(states.astype(jnp.float32), expected) < 0.1


def test_other_adjoints_give_the_derivative_of_the_default(tol):
    def slope(mode, adjoint):
        flow = continuous(solver=dfx.Euler(), adjoint=adjoint)
        way, where = flow.transformer.embedding, lambda m: m.transformer.embedding
        along = lambda s: value(eqx.tree_at(where, flow, (1 + s) * way))
        return jax.jit(mode(along))(jnp.zeros(()))

    expected = slope(jax.grad, None)
    assert gap(slope(jax.grad, dfx.DirectAdjoint()), expected) < 50 * tol.identity
    assert gap(slope(jax.jacfwd, dfx.ForwardMode()), expected) < 50 * tol.identity
    with pytest.raises(ValueError, match=r"`adjoint` must be .*forward_mode\(\)"):
        slope(jax.jacfwd, None)


# --- Errors ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"norm": "post"}, "`norm` must be 'pre' or 'peri' for a flow"),
        ({"norm": "ngpt"}, "`norm` must be 'pre' or 'peri' for a flow"),
        ({"block": "leapfrog"}, "`block` must be 'residual' for a flow"),
        ({"block": "cayley"}, "`block` must be 'residual' for a flow"),
        ({"weights": "cubic"}, "`weights` must be one of 'linear', 'constant'"),
        ({"solver": "Euler"}, "`solver` must be a diffrax solver"),
        ({"solver": dfx.Euler(), "rtol": 1e-3}, "`solver` must be one that estimates"),
        ({"steps": 0}, "`steps` must be a positive integer"),
        ({"rtol": -1.0}, "`rtol` must be finite and not negative"),
        ({"atol": float("nan")}, "`atol` must be finite and not negative"),
        ({"rtol": "small"}, "`rtol` must be finite and not negative"),
        ({"adjoint": "backsolve"}, "`adjoint` must be a diffrax adjoint"),
    ],
)
def test_impossible_arguments_are_named(options, message, unchecked):
    fields = {field.name for field in dataclasses.fields(SMALL)}
    changes = {k: v for k, v in options.items() if k in fields}
    rest = {k: v for k, v in options.items() if k not in fields}
    with pytest.raises(ValueError, match=message):
        continuous(dataclasses.replace(SMALL, **changes), **rest)


def test_what_cannot_be_called_is_named():
    flow = continuous()
    with pytest.raises(ValueError, match=r"`inputs` must lie in \[0, 11\)"):
        flow(jnp.full((2, 5), 11))
    with pytest.raises(ValueError, match="`inputs` must be integers"):
        flow(jnp.zeros((2, 5)))
    with pytest.raises(ValueError, match="`y0` must be a pair"):
        continuous(solver=Leapfrog())(IDS)
    backwards = continuous(solver=SplitEuler(), adjoint=dfx.BacksolveAdjoint())
    with pytest.raises(ValueError, match="`adjoint` must not be BacksolveAdjoint"):
        backwards(IDS)


def test_a_flow_that_takes_too_many_steps_fails():
    flow = continuous(rtol=1e-5, atol=1e-5, steps=2)
    with pytest.raises(RuntimeError, match="max_steps"):
        jax.block_until_ready(flow(IDS))
