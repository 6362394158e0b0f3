"""Geometric terms beside a task's loss: what they are, unbiased, what they lower."""

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


# Derivatives of derivatives compile for long.
pytestmark = pytest.mark.slow
SIZES = {"vocabulary": 7, "layers": 2, "heads": 1, "head_dim": 8, "context": 8}
KINDS = {
    "plain": {},
    "post": {"norm": "post"},
    "ngpt": {"norm": "ngpt"},
    "leapfrog": {"block": "leapfrog", "heads": 2},
    "cayley": {"block": "cayley"},
    "scan": {"scan": True},
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
MODELS |= {"flow": flow}


# A loop over layers has one of its own.
@pytest.mark.parametrize("name", [name for name in MODELS if name != "scan"])
def test_the_map_of_a_layer_takes_its_tokens_to_those_after_it(name, tol):
    model = MODELS[name]()
    maps = layer_maps(model)

    @jax.jit
    def both(row):
        hidden = model.hidden_states(row)
        part = lambda k: jax.tree.map(lambda leaf: leaf[k], maps.parts)
        return hidden, jnp.stack([maps.apply(part(k), hidden[k]) for k in range(2)])

    hidden, after = both(ROWS[0])
    np.testing.assert_allclose(after, hidden[1:], rtol=0, atol=100 * tol.identity)


def test_every_term_is_the_mean_of_its_loss_over_layers_and_sequences(tol):
    model, key = made(), jr.key(3)
    hidden = jnp.moveaxis(eqx.filter_jit(lambda m: m.hidden_states(ROWS))(model), 1, 0)
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
    # By hand the same, layer by layer, up to the error of the probes.
    loss = geometric_loss(nothing, isometry=0.5, **all_of_it, probes=64)
    found = float(eqx.filter_jit(loss)(model, TOKENS, key))
    x, mask = hidden[0, 0], mask_of(model, hidden[0, 0])
    pulled = jax.jit(
        lambda layer, x: pullback_isometry_loss(
            lambda x: layer(x, mask), x, key=key, probes=64
        )
    )
    hand = [
        float(pulled(layer, x))
        for h in hidden
        for layer, x in zip(model.layers, h[:-1], strict=True)
    ]
    assert found == pytest.approx(0.5 * np.mean(hand), rel=0.05)
    assert x.shape == (5, 8)


def test_a_sample_of_sequences_layers_and_steps_has_the_expectation_of_all():
    model = made()
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

    few = run(3000, probes=2, sequences=1, layers=1, every=2)
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


@pytest.mark.parametrize("name", ["post", "ngpt"])
def test_layers_that_do_nothing_have_no_distortion_where_tokens_are_normalised_too(
    name,
):
    model = still(made(**KINDS[name]))
    if name == "ngpt":  # its branches are directions: the rate is what adds nothing
        rates = lambda m: [l.rates for l in m.layers]
        model = eqx.tree_at(rates, model, [0 * r for r in rates(model)])
    found = layer_geometry(model, ROWS, key=jr.key(1))
    isometry, first = np.asarray(found.isometry), 0.0
    if name == "post":
        # Embeddings of different lengths r are stretched by 1 / r each.
        x = np.asarray(model.embed(ROWS), float)
        r = np.std(x, axis=-1)
        first = np.mean(5 * np.sum(r**-4.0, 1) / np.sum(r**-2.0, 1) ** 2 - 1)
    np.testing.assert_allclose(isometry, [first, 0], atol=5e-3)
    # LayerNorm, which adds 1e-5 to the variance, moves tokens a little still.
    np.testing.assert_allclose(found.turning, 0, atol=0.1 if name == "post" else 1e-3)


def test_the_geometry_of_layers_is_that_of_their_tokens(tol):
    model = made()
    found = layer_geometry(model, ROWS, key=jr.key(1))
    hidden = np.asarray(eqx.filter_jit(lambda m: m.hidden_states(ROWS))(model), float)
    assert all(array.shape == (2,) for array in found)
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
    # The same key draws the same weights.
    loss = eqx.filter_jit(geometric_loss(nothing, isometry=1.0, layers=2))
    values = [float(loss(m, TOKENS, jr.key(5))) for m in (made(), made(scan=True))]
    assert values[0] == pytest.approx(values[1], rel=100 * tol.identity)


@pytest.mark.parametrize("term", TERMS)
def test_training_lowers_the_term(term):
    adam, everything = optax.adam(3e-3), {"sequences": None, "layers": None}
    step = make_step(geometric_loss(nothing, **TERMS[term], **everything), adam)
    state, losses = start(made(), adam, jr.key(6)), []
    for _ in range(40):
        state, metrics = step(state, TOKENS)
        assert not bool(metrics.skipped)
        losses.append(float(metrics.loss))
    assert 0 < np.mean(losses[-5:]) < 0.8 * np.mean(losses[:5]), losses


def test_value_and_gradient_are_finite_through_a_flow_of_tokens_that_coincide():
    loss = geometric_loss(nothing, isometry=0.1, curvature=0.1)
    run = eqx.filter_jit(eqx.filter_value_and_grad(loss))
    value, slope = run(flow(), TOKENS.at[:].set(3), jr.key(8))
    assert np.isfinite(value)
    leaves = jax.tree.leaves(eqx.filter(slope, eqx.is_inexact_array))
    assert all(np.isfinite(leaf).all() for leaf in leaves)


def test_the_task_is_left_as_it_is():
    assert geometric_loss(language_loss) is language_loss
    model = made(dropout=0.3, layers=1)
    both = eqx.filter_jit(geometric_loss(language_loss, kinetic=1e-30))
    for key in (jr.key(0), None):
        found = float(both(model, TOKENS, key))
        assert found == float(eqx.filter_jit(language_loss)(model, TOKENS, key))
    with_terms = geometric_loss(language_loss, kinetic=1.0)
    assert float(with_terms(model, TOKENS, None)) == pytest.approx(found, rel=1e-5)


def test_a_classifier_of_vectors_and_half_precision_will_do():
    config = TransformerConfig(
        vocabulary=None, features=3, classes=2, context=5, layers=1, heads=1, head_dim=8
    )
    model = Transformer(config, key=jr.key(0), dtype="float32")
    batch = jr.normal(jr.key(1), (4, 5, 3), "float32"), jnp.zeros(4, jnp.int32)
    loss = geometric_loss(classification_loss, isometry=0.1, kinetic=0.1)
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
