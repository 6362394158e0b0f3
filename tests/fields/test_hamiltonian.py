"""Hamilton's equations: closed forms, the balance of power, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tfjax.energies import AttentionPotential, Hamiltonian
from tfjax.fields import hamiltonian


def random(*shape, seed=0):
    rng = np.random.default_rng((seed, *shape))
    return jnp.asarray(rng.standard_normal(shape))


SHAPE = (4, 3)
Q, P = random(*SHAPE, seed=1), random(*SHAPE, seed=2)
DRAG = random(3, 3, seed=3)
DRAG = DRAG @ DRAG.T
TWIST = jnp.array([[0.0, 1.0, 0.0], [-1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])


def mass_of(q):
    return (1 + jnp.mean(q**2)) * (DRAG + jnp.eye(3))


def test_the_velocity_is_p_over_m_and_the_force_minus_the_gradient(tol):
    stiffness = jnp.array([1.0, 2.0, 3.0])
    H = Hamiltonian(lambda q: 0.5 * jnp.sum(stiffness[None] * q**2), mass=2.0)
    dq, dp = hamiltonian(H)(0.0, (Q, P))
    np.testing.assert_allclose(dq, P / 2, rtol=tol.identity)
    np.testing.assert_allclose(dp, -stiffness[None] * Q, rtol=tol.identity)


def test_args_are_the_last_argument_of_every_part(tol):
    H = Hamiltonian(
        lambda q, k: 0.5 * k * jnp.sum(q**2), lambda q, k: 1 + 0 * q[0, 0] + k
    )
    dq, dp = hamiltonian(H)(0.0, (Q, P), jnp.asarray(3.0))
    np.testing.assert_allclose(dq, P / 4, rtol=tol.identity)
    np.testing.assert_allclose(dp, -3 * Q, rtol=tol.identity, atol=tol.identity)
    general = hamiltonian(lambda q, p, k: k * jnp.sum(q * p))
    dq, dp = general(0.0, (Q, P), jnp.asarray(3.0))
    np.testing.assert_allclose(dq, 3 * Q, rtol=tol.identity)
    np.testing.assert_allclose(dp, -3 * P, rtol=tol.identity)


# The damping as it is given, and as a matrix.
DAMPING = {
    "none": (None, np.zeros((3, 3))),
    "scalar": (0.7, 0.7 * np.eye(3)),
    "diagonal": (np.array([0.1, 0.0, 2.0]), np.diag([0.1, 0.0, 2.0])),
    "matrix": (DRAG + TWIST, np.asarray(DRAG + TWIST)),
}


@pytest.mark.parametrize("mass", [None, mass_of], ids=["mass 1", "mass of q"])
@pytest.mark.parametrize("kind", DAMPING)
def test_the_energy_changes_by_the_power_of_the_ports(mass, kind, tol):
    """dH/dt = <q', u - D q'>, at any state and time."""
    damping, matrix = DAMPING[kind]
    H = Hamiltonian(AttentionPotential(1.3, confinement=0.5), mass)
    control = lambda t, y, args: jnp.sin(t) * y[1] + args
    field = hamiltonian(lambda q, p, args: H(q, p), damping=damping, control=control)
    push = random(*SHAPE, seed=4)
    velocity, force = field(jnp.asarray(0.4), (Q, P), push)
    _, rate = jax.jvp(H, (Q, P), (velocity, force))
    v, u = np.asarray(velocity), np.sin(0.4) * np.asarray(P) + np.asarray(push)
    power = v * (u - v @ matrix.T)
    scale = np.sum(np.abs(power))
    assert scale > 1
    assert abs(float(rate) - np.sum(power)) < 20 * tol.identity * scale


@pytest.mark.parametrize("kind", DAMPING)
def test_the_damping_takes_d_times_the_velocity_from_the_force(kind, tol):
    damping, matrix = DAMPING[kind]
    H = Hamiltonian(lambda q: 0.5 * jnp.sum(q**2), mass=2.0)
    dq, dp = hamiltonian(H, damping=damping)(0.0, (Q, P))
    expected = -np.asarray(Q) - np.asarray(dq) @ matrix.T
    np.testing.assert_allclose(dp, expected, rtol=0, atol=10 * tol.identity)


def test_without_ports_the_field_is_orthogonal_to_the_gradient_of_h(tol):
    H = Hamiltonian(AttentionPotential(1.3, DRAG), mass_of)
    _, rate = jax.jvp(H, (Q, P), hamiltonian(H)(0.0, (Q, P)))
    assert abs(float(rate)) < 100 * tol.identity


def test_it_says_whether_it_is_separable():
    H = Hamiltonian(jnp.sum)
    assert hamiltonian(H).separable is True
    assert hamiltonian(Hamiltonian(jnp.sum, mass_of)).separable is False
    assert hamiltonian(H, damping=1.0).separable is False
    assert hamiltonian(H, control=lambda t, y, args: y[0]).separable is None
    assert hamiltonian(lambda q, p: jnp.sum(q * p)).separable is None


def test_the_potential_of_attention_does_not_mind_parameters_of_the_control(tol):
    H = Hamiltonian(AttentionPotential(confinement=2.0))
    push = hamiltonian(H, control=lambda t, y, args: args * jnp.ones_like(y[0]))
    (dq, dp), (eq, ep) = (
        push(0.0, (Q, P), jnp.asarray(0.5)),
        hamiltonian(H)(0.0, (Q, P)),
    )
    np.testing.assert_allclose(dq, eq, atol=tol.identity)
    np.testing.assert_allclose(dp, ep + 0.5, atol=10 * tol.identity)
    assert hamiltonian(H).separable is True


def test_a_matrix_of_damping_may_have_a_skew_part():
    hamiltonian(jnp.sum, damping=[[1.0, 2.0], [-2.0, 0.0]])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: hamiltonian(3.0), "`H` must be a scalar function"),
        (lambda: hamiltonian(jnp.sum, control=1.0), "`control` must be a functi"),
        (lambda: hamiltonian(jnp.sum, damping=-1.0), "`damping` must be finite"),
        (
            lambda: hamiltonian(jnp.sum, damping=[[1.0, 2.0], [2.0, 1.0]]),
            "`damping` must be finite, and take energy",
        ),
        (
            lambda: hamiltonian(lambda q, p: q)(0.0, (Q, P)),
            r"`H` must return a scalar, but was an array of shape \(4, 3\)",
        ),
        (
            lambda: hamiltonian(Hamiltonian(jnp.sum))(0.0, (Q, P[0])),
            "`y` must be a pair",
        ),
        (
            lambda: hamiltonian(Hamiltonian(jnp.sum))(0.0, [Q, P]),
            "`y` must be a pair",
        ),
        (
            lambda: hamiltonian(
                Hamiltonian(jnp.sum), control=lambda t, y, args: y[0][0]
            )(0.0, (Q, P)),
            r"`control` must return a force of shape \(4, 3\)",
        ),
        (
            lambda: hamiltonian(Hamiltonian(jnp.sum), damping=jnp.eye(2))(0.0, (Q, P)),
            "`damping` must be a scalar, or of shape",
        ),
    ],
)
def test_bad_input_is_named(make, message, unchecked):
    with pytest.raises(ValueError, match=message):
        make()
