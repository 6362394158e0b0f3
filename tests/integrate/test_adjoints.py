"""Adjoints by need: values against closed forms, and errors that name the option."""

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tfjax
from tfjax.integrate import forward_mode, reverse_mode, second_order
from tfjax.integrate._modes import Refused, mark


def end(y0, rate=1.0, solve=tfjax.solve, **kwargs):
    """y0 exp(-rate)."""
    kwargs = {"t1": 1.0, "dt0": 0.125, "solver": dfx.Heun()} | kwargs
    return solve(lambda t, y, a: -a * y, y0, rate, **kwargs).ys[-1]


def closed_over(rate):
    field = lambda t, y, args: -rate * y
    return tfjax.solve(field, jnp.asarray(1.0), t1=1.0, dt0=0.125).ys[-1]


def directional(function):
    return lambda y: jax.jvp(function, (y,), (y,))


def linear(function):
    return lambda y: jax.linearize(function, y)[1](y)


def of_ensemble(y0):
    return jnp.sum(end(y0[None], solve=tfjax.solve_ensemble, in_axes=(0, None)))


FORWARD = r"`adjoint` must be tfjax.integrate.forward_mode\(\) for forward mode \(.*"
SECOND = r"`adjoint` must be tfjax.integrate.second_order\(\) for second deriv.*"
REVERSE = r"`adjoint` must be tfjax.integrate.reverse_mode\(\) for reverse mode \(.*"
TWICE = r"`adjoint` must be diffrax.DirectAdjoint\(\) for reverse over reverse mode.*"
DEFAULT = "but was RecursiveCheckpointAdjoint"


class TestErrors:
    """Every way to ask for a mode that is not offered names the one that offers it."""

    @pytest.mark.parametrize("compile", [lambda f: f, jax.jit])
    @pytest.mark.parametrize("derivative", [jax.jacfwd, directional, linear])
    @pytest.mark.parametrize(
        "function", [end, of_ensemble, lambda y: end(y, ts=[0.5, 1.0])]
    )
    def test_forward_mode_through_the_default(self, function, derivative, compile):
        with pytest.raises(ValueError, match=FORWARD + DEFAULT):
            compile(derivative(function))(jnp.asarray(1.0))

    @pytest.mark.parametrize("order", [jax.vmap, lambda f: directional(jax.vmap(f))])
    def test_forward_mode_and_vmap(self, order):
        function = directional(end) if order is jax.vmap else end
        with pytest.raises(ValueError, match=FORWARD + DEFAULT):
            order(function)(jnp.ones(3))

    def test_forward_mode_by_a_parameter_and_by_a_closure(self):
        for function in (lambda rate: end(jnp.asarray(1.0), rate), closed_over):
            with pytest.raises(ValueError, match=FORWARD + DEFAULT):
                jax.jacfwd(function)(1.0)

    def test_forward_mode_through_other_adjoints_of_reverse_mode(self):
        for adjoint in (second_order(), dfx.BacksolveAdjoint(), reverse_mode(3)):
            with pytest.raises(ValueError, match=FORWARD):
                jax.jacfwd(lambda y, a=adjoint: end(y, adjoint=a))(jnp.asarray(1.0))

    def test_second_derivatives_through_the_default(self):
        for kwargs in ({}, {"adjoint": reverse_mode(4)}, {"ts": [0.5, 1.0]}):
            with pytest.raises(ValueError, match=SECOND + DEFAULT):
                jax.hessian(lambda y, k=kwargs: end(y, **k) ** 2)(jnp.asarray(1.0))

    def test_reverse_mode_through_forward_mode(self):
        function = lambda y: end(y, adjoint=forward_mode())
        for derivative in (jax.grad(function), jax.jit(jax.grad(function))):
            with pytest.raises(ValueError, match=REVERSE + "but was ForwardMode"):
                derivative(jnp.asarray(1.0))

    def test_second_derivatives_through_forward_mode_name_the_cure(self):
        function = lambda y: end(y, adjoint=forward_mode()) ** 2
        for derivative in (jax.hessian(function), jax.jit(jax.hessian(function))):
            with pytest.raises(ValueError, match=r"second_order\(\) for jax.hessian"):
                derivative(jnp.asarray(1.0))

    @pytest.mark.slow
    def test_reverse_over_reverse_mode(self):
        for adjoint in (second_order(), forward_mode()):
            function = lambda y, a=adjoint: end(y, adjoint=a) ** 2
            inner = jax.jacfwd if adjoint == forward_mode() else jax.grad
            text = REVERSE if adjoint == forward_mode() else TWICE
            with pytest.raises(ValueError, match=text):
                jax.grad(inner(function))(jnp.asarray(1.0))

    @pytest.mark.usefixtures("unchecked")
    @pytest.mark.parametrize("make", [reverse_mode, second_order])
    @pytest.mark.parametrize("checkpoints", [0, -1, 2.5, "many", True])
    def test_bad_checkpoints_are_named(self, make, checkpoints):
        with pytest.raises(
            ValueError, match="`checkpoints` must be a positive integer"
        ):
            make(checkpoints)


@pytest.mark.slow
class TestValues:
    """What is offered is right wherever it stands; y exp(-1) in all of them."""

    EXACT = np.float64(1 - 1 / 8 + 1 / 128) ** 8  # eight steps of Heun

    @pytest.mark.parametrize("checkpoints", [1, 3])
    def test_reverse_mode_with_any_checkpoints(self, checkpoints):
        function = lambda y: end(y, adjoint=reverse_mode(checkpoints))
        found = jax.grad(function)(jnp.asarray(2.0))
        np.testing.assert_allclose(found, self.EXACT, rtol=1e-6)

    @pytest.mark.parametrize(
        "transform",
        [
            lambda f: jax.grad(lambda ys: jnp.sum(jax.vmap(f)(ys))),
            lambda f: jax.vmap(jax.grad(jax.checkpoint(f))),
        ],
    )
    def test_reverse_mode_within_other_transformations(self, transform):
        found = transform(end)(jnp.ones(3))
        np.testing.assert_allclose(found, self.EXACT, rtol=1e-6)

    @pytest.mark.parametrize("compile", [lambda f: f, jax.jit])
    def test_an_adjoint_equation_solved_back_in_time(self, compile):
        function = lambda y, a: end(y, a, adjoint=dfx.BacksolveAdjoint())
        slopes = jax.grad(compile(function), (0, 1))(jnp.asarray(2.0), jnp.asarray(1.0))
        np.testing.assert_allclose(slopes[0], self.EXACT, rtol=1e-6)
        # Of order two, as the solver is.
        np.testing.assert_allclose(slopes[1], -2 * np.exp(-1.0), rtol=2e-2)

    @pytest.mark.slow
    def test_reverse_mode_in_a_scan_where_some_tangents_are_zero(self):
        """y <- y exp(-a y1): the tangent of the first y is zero, of the next not."""

        def total(rate):
            step = lambda y, _: (end(y, rate), None)
            return jax.lax.scan(step, jnp.asarray(1.0), None, length=3)[0]

        found = jax.grad(total)(jnp.asarray(1.0))
        np.testing.assert_allclose(found, -3 * np.exp(-3.0), rtol=1e-1)
        h = 1e-2
        difference = (total(1.0 + h) - total(1.0 - h)) / (2 * h)
        np.testing.assert_allclose(found, difference, rtol=1e-3)

    def test_forward_mode_nests(self):
        function = lambda y: end(y, adjoint=forward_mode()) ** 2
        found = jax.jacfwd(jax.jacfwd(function))(jnp.asarray(3.0))
        np.testing.assert_allclose(found, 2 * self.EXACT**2, rtol=1e-6)

    def test_second_order_with_records_and_through_an_ensemble(self):
        kwargs = {"adjoint": second_order(), "ts": [0.25, 1.0], "in_axes": (0, None)}
        kwargs |= {"solve": tfjax.solve_ensemble}
        function = lambda y: jnp.sum(end(y[None], **kwargs)[-1] ** 2)
        found = jax.hessian(function)(jnp.ones(2))
        np.testing.assert_allclose(found, 2 * self.EXACT**2 * np.eye(2), atol=1e-6)


class TestMarks:
    """The identity that refuses, by itself."""

    REFUSED = Refused(forward="no forward", then=Refused(reverse="not twice"))

    def square(self, x):
        kept, number = mark((x, 3), self.REFUSED)
        return jnp.sum(kept**2) * number

    def test_it_is_the_identity_for_values_and_reverse_mode(self):
        x = jnp.arange(3.0)
        assert self.square(x) == jax.jit(self.square)(x) == 15
        np.testing.assert_array_equal(jax.grad(self.square)(x), 6 * x)
        rows = jnp.stack([x, x + 1])
        found = jax.jit(jax.vmap(jax.grad(self.square)))(rows)
        np.testing.assert_array_equal(found, 6 * rows)

    def test_it_keeps_integers_and_arrays_that_are_not_differentiated(self):
        def function(x, y):
            x, y, n = mark((x, y, jnp.asarray(2)), self.REFUSED)
            return x * y * n.astype(x.dtype)

        x, y = jnp.asarray(2.0), jnp.asarray(3.0)
        assert jax.grad(function)(x, y) == 6
        assert jax.grad(function, 1)(x, y) == 4

    def test_it_refuses_what_it_says(self):
        x = jnp.arange(3.0)
        for derivative in (jax.jacfwd, jax.jit, jax.vmap):
            forward = directional(self.square)
            asked = (
                jax.jacfwd(self.square)
                if derivative is jax.jacfwd
                else derivative(forward)
            )
            with pytest.raises(ValueError, match="no forward"):
                asked(x if derivative is not jax.vmap else x[None])
        jax.hessian(self.square)(x)
        with pytest.raises(ValueError, match="not twice"):
            jax.grad(lambda x: jnp.sum(jax.grad(self.square)(x) ** 2))(x)
