"""Real spherical harmonics up to a degree, and a grid that integrates products."""

import functools
import math
from typing import Any, NamedTuple

import numpy as np

from .._core import count, must


class Harmonics(NamedTuple):
    """The harmonics on the grid: numpy arrays in float64, h = (L + 1)^2 of them.

    `points`, of shape (p, 3): Gauss-Legendre in the height, even in the longitude.
    `weights`, of shape (p,): of the uniform probability; sums of products of three
    harmonics are exact.
    `values`, of shape (p, h): orthonormal for these weights; the zeroth is 1.
    `slopes`, of shape (2, p, h): derivatives along the meridian and the parallel.
    `degrees`, of shape (h,): sorted; within a degree the orders run from -l to l.
    """

    points: np.ndarray
    weights: np.ndarray
    values: np.ndarray
    slopes: np.ndarray
    degrees: np.ndarray


@functools.cache
def harmonics(degree: int) -> Harmonics:
    """The harmonics up to `degree`, on their grid."""
    # Triple products have degree 3 L: exact with these many nodes.
    heights, mass = np.polynomial.legendre.leggauss(3 * degree // 2 + 1)
    turns = 3 * degree + 1
    phi = 2 * np.pi * np.arange(turns) / turns
    z, azimuth = (a.ravel() for a in np.meshgrid(heights, phi, indexing="ij"))
    rho = np.sqrt(1 - z**2)
    points = np.stack([rho * np.cos(azimuth), rho * np.sin(azimuth), z], axis=1)
    weights = np.repeat(mass / 2, turns) / turns
    size = (degree + 1) ** 2
    values, slopes = np.zeros((z.size, size)), np.zeros((2, z.size, size))
    legendre = _legendre(degree, z, rho)
    for m in range(degree + 1):
        scale = 1.0 if m == 0 else math.sqrt(2)
        cosine, sine = scale * np.cos(m * azimuth), scale * np.sin(m * azimuth)
        for k in range(m, degree + 1):
            p = legendre[k, m]
            # d/dtheta by the ratio to the harmonic of one degree less.
            ratio = math.sqrt((k * k - m * m) * (2 * k + 1) / (2 * k - 1)) if k else 0.0
            below = legendre[k - 1, m] if k > m else 0.0
            along = (k * z * p - ratio * below) / rho
            middle = k * k + k
            for sign, wave, turned in ((1, cosine, -sine), (-1, sine, cosine)):
                if m or sign > 0:
                    column = middle + sign * m
                    values[:, column] = p * wave
                    slopes[0, :, column] = along * wave
                    slopes[1, :, column] = m * p / rho * turned
    degrees = np.repeat(np.arange(degree + 1), 2 * np.arange(degree + 1) + 1)
    return Harmonics(points, weights, values, slopes, degrees)


def _legendre(degree, z, rho):
    """Associated Legendre functions whose squares have mean 1, as `[k, m]`."""
    table = np.zeros((degree + 1, degree + 1, z.size))
    table[0, 0] = 1.0
    for m in range(1, degree + 1):
        table[m, m] = math.sqrt((2 * m + 1) / (2 * m)) * rho * table[m - 1, m - 1]
    for m in range(degree):
        table[m + 1, m] = math.sqrt(2 * m + 3) * z * table[m, m]
        for k in range(m + 2, degree + 1):
            a = math.sqrt((4 * k * k - 1) / (k * k - m * m))
            b = math.sqrt(((k - 1) ** 2 - m * m) / (4 * (k - 1) ** 2 - 1))
            table[k, m] = a * (z * table[k - 1, m] - b * table[k - 2, m])
    return table


@functools.cache
def kernel_rule(degree: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Nodes t, and the rows that give `lambda_l` and `lambda_l / beta` for l > 0.

    `lambda_l` is half the integral of e^(beta t) P_l; by parts, with Legendre's
    equation, the second form has no division by beta.
    """
    nodes, weights = np.polynomial.legendre.leggauss(2 * degree + 64)
    series = np.eye(degree + 1)
    polynomial = np.polynomial.legendre
    p = np.stack([polynomial.legval(nodes, c) for c in series])
    slope = np.stack([polynomial.legval(nodes, polynomial.legder(c)) for c in series])
    k = np.arange(degree + 1.0)
    scale = np.where(k > 0, k * (k + 1), 1.0)
    divided = 0.5 * weights * (1 - nodes**2) * slope / scale[:, None]
    return nodes, 0.5 * weights * p, divided


@functools.cache
def zonal(degree: int) -> tuple[np.ndarray, np.ndarray]:
    """The harmonics of order 0 and degrees 1, ..., L, by the height alone.

    Weights of the uniform probability on the nodes of `kernel_rule`, of shape (p,), and
    values, of shape (p, L).
    """
    nodes, weights = np.polynomial.legendre.leggauss(2 * degree + 64)
    k = np.arange(degree + 1)
    values = np.polynomial.legendre.legvander(nodes, degree) * np.sqrt(2 * k + 1)
    return weights / 2, values[:, 1:]


def degree_of(name: str, coefficients: Any) -> int:
    """L for (L + 1)^2 coefficients."""
    shape = np.shape(coefficients)
    side = math.isqrt(shape[0]) if len(shape) == 1 else 0
    if side < 2 or side**2 != shape[0]:
        rule = "have shape ((L + 1)^2,) for a degree L of at least 1"
        raise must(name, rule, f"of shape {shape}")
    return side - 1


def check_degree(degree: Any) -> int:
    """A degree that fits into memory as dense matrices."""
    degree = count("degree", degree)
    if degree > 64:
        raise must("degree", "be at most 64 (the transforms are dense)", degree)
    return degree
