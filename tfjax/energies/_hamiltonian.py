"""Hamiltonians of positions and momenta, and the potential whose force is attention."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from .._core import as_float, check_shape, is_concrete, matmul, must, widen
from ..attention import log_sum_exp


def _mass(value: Any) -> Any:
    if value is None or callable(value):
        return value
    mass = as_float("mass", value)
    if is_concrete(mass) and not _is_positive(np.asarray(mass, np.float64)):
        rule = "be finite and positive, and symmetric where it is a matrix"
        raise must("mass", rule, np.asarray(mass))
    return mass


def _is_positive(mass: np.ndarray) -> bool:
    if not np.all(np.isfinite(mass)):
        return False
    if mass.ndim < 2 or mass.shape[-1] != mass.shape[-2]:
        return bool(np.all(mass > 0))  # the call refuses shapes that do not fit
    symmetric = np.allclose(mass, np.swapaxes(mass, -1, -2), rtol=1e-5, atol=0)
    return symmetric and bool(np.all(np.linalg.eigvalsh(mass) > 0))


class Hamiltonian(eqx.Module):
    r"""The energy of positions q and momenta p: kinetic and potential.

    $$H(q, p) = \tfrac12 \langle p, M^{-1} p \rangle + \Phi(q)$$

    It is separable unless the mass depends on the position. Any other function of
    (q, p) is a Hamiltonian to [`hamiltonian`][tfjax.fields.hamiltonian]
    too; this class is for those with mass.

    **Arguments:**

    - `potential`: the function Phi of q, which returns a scalar; it may be an
      `eqx.Module` with leaves of its own, such as an [`AttentionPotential`][].
    - `mass`: a scalar; the diagonal of M, of shape (d,); symmetric positive definite
      matrices M, of shape (..., d, d), which act on the last axis of p; or a function
      of q that returns one of these. 1 where None.
    - `kinetic`: a function of p that returns a scalar, in place of the mass.

    **Arguments of the call:** `q` and `p`, of one shape, and `args`. Where `args` is
    not None, it is the last argument of every function that the Hamiltonian is made of.

    **Returns, when called:** the energy, a scalar in the dtype of q and p.

    **Raises:** ValueError where a part is of another kind, where the mass is not
    positive, or, when called, where shapes do not fit or a part returns no scalar.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.energies import Hamiltonian
        >>> spring = lambda q: 0.5 * jnp.sum(q**2)
        >>> H = Hamiltonian(spring, mass=2.0)
        >>> float(H(jnp.array([1.0]), jnp.array([2.0])))
        1.5

    Source: E. Hairer, C. Lubich, G. Wanner, Geometric Numerical Integration,
    section VI.1.
    """

    potential: Callable[..., Any]
    mass: Any = eqx.field(default=None, converter=_mass)
    kinetic: Callable[..., Any] | None = None

    def __check_init__(self):
        if not callable(self.potential):
            raise must("potential", "be a scalar function of q", repr(self.potential))
        if self.kinetic is not None and not callable(self.kinetic):
            raise must("kinetic", "be a scalar function of p", repr(self.kinetic))
        if self.kinetic is not None and self.mass is not None:
            raise must("mass", "be None where kinetic is given", "given too")

    @property
    def separable(self) -> bool:
        """Whether H is a function of p plus one of q."""
        return not callable(self.mass)

    def __call__(
        self, q: Float[ArrayLike, "..."], p: Float[ArrayLike, "..."], args: Any = None
    ) -> Float[Array, ""]:
        q, p = as_float("q", q), as_float("p", p)
        if q.shape != p.shape:
            rule = f"have the shape {q.shape} of q"
            raise must("p", rule, f"of shape {p.shape}")
        (q, p), dtype = widen(q, p)
        more = () if args is None else (args,)
        if self.kinetic is None:
            kinetic = 0.5 * jnp.sum(p * self._velocity(q, p, more))
        else:
            kinetic = _scalar("kinetic", self.kinetic(p, *more))
        potential = _scalar("potential", self.potential(q, *more))
        return (kinetic + potential).astype(dtype)

    def _velocity(self, q, p, more):
        """M^-1 p."""
        if self.mass is None:
            return p
        mass = self.mass(q, *more) if callable(self.mass) else self.mass
        mass = as_float("mass", mass).astype(p.dtype)
        d = p.shape[-1] if p.ndim else None
        if mass.ndim == 0:
            return p / mass
        if mass.shape == (d,):
            return p / jnp.broadcast_to(mass, p.shape)
        fits = mass.shape[-2:] == (d, d) and mass.ndim - 2 <= p.ndim - 1
        if not fits or mass.shape[:-2] not in ((), p.shape[:-1]):
            rule = f"be a scalar, or of shape ({d},) or (..., {d}, {d})"
            raise must("mass", rule, f"of shape {mass.shape}")
        if mass.ndim == 2:
            rows = p.reshape(-1, d)
            return jnp.linalg.solve(mass, rows.T).T.reshape(p.shape)
        return jnp.linalg.solve(mass, p[..., None])[..., 0]


def _scalar(name: str, value: Any) -> Any:
    if jnp.shape(value) != ():
        raise must(name, "return a scalar", f"an array of shape {jnp.shape(value)}")
    return value


def _nonzero(value: Any) -> Array:
    beta = as_float("beta", value)
    if is_concrete(beta) and not np.all(np.isfinite(beta) & (np.asarray(beta) != 0)):
        raise must("beta", "be finite and not 0", np.asarray(beta))
    return beta


class AttentionPotential(eqx.Module):
    r"""The potential in which tokens attract each other by attention, both ways.

    $$\Phi(q) = -\frac{1}{2 \beta} \sum_i \log \sum_j
      e^{\beta \langle B q_i, q_j \rangle} + \frac{c}{2} \sum_i |q_i|^2$$

    With P the softmax weights of the logits, the force is

    $$-\nabla_{q_i} \Phi = \tfrac12 \sum_j P_{ij} B^\top q_j
      + \tfrac12 \sum_j P_{ji} B q_j - c \, q_i$$

    Token i gathers as a query, and is gathered as a key. Attention has the first term
    alone, which is the gradient of nothing. The potential is bounded below where
    `c > (1 + sqrt(n)) |B| / 2`, with the spectral norm.

    **Arguments:**

    - `beta`: inverse temperature, a scalar, not 0.
    - `bilinear`: the matrix B, of shape (d, d); the identity where None.
    - `confinement`: the strength c of a spring that holds the tokens, a scalar.
    - `chunk_size`: how many queries are taken at a time, so that memory is O(n); all at
      once where None.

    **Arguments of the call:** `q`, tokens of shape (n, d); and `args`, which does not
    matter: a Hamiltonian called with parameters hands them to all its parts.

    **Returns, when called:** the potential, a scalar in the dtype of `q`.

    **Raises:** ValueError where shapes do not fit or beta is 0.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.energies import AttentionPotential
        >>> potential = AttentionPotential(beta=1.0)
        >>> energy, force = potential.with_force(jnp.array([[1.0], [1.0]]))
        >>> f"{energy:.6f}", force.tolist()
        ('-1.693147', [[1.0], [1.0]])

    Source: B. Hoover et al., Energy Transformer, arXiv 2302.07253, section 2, with one
    head; the confinement is own.
    """

    beta: Float[Array, "..."] = eqx.field(default=1.0, converter=_nonzero)
    bilinear: Float[Array, "..."] | None = eqx.field(
        default=None,
        converter=lambda b: None if b is None else as_float("bilinear", b),
    )
    confinement: Float[Array, "..."] = eqx.field(
        default=0.0, converter=lambda c: as_float("confinement", c)
    )
    chunk_size: int | None = eqx.field(default=None, static=True)

    def __call__(
        self, q: Float[ArrayLike, "n d"], args: Any = None
    ) -> Float[Array, ""]:
        q = as_float("q", q)
        check_shape("q", q, 2, "(n, d)")
        (q,), dtype = widen(q)
        beta = self.beta.astype(q.dtype)
        for name, scalar in (("beta", beta), ("confinement", self.confinement)):
            if scalar.ndim:
                raise must(name, "be a scalar", f"of shape {scalar.shape}")
        queries, d = q, q.shape[1]
        if self.bilinear is not None:
            bilinear = self.bilinear.astype(q.dtype)
            if bilinear.shape != (d, d):
                rule = f"have shape ({d}, {d})"
                raise must("bilinear", rule, f"of shape {bilinear.shape}")
            queries = matmul(q, bilinear.T)
        logs = log_sum_exp(queries, q, beta=beta, chunk_size=self.chunk_size)
        spring = 0.5 * self.confinement.astype(q.dtype) * jnp.sum(q * q)
        return (spring - 0.5 * jnp.sum(logs) / beta).astype(dtype)

    def with_force(
        self, q: Float[ArrayLike, "n d"]
    ) -> tuple[Float[Array, ""], Float[Array, "n d"]]:
        """The potential and the force, from one pass: `(Phi(q), -grad Phi(q))`."""
        energy, gradient = jax.value_and_grad(self.__call__)(as_float("q", q))
        return energy, -gradient
