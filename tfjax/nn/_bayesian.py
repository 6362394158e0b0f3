"""Attention whose prior, likelihood and uncertainty can be chosen and learned."""

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Key

from .._core import as_float, check_shape, must, normalize, widen
from ..attention import mixture, posterior
from ._bayesian_config import BayesianConfig
from ._branches import Attention, Tokens, linear, rotated
from ._layers import default_dtype
from ._transformer_config import TransformerConfig


class HeadPosteriors(NamedTuple):
    """What each head infers from each token of one sequence.

    - `weights`: the probability of each key.
    - `mean`, `variance`: of the value's entries.
    - `log_evidence`: the logarithm of the density of the query.
    - `entropy`: of the weights, in nats.
    - `gate`: the probability of each head, where heads are gated, else None.
    """

    weights: Float[Array, "h n n"]
    mean: Float[Array, "h n k"]
    variance: Float[Array, "h n k"]
    log_evidence: Float[Array, "h n"]
    entropy: Float[Array, "h n"]
    gate: Float[Array, "h n"] | None


class BayesianAttention(eqx.Module):
    r"""Multi-head attention as inference: which key did the query come from?

    Each head takes the posterior mean of the value, for a prior $\pi$ over the keys and
    a Gaussian likelihood of precision $\beta$, as in
    [`posterior`][tfjax.attention.posterior]:

    $$m = \sum_j w_j v_j, \qquad w_j \propto \pi_j S_j, \qquad
      S_j = \exp \Big( \beta \langle q, k_j \rangle - \tfrac\beta2 |k_j|^2 \Big)$$

    - Where heads are `"gated"`, that of head h is multiplied by its posterior
      probability $g_h$, as in [`mixture`][tfjax.attention.mixture], whose values are
      $O_h v_j$ with the head's columns $O_h$ of the output.
    - Scores that are `"stochastic"` are, when a key is given,
      $\tilde S_j = S_j \exp(\sigma \epsilon_j - \sigma^2 / 2)$ with normal noise, of
      mean $S_j$. They diverge from a prior under which
      $\log (\tilde S_j / \sum_l \pi_l S_l)$ has variance $\sigma_0^2$ and
      $\tilde S_j$ the same mean for all keys: for $a_j = \log (w_j / \pi_j)$ by

    $$\log \frac{\sigma_0}{\sigma} - \frac12 + \frac{\sigma^2 +
      (a_j - \sigma^2 / 2 + \sigma_0^2 / 2)^2}{2 \sigma_0^2}$$

    - `spread` adds a matrix times the variances of the entries of all $v$; where heads
      are gated, of those of the vector that is $v$ in the block of the head that
      explains the token, and 0 elsewhere: $g_h s_h^2 + g_h (1 - g_h) m_h^2$. They are
      differences of moments, less exact than those of `posterior` where values lie far
      from the origin.

    With the default choices it is [`attend`][tfjax.attention.attend] for keys of one
    length.

    **Arguments:**

    - `config`: a [`TransformerConfig`][], for its heads, `positions` and `bayesian`,
      which is the default [`BayesianConfig`][] where None.
    - `d`: the dimension of tokens; None is the config's width.
    - `key`: draws the weights.
    - `dtype`: of the parameters; None is the default floating dtype.

    **Arguments of the call:**

    - `x`: tokens, of shape (..., n, d).
    - `mask`: booleans of shape (n, n), True where a token may attend to another; None
      permits all.
    - `key`: draws stochastic scores; without it these are exact.
    - `log_prior`: is added to the logarithm of the prior; of shape (n,), (n, n) or
      (h, n, n). -inf forbids a key.

    **Returns, when called:** tokens, of shape (..., n, d). One that may attend to
    nothing gets 0. What a mask or a prior forbids may be NaN: only tokens that see it
    are, and itself.

    **Raises:** ValueError where `config` is no such thing or shapes do not fit.

    !!! example

        >>> import jax
        >>> from tfjax.nn import BayesianAttention, BayesianConfig, TransformerConfig
        >>> choices = BayesianConfig(prior="positional", spread=True)
        >>> config = TransformerConfig(heads=2, head_dim=8, bayesian=choices)
        >>> attention = BayesianAttention(config, key=jax.random.key(0))
        >>> x = jax.random.normal(jax.random.key(1), (5, 16))
        >>> attention(x).shape, attention.posterior(x).weights.shape
        ((5, 16), (2, 5, 5))

    Source: own; X. Fan, S. Zhang, B. Chen, M. Zhou, Bayesian Attention Modules, arXiv
    2010.10604, section 3, for stochastic scores, whose prior there is another.
    """

    qkv: Float[Array, "three_d d"]
    out: Float[Array, "d d"]
    prior: Float[Array, "h d"] | None
    log_slope: Float[Array, " h"] | None
    log_precision: Float[Array, " h"] | None
    head_log_prior: Float[Array, " h"] | None
    log_deviation: Float[Array, " h"] | None
    spread: Float[Array, "d d"] | None
    heads: int = eqx.field(static=True)
    rotary: bool = eqx.field(static=True)
    config: BayesianConfig = eqx.field(static=True)

    def __init__(
        self,
        config: TransformerConfig,
        d: int | None = None,
        *,
        key: Key[Array, ""],
        dtype: DTypeLike | None = None,
    ):
        if not isinstance(config, TransformerConfig):
            raise must("config", "be a TransformerConfig", repr(config))
        if config.norm == "ngpt":
            raise must("norm", "be 'pre', 'post' or 'peri'", repr(config.norm))
        d, dtype = config.width if d is None else d, default_dtype(dtype)
        choices = BayesianConfig() if config.bayesian is None else config.bayesian
        plain = Attention(config, d, key=key, dtype=dtype)
        h = plain.heads
        gated = choices.combine == "gated"
        self.qkv = plain.qkv
        # One head alone is to keep the variance that the sum of all has.
        self.out = h**0.5 * plain.out if gated else plain.out
        zeros = lambda wanted, *shape: jnp.zeros(shape, dtype) if wanted else None
        self.prior = zeros(choices.prior == "learned", h, d)
        slopes = jnp.arange(1, h + 1, dtype=dtype) * (-8 * math.log(2) / h)
        self.log_slope = slopes if choices.prior == "positional" else None
        self.log_precision = zeros(choices.precision == "learned", h)
        self.head_log_prior = zeros(gated, h)
        learned = choices.scores == "stochastic" and choices.learned_deviation
        start = jnp.full(h, math.log(choices.deviation), dtype)
        self.log_deviation = start if learned else None
        self.spread = zeros(choices.spread, d, d)
        self.heads, self.rotary, self.config = h, plain.rotary, choices

    def __call__(
        self,
        x: Tokens,
        mask: Bool[Array, "n n"] | None = None,
        key: Key[Array, ""] | None = None,
        *,
        log_prior: Float[Array, "..."] | None = None,
    ) -> Tokens:
        return self.with_divergence(x, mask, key, log_prior=log_prior)[0]

    def with_divergence(
        self,
        x: Tokens,
        mask: Bool[Array, "n n"] | None = None,
        key: Key[Array, ""] | None = None,
        *,
        log_prior: Float[Array, "..."] | None = None,
    ) -> tuple[Tokens, Float[Array, ""]]:
        """What the call returns, and the divergence of the scores from their prior.

        **Arguments:** as of the call.

        **Returns:** tokens, and the Kullback-Leibler divergence in nats, summed over
        heads and the keys that a token may see, in the mean over tokens; 0 for exact
        scores.
        """
        mask = self._read(x, mask)
        n, d = x.shape[-2:]
        bad = None
        if mask is not None or log_prior is not None:
            # A token that nothing sees may be NaN, which no weight of 0 would stop.
            finite = jnp.all(jnp.isfinite(x), axis=-1)
            x = jnp.where(finite[..., None], x, jnp.zeros_like(x))
            bad = ~finite.reshape(-1, n)
        q, k, v = self._projected(x)
        beta = self._beta(widen(x)[0][0].dtype)
        scaled = (beta[None, :, None, None] * q).astype(x.dtype)
        (logits,), _ = widen(scaled @ jnp.swapaxes(k, -1, -2))
        if self.config.keys == "free":
            logits = logits - _half_squares(k, beta)[..., None, :]
        prior, allowed = self._log_prior(x, mask, log_prior)
        divergence = jnp.zeros((), logits.dtype)
        if self.config.scores == "stochastic":
            noise = None if key is None else jr.normal(key, logits.shape, logits.dtype)
            logits, divergence = self._noisy(logits, prior, allowed, noise)
        joint = jnp.where(allowed, logits + prior, -jnp.inf)
        weights, total, log_sum = _exponentials(joint)
        variance = None
        if self.spread is None:
            mean = jnp.matmul(
                weights.astype(x.dtype), v, preferred_element_type=total.dtype
            )
            mean = mean / total
        else:  # both moments in one product
            (wide,), _ = widen(v)
            moments = weights @ jnp.concatenate([wide, wide * wide], axis=-1)
            mean, second = jnp.split(moments / total, 2, axis=-1)
            variance = jnp.maximum(second - mean * mean, 0)
        if self.head_log_prior is not None:
            if self.config.keys == "unit":  # here the squares tell heads apart
                log_sum = log_sum - _half_squares(k, beta)[..., None]
            heads = self.head_log_prior.astype(log_sum.dtype)[None, :, None, None]
            shares, total, _ = _exponentials(log_sum + heads, axis=1)
            gate = shares / total
            if variance is not None:
                variance = gate * variance + gate * (1 - gate) * mean * mean
            mean = gate * mean
        flat = lambda a: jnp.moveaxis(a.astype(x.dtype), 1, 2).reshape(-1, d)
        y = linear(flat(mean), self.out.astype(x.dtype))
        if variance is not None and self.spread is not None:
            y = y + linear(flat(variance), self.spread.astype(x.dtype))
        y = y.reshape(x.shape)
        if bad is not None:
            seen = jnp.any(allowed & bad[:, None, None, :], axis=(1, 3))
            right = (bad | seen).reshape(*x.shape[:-1], 1)
            y = jnp.where(right, jnp.asarray(jnp.nan, y.dtype), y)
        return y, divergence

    def posterior(
        self,
        x: Float[Array, "n d"],
        mask: Bool[Array, "n n"] | None = None,
        log_prior: Float[Array, "..."] | None = None,
    ) -> HeadPosteriors:
        """What each head infers, with exact scores, about one sequence.

        **Arguments:**

        - `x`: tokens, of shape (n, d).
        - `mask`, `log_prior`: as of the call.

        **Returns:** [`HeadPosteriors`][], with a first axis of heads: those of
        [`posterior`][tfjax.attention.posterior] of its queries, keys and values.
        """
        check_shape("x", x, 2, "(n, d)")
        mask = self._read(x, mask)
        n, h = x.shape[0], self.heads
        q, k, v = (a[0] for a in self._projected(x))
        prior, allowed = self._log_prior(x, mask, log_prior)
        prior = jnp.where(allowed, prior, -jnp.inf)
        prior = jnp.broadcast_to(prior, (1, h, n, n))[0]
        beta = self._beta(widen(x)[0][0].dtype)
        one = lambda q, k, v, beta, prior: posterior(
            q, k, v, beta=beta, log_prior=prior, covariance="diagonal"
        )
        found = jax.vmap(one)(q, k, v, beta, prior)
        some = found.weights > 0
        logs = jnp.log(jnp.where(some, found.weights, 1.0))
        entropy = -jnp.sum(found.weights * logs, axis=-1)
        gate = None
        if self.head_log_prior is not None:
            heads = {"log_prior": prior, "head_log_prior": self.head_log_prior}
            gate = mixture(q, k, v, beta=beta, covariance="none", **heads).gate
        weights, mean, _, log_evidence = found
        variance: Any = found.covariance
        return HeadPosteriors(weights, mean, variance, log_evidence, entropy, gate)

    def _read(self, x, mask):
        """The mask as an array, after a look at both."""
        d = self.out.shape[0]
        array = isinstance(x, jax.Array | np.ndarray)
        right = array and jnp.issubdtype(x.dtype, jnp.floating)
        if not right or x.ndim < 2 or x.shape[-1] != d:
            got = f"{x.dtype} of shape {x.shape}" if array else repr(x)
            raise must("x", f"be numbers of shape (..., n, {d})", got)
        if mask is None:
            return None
        n, mask = x.shape[-2], jnp.asarray(mask)
        if mask.dtype != bool or mask.shape != (n, n):
            got = f"{mask.dtype} of shape {mask.shape}"
            raise must("mask", f"be booleans of shape ({n}, {n})", got)
        return mask

    def _projected(self, x):
        """Queries, keys and values, each of shape (b, h, n, k)."""
        n, d = x.shape[-2:]
        qkv, h = self.qkv.astype(x.dtype), self.heads
        # One product for all sequences: leading axes are folded by hand.
        parts = jnp.split(linear(x.reshape(-1, d), qkv), 3, axis=1)
        q, k, v = (a.reshape(-1, n, h, d // h) for a in parts)
        if self.config.keys == "unit":
            k = ((d // h) ** 0.5 * normalize(widen(k)[0][0])).astype(x.dtype)
        if self.rotary:
            q, k = rotated(q), rotated(k)
        return tuple(jnp.moveaxis(a, 2, 1) for a in (q, k, v))

    def _beta(self, dtype):
        fixed = jnp.full(self.heads, (self.out.shape[0] // self.heads) ** -0.5, dtype)
        if self.log_precision is None:
            return fixed
        return fixed * jnp.exp(self.log_precision.astype(dtype))

    def _log_prior(self, x, mask, given):
        """The logarithm of the prior, and what is permitted; both broadcast.

        It is normalised where that makes a difference: for evidence, and for noise.
        """
        n, h = x.shape[-2], self.heads
        dtype = widen(x)[0][0].dtype
        allowed = jnp.ones((1, 1, 1, n), bool) if mask is None else mask[None, None]
        prior = jnp.zeros((1, 1, 1, n), dtype)
        if self.prior is not None:
            slopes = x.reshape(-1, x.shape[-1]) @ self.prior.astype(x.dtype).T
            slopes = slopes.reshape(-1, n, h).astype(dtype)
            prior = jnp.moveaxis(slopes, 2, 1)[:, :, None]
        if self.log_slope is not None:
            place = jnp.arange(n, dtype=dtype)
            apart = jnp.abs(place[:, None] - place[None, :])
            slopes = jnp.exp(self.log_slope.astype(dtype))
            prior = -slopes[None, :, None, None] * apart[None, None]
        if given is not None:
            given = as_float("log_prior", given)
            if given.shape not in ((n,), (n, n), (h, n, n)):
                rule = f"have shape ({n},), ({n}, {n}) or ({h}, {n}, {n})"
                raise must("log_prior", rule, f"of shape {given.shape}")
            given = given.reshape((1,) * (4 - given.ndim) + given.shape).astype(dtype)
            allowed = allowed & (given != -jnp.inf)
            prior = prior + jnp.where(given == -jnp.inf, 0.0, given)
        if self.head_log_prior is not None or self.config.scores == "stochastic":
            *_, mass = _exponentials(jnp.where(allowed, prior, -jnp.inf))
            prior = prior - jnp.where(mass == -jnp.inf, 0.0, mass)
        return prior, allowed

    def _noisy(self, logits, prior, allowed, noise):
        """Logarithms of stochastic scores, and how far these are from their prior."""
        if self.log_deviation is None:
            s = jnp.full(self.heads, self.config.deviation, logits.dtype)
        else:
            s = jnp.exp(self.log_deviation.astype(logits.dtype))
        s, wanted = s[None, :, None, None], self.config.prior_deviation
        *_, mass = _exponentials(jnp.where(allowed, logits + prior, -jnp.inf))
        centred = logits - jnp.where(mass == -jnp.inf, 0.0, mass)
        divergence = log_normal_divergence(centred, s, wanted)
        shown = jnp.where(allowed, divergence, 0.0)
        total = jnp.sum(shown) / (shown.shape[0] * shown.shape[2])
        return logits if noise is None else logits + s * noise - 0.5 * s * s, total


def log_normal_divergence(
    a: Float[Array, "..."], s: Float[Array, "..."], wanted: float
) -> Float[Array, "..."]:
    """Of a log-normal of mean exp(a) from one of mean 1, in nats.

    `s` and `wanted` are the deviations of their logarithms.
    """
    apart = a - 0.5 * s * s + 0.5 * wanted**2
    return jnp.log(wanted / s) - 0.5 + (s * s + apart * apart) / (2 * wanted**2)


def _half_squares(k, beta):
    (wide,), _ = widen(k)
    return 0.5 * beta[None, :, None] * jnp.sum(wide * wide, axis=-1)


def _exponentials(logits, axis=-1):
    """Exponentials, what to divide them by, and the logarithm of their sum.

    Where all are -inf these are 0, 1 and -inf, with zero gradient.
    """
    top = jax.lax.stop_gradient(jnp.max(logits, axis=axis, keepdims=True))
    finite = jnp.where(top == -jnp.inf, 0.0, top)
    weights = jnp.exp(logits - finite)
    total = jnp.sum(weights, axis=axis, keepdims=True)
    safe = jnp.where(total > 0, total, 1.0)
    return weights, safe, top + jnp.log(safe)
