"""Samples of the fields of matrices."""

import numpy as np

from tfjax import fields

from .base import DTYPE, D, N, Sample, random, rotated


def matrix(seed=0):
    """A symmetric state of shape (n, n)."""
    x = random(N, N, seed=seed)
    return (0.5 * (x + x.T)).astype(DTYPE)


def larger(r):
    """The rotation of R^d that fits, acting on the first coordinates of R^n."""
    turn = np.eye(N, dtype=DTYPE)
    turn[:D, :D] = r
    return turn


def congruent(x, r):
    return larger(r) @ x @ larger(r).T


def turn_params(params, r):
    turned = {k: congruent(w, r) for k, w in params.items() if np.ndim(w) == 2}
    return params | turned


def square_sample(call, params, rotate=turn_params):
    """A field of square matrices: other coordinates conjugate it."""
    return Sample(
        call,
        params | {"rate": DTYPE.type(0.7)},
        True,
        rotate,
        permute=None,
        state=matrix,
        turn=congruent,
        turn_velocity=congruent,
        scalar=lambda params: params["rate"],
    )


def rate(H, params):
    return params["rate"].astype(H.dtype)


def bracket(H, params):
    return fields.Scaled(fields.lie_bracket(params["W"]), params["rate"])(0.25, H)


def forced(H, params):
    force = lambda H, args: -rate(H, args) * H @ H
    return fields.lie_bracket(params["W"], force)(0.25, H, params)


def pair(L, params):
    """A Lax pair that any change of coordinates keeps."""

    def B(L, args):
        W = args["W"].astype(L.dtype)
        return rate(L, args) * (W + L @ W @ L)

    return fields.lax_pair(B)(0.25, L, params)


def sort(H, params):
    return fields.Scaled(fields.double_bracket(params["W"]), params["rate"])(0.25, H)


def lattice(L, params):
    return fields.Scaled(fields.toda, params["rate"])(0.25, L)


def both_sides(H, params):
    A, B = params["rate"] * params["A"], params["B"]
    return fields.rectangular_bracket(A, B)(0.25, H)


def of_the_state(H, params):
    A = lambda H, args: -rate(H, args) * H @ H.T
    B = lambda H, args: args["B"].astype(H.dtype)
    return fields.rectangular_bracket(A, B)(0.25, H, params)


def rectangular(call, **more):
    return Sample(
        call,
        more | {"B": random(D, D, seed=32), "rate": DTYPE.type(0.7)},
        True,
        lambda params, r: params | {"B": rotated(params["B"], r)},
        permute_sides,
        scalar=lambda params: params["rate"],
    )


def permute_sides(params, order):
    return params | {k: w[order][:, order] for k, w in params.items() if k == "A"}


GENERAL = {"W": random(N, N, seed=33)}

FIELDS = {
    "lie_bracket": {
        "plain": square_sample(bracket, GENERAL),
        "force": square_sample(forced, GENERAL),
    },
    "rectangular_bracket": {
        "matrices": rectangular(both_sides, A=random(N, N, seed=31)),
        "functions": rectangular(of_the_state),
    },
    "lax_pair": {"parameters": square_sample(pair, GENERAL)},
    "double_bracket": {"plain": square_sample(sort, {"W": matrix(34)})},
    "toda": {"plain": square_sample(lattice, {}, rotate=None)},
}
