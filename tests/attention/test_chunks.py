"""The kernels by chunks and in bands: the dense values, in less memory and time."""

import functools
import os
import subprocess
import sys
import textwrap

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params

from tfjax.attention import (
    AbstractMask,
    Causal,
    TopK,
    Window,
    attend,
    kernel_sum,
)
from tfjax.attention._base import Permits
from tfjax.attention._chunks import plan


N_Q, N_K, D, D_V = 7, 9, 3, 4
RANDOM = np.random.default_rng(0)
PAIRS = RANDOM.random((N_Q, N_K)) < 0.6
PAIRS[3], PAIRS[0] = False, True  # one query sees nothing, one sees all
KEYS = np.array([True, False] + 7 * [True])
PRIOR = np.log(RANDOM.random(N_K))
PRIOR[4] = -np.inf
PRIOR_OF_PAIRS = np.log(RANDOM.random((N_Q, N_K)))
PRIOR_OF_PAIRS[1, 2] = PRIOR_OF_PAIRS[2, :4] = -np.inf


class Strided(AbstractMask):
    """A rule of a user's own: every other token, without an end."""

    def permits(self, i, j):
        return (i - j) % 2 == 0


class Plain(eqx.Module):
    """A mask that only knows its whole array."""

    def __call__(self, n_q, n_k):
        return jnp.ones((n_q, n_k), bool).at[:, 2].set(False)


RESTRICTIONS = {
    "none": (None, None),
    "keys and prior of pairs": (KEYS, PRIOR_OF_PAIRS),
    "pairs and prior of keys": (PAIRS, PRIOR),
    "causal and keys": ((Causal(), KEYS), None),
    "strided and plain": ((Strided(), Plain()), None),
    "window": (Window(2), None),
    "causal window and prior of keys": ((Window(2), Causal()), PRIOR),
    "window, keys, pairs, prior of pairs": ((Window(1), (KEYS, PAIRS)), PRIOR_OF_PAIRS),
    "top": (TopK(3), None),
    "top, window, pairs, prior of pairs": (
        (TopK(2), Window(2), PAIRS),
        PRIOR_OF_PAIRS,
    ),
    "top of top, causal, keys, prior of keys": (
        (TopK(2), TopK(5), Causal(), KEYS),
        PRIOR,
    ),
}
restricted = pytest.mark.parametrize("given", RESTRICTIONS.values(), ids=RESTRICTIONS)


def operands():
    dtype = jnp.zeros(()).dtype
    shapes = ((N_Q, D), (N_K, D), (N_K, D_V))
    random = np.random.default_rng(1)
    return [jnp.asarray(random.standard_normal(shape), dtype) for shape in shapes]


def cast(prior):
    return None if prior is None else jnp.asarray(prior, jnp.zeros(()).dtype)


def in_full(mask, prior):
    """The mask as one array; what TopK picks is told apart by numpy."""
    parts = jax.tree.leaves(mask, is_leaf=lambda part: not isinstance(part, tuple))
    full, top = np.ones((N_Q, N_K), bool), N_K
    for part in parts:
        if isinstance(part, TopK):
            top = min(top, part.k)
        elif part is not None:
            full = full & np.asarray(part(N_Q, N_K) if callable(part) else part)
    q, k, _ = operands()
    scores = 0.7 * np.asarray(q @ k.T, np.float64)
    scores = scores if prior is None else scores + np.asarray(prior)
    scores = np.where(full, scores, -np.inf)
    order = np.argsort(-scores, axis=1, kind="stable")
    picked = np.zeros_like(full)
    np.put_along_axis(picked, order[:, :top], True, axis=1)
    return full & picked


def loss(given, mask, prior, chunk_size):
    q, k, v, beta = given
    kwargs = {"beta": beta, "mask": mask, "chunk_size": chunk_size}
    out = [attend(q, k, v, log_prior=prior, **kwargs)]
    if prior is None:
        out.append(kernel_sum(q, k, v, **kwargs))
    return sum(jnp.sum(jnp.sin(o)) for o in out), out


def close(actual, expected, tolerance):
    """Equal up to the tolerance times the largest entry."""
    actual, expected = (jax.tree.leaves(tree) for tree in (actual, expected))
    for got, want in zip(actual, expected, strict=True):
        scale = max(1.0, float(np.abs(want).max()))
        np.testing.assert_allclose(got, want, rtol=0, atol=tolerance * scale)


@functools.cache
def dense():
    gradient = jax.value_and_grad(loss, argnums=(0, 2), has_aux=True)
    return jax.jit(gradient, static_argnums=3)


# --- The same numbers -----------------------------------------------------------------


@restricted
def test_chunks_and_bands_give_the_dense_value_and_gradients(given, tol):
    mask, prior = given
    given, prior = (*operands(), jnp.asarray(0.7, jnp.zeros(()).dtype)), cast(prior)
    gradient = jax.value_and_grad(loss, argnums=(0, 2), has_aux=True)
    chunked = jax.jit(lambda given, prior: gradient(given, mask, prior, 2))
    want = dense()(given, in_full(mask, prior), prior, None)
    close(chunked(given, prior), want, 2 * tol.identity)


@pytest.mark.parametrize("chunk_size", [None, 1, N_Q, 100])
def test_every_chunk_size_gives_the_same(chunk_size, tol):
    q, k, v = operands()
    for mask in (None, Window(2), TopK(3)):
        got = attend(q, k, v, beta=0.7, mask=mask, chunk_size=chunk_size)
        want = attend(q, k, v, beta=0.7, mask=in_full(mask, None))
        close(got, want, tol.identity)


@pytest.mark.parametrize("shape", [(9, 4), (4, 30), (30, 3)])
def test_a_band_may_begin_and_end_outside_the_keys(shape, tol):
    (n_q, n_k), dtype = shape, jnp.zeros(()).dtype
    random = np.random.default_rng(2)
    q, k = (jnp.asarray(random.standard_normal((n, 2)), dtype) for n in shape)
    for mask in (Window(1), (Window(1), Causal())):
        got = attend(q, k, k, mask=mask, chunk_size=1)
        full = Window(1)(n_q, n_k)
        full = full & Causal()(n_q, n_k) if isinstance(mask, tuple) else full
        close(got, attend(q, k, k, mask=full), tol.identity)
        unseen = np.asarray(~full.any(axis=1))
        np.testing.assert_array_equal(got[unseen], 0)


MODES = {"chunks": (PAIRS, PRIOR_OF_PAIRS), "band": ((Window(2), KEYS), None)}


@pytest.mark.slow
@pytest.mark.parametrize("name", MODES)
def test_forward_mode_and_second_derivatives_are_those_of_the_dense_kernel(name, tol):
    mask, prior = MODES[name]
    given, prior = operands(), cast(prior)
    random = np.random.default_rng(3)
    tangents = [jnp.asarray(random.standard_normal(a.shape), a.dtype) for a in given]

    def both(mask, chunk_size):
        def outputs(*given):
            return loss((*given, 0.7), mask, prior, chunk_size)[1]

        def total(*given):
            return loss((*given, 0.7), mask, prior, chunk_size)[0]

        def derivatives():
            gradient = jax.grad(total, (0, 1, 2))
            forward = jax.jvp(outputs, tuple(given), tuple(tangents))
            over = jax.jvp(gradient, tuple(given), tuple(tangents))
            hessian = jax.hessian(total)(*given)
            return forward, over, hessian

        return jax.jit(derivatives)()

    close(both(mask, 2), both(in_full(mask, prior), None), 10 * tol.identity)


def test_heads_may_be_vmapped(tol):
    q, k, v = operands()
    turns = jnp.asarray(np.random.default_rng(4).standard_normal((3, D, D)), q.dtype)

    def total(turns, mask, chunk_size):
        kwargs = {"mask": mask, "chunk_size": chunk_size}
        head = lambda turn: attend(q @ turn, k, v, **kwargs)
        return jnp.sum(jnp.sin(jax.vmap(head)(turns)))

    for mask in (None, Window(2)):
        gradient = jax.jit(jax.value_and_grad(total), static_argnums=(1, 2))
        run = functools.partial(gradient, turns, mask)
        want = [total(turn[None], mask, 2) for turn in turns]
        got = run(2)
        close(got[0], sum(want), 5 * tol.identity)
        close(got, run(None), 5 * tol.identity)


MASKS = {"pairs": PAIRS, "band": (Window(2), KEYS)}


@functools.cache
def gradient_of_rows(name):
    """Compiled: the gradient of a loss of the given rows of the outputs, and these."""

    def of_rows(given, rows):
        outs = loss((*given, 0.7), MASKS[name], None, 2)[1]
        return sum(jnp.sum(jnp.sin(out[rows])) for out in outs), outs

    return jax.jit(jax.grad(of_rows, has_aux=True))


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("place", [0, 1, 2], ids=["query", "key", "value"])
def test_nan_in_a_permitted_row_reaches_those_that_see_it_and_only_these(name, place):
    mask, gradient = MASKS[name], gradient_of_rows(name)
    clean, dirty = operands(), operands()
    dirty[place] = dirty[place].at[2, 1].set(jnp.nan)
    sees = np.arange(N_Q) == 2 if place == 0 else in_full(mask, None)[:, 2]
    assert 0 < sees.sum() < N_Q
    blind = np.flatnonzero(~sees)
    (got, outs), (want, expected) = gradient(dirty, blind), gradient(clean, blind)
    everything, _ = gradient(dirty, np.arange(N_Q))
    for a, b in zip(everything, got, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    for out, healthy in zip(outs, expected, strict=True):
        np.testing.assert_array_equal(np.isnan(out).any(axis=1), sees)
        np.testing.assert_array_equal(out[~sees], healthy[~sees])
    assert all(np.isfinite(g).all() for g in got)
    np.testing.assert_allclose(got[0][~sees], want[0][~sees], rtol=1e-5)


# --- What it costs --------------------------------------------------------------------


def multiplications(function, *arguments):
    """How often the products of matrices in a function multiply, loops counted."""

    def count(jaxpr):
        total = 0
        for eqn in jaxpr.eqns:
            if eqn.primitive.name == "dot_general":
                (contracted, _), _ = eqn.params["dimension_numbers"]
                depth = np.prod([eqn.invars[0].aval.shape[i] for i in contracted])
                total += int(np.prod(eqn.outvars[0].aval.shape) * depth)
            times = eqn.params.get("length", 1) if eqn.primitive.name == "scan" else 1
            for inner in jaxprs_in_params(eqn.params):
                total += times * count(inner)
        return total

    return count(jax.make_jaxpr(function)(*arguments).jaxpr)


def cost(n, mask, d=8, backward=True, chunk_size=None):
    x = jax.ShapeDtypeStruct((n, d), jnp.float32)
    total = lambda q, k, v: jnp.sum(attend(q, k, v, mask=mask, chunk_size=chunk_size))
    return multiplications(jax.grad(total, (0, 1, 2)) if backward else total, x, x, x)


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_a_window_costs_n_w_d(causal, backward):
    mask = lambda w: (Causal(), Window(w)) if causal else Window(w)
    run = lambda n, w, d=8: cost(n, mask(w), d, backward)
    assert run(65_536, 256) / run(4_096, 256) == 16
    assert 3.5 < run(65_536, 1024) / run(65_536, 256) < 4.5
    assert run(65_536, 256, d=16) / run(65_536, 256, d=8) == 2
    # 2 products forwards and 5 backwards, of n rows with the band of their chunk.
    band = (2 * 256 if causal else 2 * 512) if causal else 4 * 256
    products = 7 if backward else 2
    assert run(65_536, 256) <= products * 65_536 * band * 8
    assert run(65_536, 256) < cost(65_536, Causal(), 8, backward, 512) / 50


def test_a_backward_pass_by_chunks_multiplies_five_times():
    n, d = 512, 8
    assert cost(n, None, d, False, 128) == 2 * n * n * d
    assert cost(n, None, d, True, 128) == 7 * n * n * d


def test_a_window_that_sees_all_is_not_cut_into_bands():
    assert plan(Permits(rules=(Window(256),)), 500, 500, None) is None
    assert plan(Permits(rules=(Window(256),)), 5000, 5000, None).band == (256, 256)
    assert plan(Permits(rules=(Window(9), Causal())), 500, 500, 8).band == (9, 0)
    assert plan(Permits(rules=(Causal(),)), 500, 500, None) is None


@pytest.mark.parametrize("mask", [None, Causal(), TopK(4)], ids=str)
def test_no_array_of_all_pairs_is_made_not_even_for_the_gradient(mask):
    n, chunk_size = 999, 10
    x = jax.ShapeDtypeStruct((n, 2), jnp.float32)

    def largest(function):
        def sizes(jaxpr):
            for eqn in jaxpr.eqns:
                yield from (np.prod(out.aval.shape) for out in eqn.outvars)
                for inner in jaxprs_in_params(eqn.params):
                    yield from sizes(inner)

        def total(x):
            given = {"beta": 1.0, "mask": mask}
            return jnp.sum(function(x, x, x, chunk_size=chunk_size, **given))

        return max(sizes(jax.make_jaxpr(jax.grad(total))(x).jaxpr))

    assert largest(attend) <= 3 * n * chunk_size
    assert largest(kernel_sum) <= 3 * n * chunk_size


PROGRAM = """
    import jax, jax.numpy as jnp, numpy as np
    from tfjax.attention import attend

    def status(key):
        with open("/proc/self/status") as lines:
            return next(int(l.split()[1]) for l in lines if l.startswith(key)) / 1e3

    random = np.random.default_rng(0)
    shape = (16_384, 64)
    given = [jnp.asarray(random.standard_normal(shape), "float32") for _ in "qkv"]
    loss = lambda q, k, v: jnp.sum(jnp.sin(attend(q, k, v, chunk_size=128)))
    run = jax.jit(jax.value_and_grad(loss, (0, 1, 2))).lower(*given).compile()
    with open("/proc/self/clear_refs", "w") as reset:
        reset.write("5")  # the high-water mark falls to what is resident now
    before = status("VmRSS")
    assert status("VmHWM") < before + 20
    jax.block_until_ready(run(*given))
    print(status("VmHWM") - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(
    not os.access("/proc/self/clear_refs", os.W_OK), reason="needs Linux's /proc"
)
def test_forward_and_backward_of_16384_tokens_take_less_than_200_mb():
    # The inputs lie there already; the gradients, 12.6 MB, are counted.
    run = [sys.executable, "-c", textwrap.dedent(PROGRAM)]
    done = subprocess.run(run, capture_output=True, text=True, check=True, timeout=300)
    assert float(done.stdout) < 200
