"""Geometric terms beside a task's loss: what they are, unbiased, and what they lower."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

from tfjax.nn import ContinuousTransformer, Transformer, TransformerConfig
from tfjax.train import (
    classification_loss,
    curvature_loss,
    geometric_loss,
    isometry_loss,
    kinetic_loss,
    language_loss,
    layer_geometry,
    make_step,
    pullback_isometry_loss,
    start,
)
from tfjax.train._layer_maps import layer_maps, mask_of


SIZES = {"vocabulary": 7, "layers": 3, "heads": 2, "head_dim": 8, "context": 8}
KINDS = {
    "plain": {},
    "peri": {"norm": "peri"},
    "post": {"norm": "post"},
    "ngpt": {"norm": "ngpt"},
    "leapfrog": {"block": "leapfrog"},
    "cayley": {"block": "cayley"},
    "scan": {"scan": True},
    "sees all": {"causal": False},
}
TOKENS = jnp.asarray(np.random.default_rng(0).integers(0, 7, (4, 6)), jnp.int32)
ROWS = TOKENS[:, :-1]
TERMS = {
    "isometry": {"isometry": 1.0},
    "pairs": {"isometry": 1.0, "form": "pairs"},
    "curvature": {"curvature": 1.0},
    "kinetic": {"kinetic": 1.0},
}


def made(**changes):
    return Transformer(TransformerConfig(**SIZES | changes), key=jr.key(0))


def flow(**options):
    return ContinuousTransformer(TransformerConfig(**SIZES), key=jr.key(0), **options)


def nothing(model, batch, key):
    """No task, so that only the terms are left."""
    return jnp.zeros(())


MODELS = {name: (lambda c=changes: made(**c)) for name, changes in KINDS.items()}
MODELS |= {
    "flow": flow,
    "steps that jump": lambda: flow(weights="constant", steps=2),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_map_of_a_layer_takes_its_tokens_to_those_after_it(name, tol):
    model = MODELS[name]()
    maps = layer_maps(model)

    @jax.jit
    def both(row):
        hidden = model.hidden_states(row)
        part = lambda k: jax.tree.map(lambda leaf: leaf[k], maps.parts)
        return hidden, jnp.stack([maps.apply(part(k), hidden[k]) for k in range(3)])

    hidden, after = both(ROWS[0])
    np.testing.assert_allclose(after, hidden[1:], rtol=0, atol=100 * tol.identity)


def test_every_term_is_the_mean_of_its_loss_over_layers_and_sequences(tol):
    model, key = made(), jr.key(3)
    hidden = jnp.moveaxis(jax.jit(model.hidden_states)(ROWS), 1, 0)
    all_of_it = {"sequences": None, "layers": None}
    wanted = {
        "pairs": np.mean([isometry_loss(h) for h in hidden]),
        "curvature": np.mean([curvature_loss(h) for h in hidden]),
        "kinetic": np.mean([kinetic_loss(h) for h in hidden]),
    }
    for name, mean in wanted.items():
        loss = eqx.filter_jit(geometric_loss(nothing, **TERMS[name], **all_of_it))
        found = float(loss(model, TOKENS, key))
        assert found == pytest.approx(float(mean), rel=20 * tol.identity)
    # With very many probes; by hand the same, layer by layer.
    loss = geometric_loss(nothing, isometry=0.5, **all_of_it, probes=512)
    found = float(eqx.filter_jit(loss)(model, TOKENS, key))
    x, mask = hidden[0, 0], mask_of(model, hidden[0, 0])
    pulled = jax.jit(
        lambda layer, x: pullback_isometry_loss(
            lambda x: layer(x, mask), x, key=key, probes=512
        )
    )
    hand = [
        float(pulled(layer, x))
        for h in hidden
        for layer, x in zip(model.layers, h[:-1], strict=True)
    ]
    assert found == pytest.approx(0.5 * np.mean(hand), rel=0.02)
    assert x.shape == (5, 16)


@pytest.mark.parametrize("every", [1, 3])
def test_a_sample_of_sequences_layers_and_steps_has_the_expectation_of_all(every):
    model = made(layers=2, heads=1)
    factors = {"isometry": 1.0, "curvature": 2.0, "kinetic": 0.1}
    parameters, rest = eqx.partition(model, eqx.is_inexact_array)
    size = sum(leaf.size for leaf in jax.tree.leaves(parameters))
    flat, back = jax.flatten_util.ravel_pytree(parameters)
    direction = np.random.default_rng(2).standard_normal((4, size)) / np.sqrt(size)

    def run(many, **options):
        loss = geometric_loss(nothing, **factors, **options)
        value = lambda flat, key: loss(eqx.combine(back(flat), rest), TOKENS, key)

        def one(key):
            found, slope = jax.value_and_grad(value)(flat, key)
            return found, jnp.asarray(direction, slope.dtype) @ slope

        samples = jax.jit(lambda keys: jax.lax.map(one, keys))(
            jr.split(jr.key(4), many)
        )
        return [np.asarray(a, float) for a in samples]

    few = run(2500, probes=2, sequences=1, layers=1, every=every)
    full = run(250, probes=2, sequences=None, layers=None)
    for a, b in zip(few, full, strict=True):
        error = np.sqrt(a.var(axis=0) / len(a) + b.var(axis=0) / len(b))
        assert np.all(np.abs(a.mean(axis=0) - b.mean(axis=0)) < 5 * error)
        assert np.all(a.std(axis=0) > 0)


def still(model):
    """Layers that add nothing."""
    out = lambda m: [
        a for l in m.layers for a in (l.attention.out, l.feed_forward.down)
    ]
    return eqx.tree_at(out, model, [0 * a for a in out(model)])


@pytest.mark.parametrize("name", ["plain", "post", "ngpt", "leapfrog", "cayley"])
def test_layers_that_do_nothing_have_no_distortion_where_tokens_are_normalised_too(
    name,
):
    model = still(made(**KINDS[name]))
    if name == "ngpt":  # its branches are directions: the rate is what adds nothing
        rates = lambda m: [l.rates for l in m.layers]
        model = eqx.tree_at(rates, model, [0 * r for r in rates(model)])
    found = layer_geometry(model, ROWS, key=jr.key(1))
    # LayerNorm adds 1e-5 to the variance of tokens.
    np.testing.assert_allclose(found.isometry, 0, atol=1e-3)
    np.testing.assert_allclose(found.turning, 0, atol=1e-5)


def test_the_geometry_of_layers_is_that_of_their_tokens(tol):
    model = made()
    found = layer_geometry(model, ROWS, key=jr.key(1))
    hidden = np.asarray(jax.jit(model.hidden_states)(ROWS), float)
    assert all(array.shape == (3,) for array in found)
    norm = np.linalg.norm(hidden, axis=-1)
    np.testing.assert_allclose(found.norm, norm[1:].mean((1, 2)), rtol=1e-5)
    unit = hidden / norm[..., None]
    cosines = np.einsum("lbid,lbjd->lbij", unit, unit)
    pairs = cosines[..., ~np.eye(5, dtype=bool)].mean((1, 2))
    np.testing.assert_allclose(found.cosine, pairs[1:], atol=1e-5)
    values = np.linalg.svd(hidden, compute_uv=False) ** 2
    rank = (values.sum(-1) ** 2 / (values**2).sum(-1)).mean(1)
    np.testing.assert_allclose(found.rank, rank[1:], rtol=1e-5)
    losses = {"pairs": isometry_loss, "turning": curvature_loss}
    for name, loss in losses.items():
        mean = np.mean([float(loss(jnp.asarray(hidden[:, b]))) for b in range(4)])
        share = np.asarray(getattr(found, name))[1 if name == "turning" else 0 :]
        assert share.mean() == pytest.approx(mean, rel=1e-4)
    total = np.mean([float(kinetic_loss(jnp.asarray(hidden[:, b]))) for b in range(4)])
    assert float(found.kinetic.sum()) == pytest.approx(total, rel=1e-5)
    assert found.turning[0] == found.menger[0] == 0
    as_lists = found.to_dict()
    assert as_lists["rank"] == found.rank.tolist()
    # Tokens that all are one: of one direction, and of rank one.
    same = eqx.tree_at(lambda m: m.embedding, model, jnp.ones_like(model.embedding))
    collapsed = layer_geometry(still(same), ROWS, key=jr.key(1))
    np.testing.assert_allclose(collapsed.rank, 1, rtol=1e-5)
    np.testing.assert_allclose(collapsed.cosine, 1, rtol=1e-5)


def test_a_scan_of_layers_and_a_list_of_them_have_one_loss(tol):
    a, b = made(), made(scan=True)
    shape = jax.tree.map(lambda *each: jnp.stack(each), *a.layers)
    b = eqx.tree_at(lambda m: m.layers, b, eqx.tree_at(_config, shape, b.config))
    b = eqx.tree_at(lambda m: m.embedding, b, a.embedding)
    loss = eqx.filter_jit(geometric_loss(nothing, isometry=1.0, layers=2))
    values = [float(loss(m, TOKENS, jr.key(5))) for m in (a, b)]
    assert values[0] == pytest.approx(values[1], rel=100 * tol.identity)


def _config(layer):
    return layer.config


@pytest.mark.parametrize("term", TERMS)
def test_training_lowers_the_term(term):
    model = made(layers=2)
    adam = optax.adam(3e-3)
    step = make_step(
        geometric_loss(nothing, **TERMS[term], sequences=2), adam, clip=1.0
    )
    state = start(model, adam, jr.key(6))
    full = eqx.filter_jit(
        geometric_loss(
            nothing, **TERMS[term] | {"sequences": None, "layers": None, "probes": 64}
        )
    )
    before = float(full(model, TOKENS, jr.key(7)))
    for _ in range(40):
        state, metrics = step(state, TOKENS)
        assert not bool(metrics.skipped)
        assert np.isfinite(metrics.loss)
    after = float(full(state.model, TOKENS, jr.key(7)))
    assert 0 <= after < 0.8 * before, (before, after)


@pytest.mark.parametrize("name", ["post", "ngpt", "leapfrog", "cayley", "scan", "flow"])
def test_value_and_gradient_are_finite_for_every_model(name):
    loss = geometric_loss(language_loss, isometry=0.1, curvature=0.1, kinetic=0.1)
    model = MODELS[name]()
    # Rows that repeat one letter: tokens that coincide.
    tokens = TOKENS.at[:2].set(3)
    value, slope = eqx.filter_jit(eqx.filter_value_and_grad(loss))(
        model, tokens, jr.key(8)
    )
    assert np.isfinite(value)
    leaves = jax.tree.leaves(eqx.filter(slope, eqx.is_inexact_array))
    assert all(np.isfinite(leaf).all() for leaf in leaves)


def test_the_task_is_left_as_it_is():
    assert geometric_loss(language_loss) is language_loss
    model = made(dropout=0.3)
    both = eqx.filter_jit(geometric_loss(language_loss, kinetic=1e-30))
    for key in (jr.key(0), None):
        found = float(both(model, TOKENS, key))
        assert found == float(eqx.filter_jit(language_loss)(model, TOKENS, key))
    with_terms = geometric_loss(language_loss, kinetic=1.0)
    assert float(with_terms(model, TOKENS, None)) == found


def test_a_classifier_of_vectors_and_half_precision_will_do():
    config = TransformerConfig(
        vocabulary=None, features=3, classes=2, context=5, layers=2, heads=1, head_dim=8
    )
    model = Transformer(config, key=jr.key(0), dtype="float32")
    batch = jr.normal(jr.key(1), (4, 5, 3), "float32"), jnp.zeros(4, jnp.int32)
    loss = geometric_loss(classification_loss, isometry=0.1, curvature=0.1, every=2)
    step = make_step(loss, optax.sgd(0.1), dtype=jnp.bfloat16, accumulate=2)
    state, metrics = step(start(model, optax.sgd(0.1), jr.key(2)), batch)
    assert np.isfinite(metrics.loss)
    assert not bool(metrics.skipped)


class Flat(eqx.Module):
    """A model of another kind, with hidden states."""

    table: jax.Array

    def hidden_states(self, inputs, *, key=None):
        x = self.table[inputs]
        return jnp.stack([x, 0.5 * x])


def test_models_that_cannot_be_differentiated_are_refused():
    other = Flat(jr.normal(jr.key(0), (7, 4)))
    pairs = geometric_loss(nothing, isometry=1.0, form="pairs")
    assert float(pairs(other, TOKENS, jr.key(0))) == pytest.approx(np.log(2) ** 2, 0.05)
    pullback = geometric_loss(nothing, isometry=1.0)
    with pytest.raises(ValueError, match="`model` must be a Transformer or a Contin"):
        pullback(other, TOKENS, jr.key(0))
    with pytest.raises(ValueError, match="`model` must have equal steps, no toleranc"):
        pullback(flow(rtol=1e-3), TOKENS, jr.key(0))


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"isometry": -1.0}, "`isometry` must be at least 0 and finite, but was -1.0"),
        ({"curvature": float("nan")}, "`curvature` must be at least 0 and finite, but"),
        ({"form": "push"}, "`form` must be one of 'pullback', 'pairs', but was 'push'"),
        ({"kind": "bent"}, "`kind` must be one of 'turning', 'menger', but was 'bent'"),
        ({"probes": 0}, "`probes` must be a positive integer, but was 0"),
        ({"layers": 0}, "`layers` must be a positive integer, but was 0"),
        ({"every": 0}, "`every` must be a positive integer, but was 0"),
    ],
)
def test_what_cannot_be_is_named(given, text):
    with pytest.raises(ValueError, match=text):
        geometric_loss(nothing, **given)
