"""Margins of a model's heads, as bounds and as measured, and weights that meet them."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tfjax.attention import attend
from tfjax.diagnostics import stability_margins
from tfjax.nn import (
    Transformer,
    TransformerConfig,
    attention_margins,
    stable_initialization,
)


SMALL = TransformerConfig(vocabulary=11, layers=2, heads=2, head_dim=8, context=12)
IDS = jnp.asarray(np.random.default_rng(0).integers(0, 11, (2, 12)))
CHOICES = [
    {"norm": "pre"},
    {"norm": "post"},
    {"norm": "peri", "causal": False},
    {"block": "leapfrog", "heads": 4},
    {"block": "cayley", "positions": "none"},
    {"positions": "learned", "branch_exponent": 0.5, "scan": True},
]
every_choice = pytest.mark.parametrize("choice", CHOICES, ids=str)
every_kind = pytest.mark.parametrize("kind", ["measured", "typical", "worst_case"])


def model_of(choice=None, dtype=None, **more):
    config = dataclasses.replace(SMALL, **(choice or {}), **more)
    return Transformer(config, key=jax.random.key(1), dtype=dtype)


margins_of = eqx.filter_jit(attention_margins)
stable = eqx.filter_jit(stable_initialization)


def shown_to(model):
    """The tokens that the attention of each layer is given by the layer itself."""
    x, n = model.embed(IDS), IDS.shape[1]
    mask = jnp.tril(jnp.ones((n, n), bool)) if model.config.sees_earlier_only else None
    for layer in model.layers:
        shown = []

        def watched(y, mask, attention=layer.attention, shown=shown):
            shown.append(y)
            return attention(y, mask)

        x = eqx.tree_at(lambda one: one.attention, layer, watched)(x, mask)
        yield shown[0]


@pytest.fixture(scope="module")
def measured():
    """Margins, the configuration, and layers with what each is shown, of a choice."""
    found = {}

    def of(choice):
        if str(choice) not in found:
            model, row = model_of(choice), model_of(choice | {"scan": False})
            layers = list(zip(row.layers, shown_to(row), strict=True))
            found[str(choice)] = margins_of(model, IDS), model.config, layers
        return found[str(choice)]

    return of


def turn(x, places):
    """Rotary positions as a product of complex numbers."""
    half = x.shape[-1] // 2
    rates = jnp.asarray(10000.0 ** (-np.arange(half) / half), x.dtype)
    angle = places.astype(x.dtype)[:, None] * rates[None]
    phase = jax.lax.complex(jnp.cos(angle), jnp.sin(angle))
    z = jax.lax.complex(x[:, :half], x[:, half:]) * phase
    return jnp.concatenate([z.real, z.imag], axis=-1)


def weights(layer, h):
    """Q, K, V, O of a head."""
    k = layer.config.head_dim
    query, key, value = (
        w[h * k : (h + 1) * k] for w in jnp.split(layer.attention.qkv, 3)
    )
    return query, key, value, layer.attention.out[:, h * k : (h + 1) * k]


@eqx.filter_jit
def slopes(tokens, query, key, value, out, rotary, causal):
    """Of each query alone, its keys staying where they are, by differentiation."""
    places = jnp.arange(tokens.shape[0])
    turned = lambda x, places: turn(x, places) if rotary else x
    keys, values = turned(tokens @ key.T, places), tokens @ value.T

    def slope(x, place):
        mask = (places <= place) | (not causal)

        def f(x):
            q = turned((query @ x)[None], place[None])
            return out @ attend(q, keys, values, mask=mask[None])[0]

        return jnp.linalg.norm(jax.jacobian(f)(x), 2)

    return jax.vmap(slope)(tokens, places)


# --- Margins --------------------------------------------------------------------------


@every_choice
def test_measured_margins_are_those_of_the_derivative_of_each_query(
    choice, measured, tol
):
    found, config, layers = measured(choice)
    found, given = (
        found.measured,
        (config.positions == "rotary", config.sees_earlier_only),
    )
    for k, (layer, tokens) in enumerate(layers):
        for h in range(found.shape[1]):
            each = [slopes(x, *weights(layer, h), *given).max() for x in tokens]
            expected = 1 / float(max(each))
            assert float(found[k, h]) == pytest.approx(expected, rel=200 * tol.identity)


@every_choice
def test_the_other_margins_are_those_of_the_diagnostics_at_the_worst_distance(
    choice, measured, tol
):
    (found, config, layers), n = measured(choice), IDS.shape[1]
    assert (found.worst_case <= found.measured).all()
    distances = np.arange(n) if config.sees_earlier_only else np.arange(1 - n, n)
    for k, (layer, tokens) in enumerate(layers):
        radius = float(jnp.linalg.norm(tokens, axis=-1).max())
        for h in range(found.worst_case.shape[1]):
            query, key, value, out = weights(layer, h)
            turned = query[None]
            if config.positions == "rotary":
                turned = jnp.stack(
                    [turn(query.T, jnp.full(16, s)).T for s in distances]
                )
            each = stability_margins(turned, key, out @ value, radius=radius)
            for name in ("worst_case", "typical"):
                expected = float(getattr(each, name).min())
                one = float(getattr(found, name)[k, h])
                assert one == pytest.approx(expected, rel=200 * tol.identity)


def test_what_all_queries_share_has_no_slope():
    """A single key is taken whole, whatever asks for it."""
    margins = margins_of(model_of(), IDS[:, :1])
    assert (margins.measured > 1e6).all()
    assert (margins.worst_case < 1).all()


def test_margins_have_a_gradient_that_the_difference_confirms():
    if not jax.config.jax_enable_x64:
        pytest.skip("needs JAX_ENABLE_X64: float32 has no digits for a difference")
    model = model_of()
    way = jnp.asarray(np.random.default_rng(3).standard_normal((48, 16)))
    at = lambda m: m.layers[0].attention.qkv

    @jax.jit
    def f(step):
        moved = eqx.tree_at(at, model, at(model) + step * way)
        return sum(jnp.sum(jnp.log(a)) for a in attention_margins(moved, IDS))

    expected = (f(1e-6) - f(-1e-6)) / 2e-6
    assert float(jax.grad(f)(0.0)) == pytest.approx(float(expected), rel=1e-6)


# --- Initialisation -------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("choice", "kind"),
    [(choice, "measured") for choice in CHOICES]
    + [({}, "typical"), ({}, "worst_case"), (CHOICES[-1], "worst_case")],
    ids=str,
)
def test_every_head_of_every_layer_meets_the_margin(choice, kind, tol):
    model, margin = model_of(choice), 1.7
    before = getattr(margins_of(model, IDS), kind)
    after = getattr(margins_of(stable(model, IDS, margin=margin, kind=kind), IDS), kind)
    assert float(before.min()) < margin
    below = 200 * tol.identity
    assert (after >= margin * (1 - below)).all()
    # Heads of the first layer that had it keep theirs; all others have just it.
    slack = 1e-3 if kind == "measured" else below
    expected = jnp.maximum(margin, before[0])
    np.testing.assert_allclose(after[0], expected, rtol=slack)
    if kind == "worst_case":
        np.testing.assert_allclose(after, margin, rtol=below)


@every_kind
def test_nothing_but_queries_and_keys_is_scaled_each_head_by_one_number(kind, tol):
    model = model_of()
    scaled = stable(model, IDS, margin=3.0, kind=kind)
    for old, new in zip(model.layers, scaled.layers, strict=True):
        ratio = np.asarray(new.attention.qkv / old.attention.qkv).reshape(3, 2, 8, 16)
        assert (ratio[2] == 1).all()
        each = ratio[:2, :, 0, 0]
        np.testing.assert_allclose(each[0], each[1], rtol=10 * tol.identity)
        assert (each < 1).all()
        whole = ratio[:2] - each[:, :, None, None]
        assert np.abs(whole).max() < 10 * tol.identity
        old = eqx.tree_at(lambda a: a.attention.qkv, old, new.attention.qkv)
        assert eqx.tree_equal(old, new)
    assert eqx.tree_equal(model.embedding, scaled.embedding)


@every_kind
def test_a_model_that_has_the_margin_stays_as_it_is(kind):
    model = model_of()
    assert eqx.tree_equal(model, stable(model, IDS, margin=1e-3, kind=kind))
    # More than the worst case, but not than there is.
    there = 0.99 * getattr(margins_of(model, IDS), kind).min()
    assert eqx.tree_equal(model, stable(model, IDS, margin=there, kind=kind))
    once = stable(model, IDS, kind="worst_case")
    zero = eqx.tree_at(lambda m: m.layers[0].attention.qkv, once, jnp.zeros((48, 16)))
    assert eqx.tree_equal(zero, stable(zero, IDS, kind=kind, margin=1e-3))


def test_the_bound_holds_for_tokens_that_were_not_seen():
    model = stable(model_of(), IDS, margin=1.0, kind="worst_case")
    others = jnp.asarray(np.random.default_rng(9).integers(0, 11, (8, 12)))
    assert (margins_of(model, others).measured > 1).all()


def test_layers_in_a_row_in_a_loop_and_a_batch_of_margins_agree():
    qkv = jnp.stack([layer.attention.qkv for layer in stable(model_of(), IDS).layers])
    loop = stable(model_of(scan=True), IDS)
    np.testing.assert_allclose(loop.layers.attention.qkv, qkv, atol=2e-5)

    @eqx.filter_jit
    @eqx.filter_vmap(in_axes=(None, 0))
    def each(model, margin):
        return stable_initialization(model, IDS, margin=margin)

    many = each(model_of(scan=True), jnp.array([1.0, 2.0])).layers.attention.qkv
    np.testing.assert_allclose(many[1], qkv, atol=2e-5)
    assert float(jnp.abs(many[0] - many[1]).max()) > 0.01


def test_it_does_without_jit_what_it_does_under_it(tol):
    both = [f(model_of(), IDS, kind="typical") for f in (stable, stable_initialization)]
    first, second = (model.layers[1].attention.qkv for model in both)
    np.testing.assert_allclose(first, second, atol=20 * tol.identity)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_dtype_of_the_parameters_is_kept(dtype):
    kind = jnp.dtype(dtype)
    scaled = stable(model_of(dtype=kind), IDS, kind="worst_case")
    assert scaled.layers[0].attention.qkv.dtype == kind
    found = margins_of(scaled, IDS)
    assert all(a.dtype == jnp.float32 for a in found)
    slack = 1e-5 if dtype == "float32" else 0.02
    np.testing.assert_allclose(found.worst_case, 2, rtol=slack)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: attention_margins(model_of({"norm": "ngpt"}), IDS),
            "`model` must have the norm 'pre', 'post' or 'peri', .* norm 'ngpt'",
        ),
        (
            lambda: stable_initialization(model_of({"norm": "ngpt"}), IDS),
            "`model` must have the norm",
        ),
        (
            lambda: stable_initialization(model_of(), IDS, margin=0.0),
            "`margin` must be finite and positive, but was 0",
        ),
        (
            lambda: stable_initialization(model_of(), IDS, margin=np.ones(2)),
            r"`margin` must be a scalar, but was of shape \(2,\)",
        ),
        (
            lambda: stable_initialization(model_of(), IDS, kind="best"),
            "`kind` must be one of 'measured', 'typical', 'worst_case', but was 'best'",
        ),
        (lambda: attention_margins(model_of(), IDS + 11), "`inputs` must lie in"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
