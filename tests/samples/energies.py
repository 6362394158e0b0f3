"""Samples of the energies."""

from tfjax import energies

from .base import DTYPE, D, Sample, random
from .circle import angles, shift


def energy_samples(energy, variants):
    def rotate(params, r):
        turned = {k: r @ w @ r.T for k, w in params.items() if k == "bilinear"}
        return params | turned

    def sample(options):
        static = {k: v for k, v in options.items() if isinstance(v, bool)}
        arrays = {k: v for k, v in options.items() if k not in static}
        call = lambda x, params: energy(x, **params, **static)
        return Sample(call, arrays, False, rotate)

    return {name: sample(options) for name, options in variants.items()}


BILINEAR = random(D, D, seed=6)

ENERGIES = {
    "interaction_energy": energy_samples(
        energies.interaction_energy,
        {
            "plain": {"beta": DTYPE.type(2.0)},
            "centred": {"beta": DTYPE.type(0.7), "bilinear": BILINEAR, "centred": True},
        },
    ),
    "log_interaction_energy": energy_samples(
        energies.log_interaction_energy,
        {
            "plain": {"beta": DTYPE.type(1.3)},
            "small beta": {"beta": DTYPE.type(0.1), "bilinear": BILINEAR},
        },
    ),
    "riesz_energy": {
        "thomson": Sample(
            lambda x, params: energies.riesz_energy(x, params["s"]),
            {"s": DTYPE.type(1.0)},
            False,
            scalar=lambda params: params["s"],
        )
    },
    "kuramoto_energy": {
        "plain": Sample(
            lambda theta, params: energies.kuramoto_energy(theta, params["coupling"]),
            {"coupling": DTYPE.type(1.5)},
            False,
            state=angles,
            turn=shift,
            scalar=lambda params: params["coupling"],
        )
    },
}
