"""Bayesian attention: each choice against exact posteriors, and its uncertainty."""

import dataclasses
import functools
import json
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from tfjax.attention import attend, mixture, posterior
from tfjax.nn import (
    BayesianAttention,
    BayesianConfig,
    ContinuousTransformer,
    Transformer,
    TransformerConfig,
    attention_margins,
    predict,
    stable_initialization,
)
from tfjax.nn._bayesian import log_normal_divergence
from tfjax.nn._branches import Attention, rotated
from tfjax.train import (
    RunConfig,
    classification_loss,
    cross_entropy,
    language_loss,
    make_step,
    start,
    variational_loss,
)


X64 = jax.config.jax_enable_x64
N, D, H = 6, 16, 2
CAUSAL = jnp.tril(jnp.ones((N, N), bool))
CHOICES = [
    {},
    {"prior": "learned", "keys": "free"},
    {"prior": "positional", "precision": "learned"},
    {"combine": "gated", "precision": "learned"},
    {"combine": "gated", "keys": "free", "prior": "positional", "spread": True},
    {"spread": True, "prior": "learned"},
    {"scores": "stochastic", "learned_deviation": False},
    {"scores": "stochastic", "combine": "gated", "prior": "learned", "spread": True},
]
# All choices, in few programs.
TRAINED = [
    {"prior": "learned", "keys": "free", "precision": "learned"},
    {"prior": "positional", "combine": "gated", "spread": True},
    {"scores": "stochastic", "combine": "gated"},
]
EVERYTHING = {
    "prior": "positional",
    "precision": "learned",
    "keys": "free",
    "combine": "gated",
    "scores": "stochastic",
    "spread": True,
}
every_choice = pytest.mark.parametrize("choice", CHOICES, ids=str)
STOCHASTIC = BayesianConfig(scores="stochastic")


def random(*shape, seed=0):
    draw = np.random.default_rng((seed, *shape)).standard_normal(shape)
    return jnp.asarray(draw.astype(jnp.zeros(()).dtype))


X = random(2, N, D)


def config_of(choice=None, **more):
    chosen = None if choice is None else BayesianConfig(**choice)
    sizes = {"vocabulary": 7, "layers": 2, "heads": H, "head_dim": 8, "context": N}
    return TransformerConfig(**(sizes | more), bayesian=chosen)


def jiggled(module, seed=3):
    """The module with other values for all that starts at 0 or at 1."""
    floats, rest = eqx.partition(module, eqx.is_inexact_array)
    moved = [
        a + 0.3 * random(*a.shape, seed=seed + i)
        for i, a in enumerate(jax.tree.leaves(floats))
    ]
    floats = jax.tree.unflatten(jax.tree.structure(floats), moved)
    return eqx.combine(floats, rest)


@functools.cache
def part_of(choice, positions="rotary"):
    config = config_of(dict(choice), positions=positions)
    return jiggled(BayesianAttention(config, key=jax.random.key(2)))


def part(choice, **more):
    return part_of(tuple(choice.items()), **more)


@eqx.filter_jit
def run(module, *args, **kwargs):
    return module(*args, **kwargs)


def gap(a, b):
    return float(jnp.max(jnp.abs(a - b)))


def projected(module, x):
    """Queries, keys and values by the formulas, each of shape (h, n, k)."""
    parts = (x @ w.T for w in jnp.split(module.qkv, 3))
    q, k, v = (a.reshape(N, H, 8) for a in parts)
    if module.config.keys == "unit":
        k = 8**0.5 * k / jnp.linalg.norm(k, axis=-1, keepdims=True)
    if module.rotary:
        q, k = rotated(q[None])[0], rotated(k[None])[0]
    return tuple(jnp.moveaxis(a, 1, 0) for a in (q, k, v))


def beta_of(module):
    fixed = jnp.full(H, 8**-0.5)
    if module.log_precision is None:
        return fixed
    return fixed * jnp.exp(module.log_precision)


def prior_of(module, x):
    """The log-prior by the formulas, of shape (h, n, n)."""
    prior = jnp.zeros((H, N, N))
    if module.prior is not None:
        prior = prior + (x @ module.prior.T).T[:, None]
    if module.log_slope is not None:
        place = jnp.arange(N, dtype=X.dtype)
        apart = jnp.abs(place[:, None] - place[None])
        prior = prior - jnp.exp(module.log_slope)[:, None, None] * apart[None]
    return prior


# --- Masks ----------------------------------------------------------------------------


@pytest.mark.parametrize("choice", [{}, {"combine": "gated", "spread": True}], ids=str)
def test_S04_what_is_not_seen_may_be_nan(choice, tol):
    module, x = part(choice), X[0].at[-1].set(jnp.nan)
    for given in ({"mask": CAUSAL}, {"log_prior": jnp.zeros(N).at[-1].set(-jnp.inf)}):
        got, clean = run(module, x, **given), run(module, X[0], **given)
        assert gap(got[:-1], clean[:-1]) < tol.rounding(10)
        assert np.isnan(got[-1]).all()
        found = module.posterior(x, **given)
        assert np.isfinite(found.mean[:, :-1]).all()
    bad = run(module, X[0].at[2].set(jnp.nan), CAUSAL)
    np.testing.assert_array_equal(np.isnan(bad).all(axis=1), np.arange(N) >= 2)
    slope = jax.grad(lambda x: jnp.sum(run(module, x, CAUSAL)[:-1]))(x)
    assert np.isfinite(slope).all()


@pytest.mark.usefixtures("unchecked")
def test_masks_and_tokens_of_another_kind_are_named():
    module = part({})
    rule = r"`mask` must be booleans of shape \(6, 6\), but was"
    for mask in (CAUSAL[None], CAUSAL.astype(float), jnp.ones(N, bool)):
        with pytest.raises(ValueError, match=rule):
            module(X, mask)
    for x in (X[..., :-1], X[0, 0], jnp.ones((N, D), int)):
        with pytest.raises(ValueError, match=r"`x` must be numbers of shape"):
            module(x)


# --- It is attention ------------------------------------------------------------------


@pytest.mark.parametrize("positions", ["none", "rotary"])
def test_the_default_is_attention_for_keys_of_one_length(positions, tol):
    plain = config_of(positions=positions)
    key = jax.random.key(2)
    module = BayesianAttention(plain, key=key)
    expected = []
    for x in X:
        q, k, v = projected(module, x)
        means = jax.vmap(lambda *a: attend(*a, mask=CAUSAL))(q, k, v)
        expected.append(jnp.moveaxis(means, 0, 1).reshape(N, D) @ module.out.T)
    got = run(module, X, CAUSAL)
    assert gap(got, jnp.stack(expected)) < tol.rounding(10)
    common = Attention(plain, D, key=key, dtype=X.dtype)
    np.testing.assert_array_equal(common.qkv, module.qkv)
    np.testing.assert_array_equal(common.out, module.out)
    assert gap(run(common, X, CAUSAL), got) > 0.1


def test_for_keys_of_one_length_it_is_the_common_layer(tol):
    # Tokens whose keys have that length already: rows of a scaled rotation.
    rotation, _ = jnp.linalg.qr(random(8, 8))
    x = random(2, N, 2, 8)
    x = x / jnp.linalg.norm(x, axis=-1, keepdims=True)
    block = jnp.kron(jnp.eye(H), 8**0.5 * rotation)
    config, key = config_of(), jax.random.key(2)
    common = Attention(config, D, key=key, dtype=X.dtype)
    module = BayesianAttention(config, key=key)
    put = lambda m: eqx.tree_at(lambda m: m.qkv, m, m.qkv.at[D : 2 * D].set(block))
    x = x.reshape(2, N, D)
    got, expected = run(put(module), x, CAUSAL), run(put(common), x, CAUSAL)
    assert gap(got, expected) < tol.rounding(10)


# --- Each choice ----------------------------------------------------------------------


@every_choice
def test_every_choice_is_the_exact_posterior(choice, tol):
    module = part(choice)
    got = run(module, X, CAUSAL)
    for x, y in zip(X, got, strict=True):
        q, k, v = projected(module, x)
        prior, beta = prior_of(module, x), beta_of(module)
        given = {"mask": CAUSAL, "covariance": "diagonal"}
        if choice.get("combine") == "gated":
            # One value for each head and key: its block of the output, or of all.
            heads = {"log_prior": prior, "head_log_prior": module.head_log_prior}
            stacked = jax.vmap(lambda v, e: jnp.kron(e[None], v))(v, jnp.eye(H))
            found = mixture(q, k, stacked, beta=beta, **heads, **given)
            mean, variance = found.mean, found.covariance
        else:
            one = lambda q, k, v, beta, prior, given=given: posterior(
                q, k, v, beta=beta, log_prior=prior, **given
            )
            found = jax.vmap(one)(q, k, v, beta, prior)
            flat = lambda a: jnp.moveaxis(a, 0, 1).reshape(N, D)
            mean, variance = flat(found.mean), flat(found.covariance)
        expected = mean @ module.out.T
        if module.spread is not None:
            expected = expected + variance @ module.spread.T
        assert gap(y, expected) < tol.rounding(30)


@pytest.mark.parametrize("choice", CHOICES[3:6], ids=str)
def test_what_a_head_infers_can_be_looked_at(choice, tol):
    module, x = part(choice), X[0]
    found = jax.jit(lambda x: module.posterior(x, CAUSAL))(x)
    q, k, v = projected(module, x)
    prior, beta = prior_of(module, x), beta_of(module)
    for h in range(H):
        given = {"beta": beta[h], "log_prior": prior[h], "mask": CAUSAL}
        one = posterior(q[h], k[h], v[h], **given, covariance="diagonal")
        for a, b in zip(found[:4], (one[0], *one[1:]), strict=True):
            assert gap(a[h], b) < tol.rounding(20)
        entropies = [-np.sum(p[p > 0] * np.log(p[p > 0])) for p in np.array(one[0])]
        np.testing.assert_allclose(found.entropy[h], entropies, atol=tol.rounding(20))
    # The means of all heads, put together, are what the call returns.
    gate = 1.0 if found.gate is None else found.gate[..., None]
    y = jnp.moveaxis(gate * found.mean, 0, 1).reshape(N, D) @ module.out.T
    if module.spread is None:
        assert gap(y, run(module, x, CAUSAL)) < tol.rounding(30)
    assert (found.gate is not None) == (choice.get("combine") == "gated")


def test_a_prior_given_at_the_call_adds_to_the_own_one_and_may_forbid(tol):
    module = part({"prior": "positional", "precision": "learned"})
    given = jnp.where(CAUSAL, random(N, N), -jnp.inf).at[0].set(-jnp.inf)
    got = run(module, X, log_prior=given)
    assert gap(got[:, 0], jnp.zeros((2, D))) == 0  # it may attend to nothing
    found = module.posterior(X[0], log_prior=given)
    flat = jnp.moveaxis(found.mean, 0, 1).reshape(N, D)
    assert gap(got[0], flat @ module.out.T) < tol.rounding(30)
    by_head = jnp.broadcast_to(given, (H, N, N))
    assert gap(run(module, X, log_prior=by_head), got) < tol.rounding(30)
    assert not np.any(np.asarray(found.weights) * ~np.asarray(CAUSAL))

    def loss(module):
        y, divergence = module.with_divergence(X, log_prior=given)
        return jnp.sum(y**2) + divergence

    slopes = eqx.filter_jit(eqx.filter_grad(loss))(part(EVERYTHING))
    assert all(jnp.all(jnp.isfinite(a)) for a in jax.tree.leaves(slopes))


# --- Stochastic scores ----------------------------------------------------------------


def test_the_divergence_of_scores_is_that_of_quadrature():
    for a, s, wanted in ((0.7, 0.3, 1.0), (-2.0, 1.4, 0.6)):
        own = norm(a - s * s / 2, s)  # of the logarithm
        prior = norm(-wanted * wanted / 2, wanted)
        integrand = lambda t, p=own, r=prior: p.pdf(t) * (p.logpdf(t) - r.logpdf(t))
        middle = own.mean()
        expected, _ = quad(integrand, middle - 12 * s, middle + 12 * s, epsabs=1e-12)
        got = log_normal_divergence(jnp.float32(a), jnp.float32(s), wanted)
        assert float(got) == pytest.approx(expected, rel=1e-5)


@pytest.fixture(scope="module")
def draws():
    """Scores drawn many times around exact ones, and what they are drawn around."""
    module = part(CHOICES[7])
    prior, allowed = module._log_prior(X, CAUSAL, None)
    logits = random(2, H, N, N, seed=4)
    count = 4000
    noise = random(count, 2, H, N, N, seed=5)
    noisy = lambda e: module._noisy(logits, prior, allowed, e)
    scores, divergence = jax.jit(jax.vmap(noisy))(noise)
    return module, prior, logits, np.asarray(scores), float(divergence[0])


def test_stochastic_scores_have_the_exact_ones_for_means(draws):
    _, _, logits, scores, _ = draws
    ratio = np.exp(scores - np.asarray(logits))  # S / E S, of variance e^(s^2) - 1
    error = ratio.std(axis=0) / len(ratio) ** 0.5
    assert np.abs((ratio.mean(axis=0) - 1) / error).max() < 5


def test_their_divergence_is_the_mean_log_ratio_of_densities(draws):
    module, prior, logits, scores, divergence = draws
    s = np.exp(np.asarray(module.log_deviation))[:, None, None]
    joint = np.where(CAUSAL, np.exp(np.asarray(logits + prior)), 0)
    centre = np.log(joint.sum(axis=-1, keepdims=True))
    a, drawn = np.asarray(logits) - centre, scores - centre
    wanted = module.config.prior_deviation
    ratio = norm.logpdf(drawn, a - s * s / 2, s)
    ratio = ratio - norm.logpdf(drawn, -wanted * wanted / 2, wanted)
    each = np.where(CAUSAL, ratio, 0).sum(axis=(2, 4)).mean(axis=(1, 2))
    error = each.std() / len(each) ** 0.5
    assert abs(each.mean() - divergence) < 5 * error
    assert divergence > 5 * error


def test_noise_needs_a_key_and_means_approach_the_exact_ones():
    module = part(CHOICES[6])
    exact = np.asarray(run(module, X, CAUSAL))
    keys = jax.random.split(jax.random.key(0), 500)
    many = eqx.filter_jit(jax.vmap(lambda key: module(X, CAUSAL, key)))(keys)
    many = np.asarray(many)
    spread = many.std(axis=0)
    # One key alone has all the weight.
    assert np.ptp(many[:, :, 0], axis=0).max() < 1e-5
    np.testing.assert_allclose(many[0, :, 0], exact[:, 0], rtol=1e-5)
    assert spread[:, 1:].mean() > 0.02
    # Weights are ratios: their means are exact to first order in the variance only.
    assert np.abs(many.mean(axis=0) - exact).mean() < 0.2 * spread.mean()


# --- Inside the Transformer -----------------------------------------------------------

IDS = jnp.asarray(np.random.default_rng(0).integers(0, 7, (2, N)))


@functools.cache
def model_of(choice, **more):
    config = config_of(dict(choice), **dict(more))
    return jiggled(Transformer(config, key=jax.random.key(1)))


def model(choice, **more):
    return model_of(tuple(choice.items()), **more)


@functools.cache
def both():
    """Logits and divergence for one key, compiled."""
    key = jax.random.key(5)
    return eqx.filter_jit(lambda m, ids: m.logits_and_divergence(ids, key=key))


@every_choice
def test_no_place_sees_a_later_one(choice):
    row = model(choice)
    logits, divergence = both()(row, IDS)
    other, _ = both()(row, IDS.at[:, 4:].set(0))
    assert gap(logits[:, :4], other[:, :4]) == 0
    assert gap(logits[:, 4:], other[:, 4:]) > 1e-3
    assert (float(divergence) > 0) == (choice.get("scores") == "stochastic")


def test_layers_in_a_loop_are_those_in_a_row_and_jit_changes_nothing(tol):
    row, key = model(CHOICES[7]), jax.random.key(5)
    logits, divergence = both()(row, IDS)
    stack = jax.tree.map(
        lambda *a: jnp.stack(a) if eqx.is_array(a[0]) else a[0], *row.layers
    )
    loop = Transformer(dataclasses.replace(row.config, scan=True), key=key)
    pick = lambda m: (m.layers, m.embedding, m.norm)
    loop = eqx.tree_at(pick, loop, (stack, row.embedding, row.norm))
    looped, total = both()(loop, IDS)
    assert gap(logits, looped) < tol.rounding(100)
    assert gap(divergence, total) < tol.rounding(100)
    assert gap(row(IDS, key=key), logits) < tol.rounding(100)


def test_gradients_are_those_of_the_difference():
    if not X64:
        pytest.skip("needs JAX_ENABLE_X64: float32 has no digits for a difference")
    floats, rest = eqx.partition(model(EVERYTHING), eqx.is_inexact_array)
    bound = variational_loss(language_loss, 0.1)

    @jax.jit
    def loss(floats):
        return bound(eqx.combine(floats, rest), IDS, jax.random.key(0))

    gradient = jax.jit(jax.grad(loss))(floats)
    leaves, tree = jax.tree.flatten(gradient)
    assert all(float(jnp.abs(leaf).max()) > 0 for leaf in leaves)
    ways = [random(*a.shape, seed=k) for k, a in enumerate(leaves)]
    way = jax.tree.unflatten(tree, ways)
    moved = lambda s: jax.tree.map(lambda a, w: a + s * w, floats, way)
    expected = float(loss(moved(1e-6)) - loss(moved(-1e-6))) / 2e-6
    got = sum(float(jnp.sum(g * w)) for g, w in zip(leaves, ways, strict=True))
    assert got == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("choice", TRAINED, ids=str)
def test_a_few_steps_lower_the_loss(choice):
    tokens = jnp.asarray(np.arange(4)[:, None] + np.arange(N + 1)) % 7
    optimizer = optax.adam(1e-2)
    loss = variational_loss(language_loss, 0.01)
    step = make_step(loss, optimizer)
    config = config_of(choice, layers=1)
    fresh = Transformer(config, key=jax.random.key(1))
    state = start(fresh, optimizer, jax.random.key(2))
    before = float(loss(state.model, tokens, jax.random.key(3)))
    for _ in range(15):
        state, metrics = step(state, tokens)
        assert not metrics.skipped
    assert float(loss(state.model, tokens, jax.random.key(3))) < 0.7 * before


def test_the_loss_adds_the_divergence_in_the_same_pass(tol):
    noisy, key = model(CHOICES[7]), jax.random.key(5)
    tokens = jnp.concatenate([IDS, IDS[:, :1]], axis=1)
    logits, divergence = both()(noisy, IDS)
    got = eqx.filter_jit(variational_loss(language_loss, 0.3))(noisy, tokens, key)
    expected = cross_entropy(logits, tokens[:, 1:]) + 0.3 * divergence
    assert gap(got, expected) < tol.rounding(50)
    config = config_of({"scores": "stochastic"}, classes=3, layers=1)
    classifier = Transformer(config, key=key)
    batch = IDS, jnp.array([0, 2])
    loss = eqx.filter_jit(variational_loss(classification_loss))
    plain = eqx.filter_jit(classification_loss)(classifier, batch, None)
    assert float(loss(classifier, batch, None)) > float(plain)
    with pytest.raises(ValueError, match="`weight` must be a number of at least 0"):
        variational_loss(language_loss, -1.0)


def test_the_weight_of_the_divergence_may_be_traced(unchecked, tol):
    flat = lambda inputs, key: (jnp.zeros((*inputs.shape, 7)), jnp.asarray(2.0))
    fake = SimpleNamespace(logits_and_divergence=flat)
    loss = lambda weight: variational_loss(language_loss, weight)(fake, IDS, None)
    assert gap(jax.jit(loss)(jnp.asarray(0.3)), np.log(7) + 0.6) < 50 * tol.identity


def test_a_flow_takes_exact_scores(tol):
    config = config_of({"combine": "gated", "prior": "positional"})
    discrete = jiggled(Transformer(config, key=jax.random.key(1)))
    flow = ContinuousTransformer.from_transformer(discrete, steps=1)
    assert flow(IDS).shape == (2, N, 7)
    layer, x = discrete.layers[0], discrete.embed(IDS)
    attended, fed = layer.branches(CAUSAL, None)
    velocity = 2 * (attended(x) + fed(x))  # L times what a layer adds
    assert gap(flow.velocity(0.0, x), velocity) < tol.rounding(100)


# --- Predictions ----------------------------------------------------------------------


def test_one_pass_predicts_what_the_logits_say(tol):
    exact = model(CHOICES[5])
    got = predict(exact, IDS)
    p = np.asarray(jax.nn.softmax(run(exact, IDS)))
    np.testing.assert_allclose(jnp.exp(got.log_probabilities), p, atol=tol.identity)
    entropy = -np.sum(p * np.log(p), axis=-1)
    np.testing.assert_allclose(got.entropy, entropy, atol=tol.rounding(10))
    assert gap(got.expected_entropy, got.entropy) == 0
    assert gap(got.mutual_information, jnp.zeros((2, N))) == 0


def test_samples_are_averaged_as_probabilities(tol):
    noisy, key = model(CHOICES[6]), jax.random.key(9)
    got = predict(noisy, IDS, key=key, samples=4)
    keys = jax.random.split(key, 4)
    p = np.stack([jax.nn.softmax(run(noisy, IDS, key=k)) for k in keys])
    mean = p.mean(axis=0)
    within = tol.rounding(50)
    np.testing.assert_allclose(jnp.exp(got.log_probabilities), mean, atol=within)
    entropy = lambda p: -np.sum(p * np.log(p), axis=-1)
    np.testing.assert_allclose(got.entropy, entropy(mean), atol=within)
    expected = entropy(p).mean(axis=0)
    np.testing.assert_allclose(got.expected_entropy, expected, atol=within)
    np.testing.assert_allclose(
        got.mutual_information, entropy(mean) - expected, atol=within
    )
    assert float(got.mutual_information[:, 2:].min()) > 0


def test_impossible_classes_and_dropout_are_predicted_too():
    impossible = lambda inputs, key: jnp.array([0.0, -jnp.inf, 0.0])
    got = predict(impossible, IDS)
    assert float(got.entropy) == pytest.approx(np.log(2), rel=1e-6)
    config = config_of(None, dropout=0.3, classes=3)
    dropping = Transformer(config, key=jax.random.key(1))
    doubt = predict(dropping, IDS, key=jax.random.key(2), samples=3)
    assert float(doubt.mutual_information.min()) > 1e-4
    with pytest.raises(ValueError, match="`key` must be given for more than one"):
        predict(dropping, IDS, samples=2)


# --- The configuration ----------------------------------------------------------------


def test_configurations_survive_json_and_toml():
    for choice in CHOICES:
        config = config_of(choice)
        values = json.loads(json.dumps(config.to_dict()))
        assert TransformerConfig.from_dict(values) == config
    toml = "[model]\nlayers = 1\n[model.bayesian]\nprior = 'learned'\ndeviation = 1\n"
    given = RunConfig.from_toml(toml)
    assert given.transformer(vocabulary=7).bayesian == BayesianConfig(
        prior="learned", deviation=1.0
    )
    again = RunConfig.from_dict(json.loads(json.dumps(given.to_dict())))
    assert again == given
    assert RunConfig().transformer(vocabulary=7).bayesian is None
    with pytest.raises(ValueError, match="`model.bayesian.prior` must be one of"):
        RunConfig.from_toml("[model.bayesian]\nprior = 'flat'")
    with pytest.raises(ValueError, match="`model.bayesian.priors` is no key"):
        RunConfig.from_toml("[model.bayesian]\npriors = 'learned'")


def test_parameters_are_those_of_the_choices():
    count = lambda m: sum(a.size for a in jax.tree.leaves(eqx.filter(m, eqx.is_array)))
    sizes = {"key": jax.random.key(0)}
    plain = count(Attention(config_of(), D, key=sizes["key"], dtype=X.dtype))
    extra = [0, H * D, 2 * H, 2 * H, 2 * H + D * D, H * D + D * D, 0]
    for choice, more in zip(CHOICES, extra, strict=False):
        assert count(BayesianAttention(config_of(choice), **sizes)) == plain + more


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"prior": "flat"},
            "`prior` must be one of 'uniform', 'learned', 'positional'",
        ),
        ({"precision": 1.0}, "`precision` must be one of 'fixed', 'learned'"),
        ({"keys": "long"}, "`keys` must be one of 'unit', 'free', but was 'long'"),
        ({"combine": "mean"}, "`combine` must be one of 'sum', 'gated'"),
        ({"scores": "noisy"}, "`scores` must be one of 'exact', 'stochastic'"),
        ({"deviation": 0}, "`deviation` must be finite and positive, but was 0"),
        ({"prior_deviation": True}, "`prior_deviation` must be finite and positive"),
        ({"spread": 1}, "`spread` must be true or false, but was 1"),
        ({"priors": "flat"}, "`values` must have keys among .* given"),
    ],
)
def test_impossible_choices_are_named(values, message, unchecked):
    with pytest.raises(ValueError, match=message):
        BayesianConfig.from_dict(values)


def test_what_does_not_go_together_is_refused(unchecked):
    with pytest.raises(ValueError, match="`norm` must be 'pre', 'post' or 'peri' with"):
        config_of({}, norm="ngpt")
    with pytest.raises(ValueError, match="`bayesian` must be a BayesianConfig, or No"):
        TransformerConfig(bayesian="yes")
    config = config_of({"scores": "stochastic"})
    with pytest.raises(
        ValueError, match="`bayesian` must have exact scores for a flow"
    ):
        ContinuousTransformer(config, key=jax.random.key(0))
    for judge in (attention_margins, stable_initialization):
        with pytest.raises(ValueError, match="`model` must have common attention"):
            judge(model(CHOICES[0]), IDS)
    with pytest.raises(ValueError, match="`log_prior` must have shape"):
        part({})(X, log_prior=jnp.zeros((2, N)))
    with pytest.raises(ValueError, match="`config` must be a TransformerConfig"):
        BayesianAttention(BayesianConfig(), key=jax.random.key(0))
    with pytest.raises(ValueError, match="`norm` must be 'pre', 'post' or 'peri', but"):
        BayesianAttention(config_of(norm="ngpt"), key=jax.random.key(0))
