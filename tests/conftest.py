"""Set-up of every test: strict promotion, two virtual CPU devices, fixed keys."""

import itertools
import zlib

import jax
import jax.random as jr
import jaxtyping
import pytest
from hypothesis import settings
from tolerances import Tolerances, tolerances


jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_num_cpu_devices", 2)
# Hypothesis: the same examples in every run, however slow the first compilation is.
settings.register_profile("tfjax", derandomize=True, deadline=None, max_examples=25)
settings.load_profile("tfjax")


@pytest.fixture
def getkey(request):
    """A function that returns a fresh key per call, the same ones in every run."""
    root, count = jr.key(zlib.crc32(request.node.nodeid.encode())), itertools.count()
    return lambda: jr.fold_in(root, next(count))


@pytest.fixture(scope="session")
def tol() -> Tolerances:
    """The table of tolerances for the precision in which this run computes."""
    return tolerances()


@pytest.fixture(scope="module", autouse=True)
def _forget_programs():
    """Frees what a module compiled: a whole run would hold gigabytes of programs."""
    yield
    jax.clear_caches()


@pytest.fixture
def unchecked():
    """Lifts the run-time type checks, to see what a user without them sees."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
