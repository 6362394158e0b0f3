"""Leapfrog on a potential of attention: its speed as ratios to its peers, in one run.

    python benchmarks/bench_hamiltonian.py [--quick] [--threads 2]

256 tokens in 16 dimensions, in float32 and float64. All compute the same, which is
asserted first. Contestants take turns in one process; the least time of several turns
counts: of the process on one thread, of the clock on more, where a busy machine spoils
it (torch's threads wait for each other). What matters is the ratio.
"""

import argparse
import os
import time


parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--quick", action="store_true", help="few steps, few turns")
parser.add_argument("--threads", type=int, default=1, help="of every contestant")
OPTIONS = parser.parse_args()
THREADS = OPTIONS.threads

os.environ["JAX_ENABLE_X64"] = "1"  # arrays of float32 stay so
if THREADS == 1:
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = str(THREADS)
if hasattr(os, "sched_setaffinity"):
    # The flag above does not hold for all of XLA's thread pools; this does.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-THREADS:])

import jax
import jax.numpy as jnp
import numpy as np

import tfjax
from tfjax.attention import attend
from tfjax.energies import AttentionPotential, Hamiltonian
from tfjax.fields import hamiltonian
from tfjax.integrate import Leapfrog


try:
    import torch
except ImportError:
    torch = None

N, D, CHUNK = 256, 16, 128
BETA, SPRING, STEP = 1.0, 3.0, 0.05
STEPS, REPEATS = (50, 3) if OPTIONS.quick else (400, 9)


def operands(dtype):
    """Positions, momenta and the matrix B."""
    random = np.random.default_rng(0)
    q, p = 0.5 * random.standard_normal((2, N, D))
    bilinear = random.standard_normal((D, D)) / D**0.5
    return [a.astype(dtype) for a in (q, p, bilinear)]


# --- Contestants: functions without arguments that return the last (q, p) -------------


def ours(dtype, chunk_size=None):
    q, p, bilinear = (jnp.asarray(a) for a in operands(dtype))
    potential = AttentionPotential(BETA, bilinear, SPRING, chunk_size)
    field = hamiltonian(Hamiltonian(potential))
    kwargs = {"t1": STEPS * STEP, "dt0": STEP, "solver": Leapfrog()}

    def run():
        ys = tfjax.solve(field, (q, p), **kwargs).ys
        return [np.asarray(y[-1]) for y in ys]

    return run


def scan(dtype, make_force):
    """A loop in jax around a force, of which `make_force` is given the matrix B."""
    q, p, bilinear = (jnp.asarray(a) for a in operands(dtype))
    force = make_force(bilinear)

    @jax.jit
    def loop(q, p):
        def move(state, _):
            q, p, f = state
            p = p + 0.5 * STEP * f
            q = q + STEP * p
            f = force(q)
            return (q, p + 0.5 * STEP * f, f), None

        return jax.lax.scan(move, (q, p, force(q)), length=STEPS)[0][:2]

    return lambda: [np.asarray(y) for y in jax.block_until_ready(loop(q, p))]


def of_potential(chunk_size=None):
    """The force of the library's potential."""

    def make(bilinear):
        potential = AttentionPotential(BETA, bilinear, SPRING, chunk_size)
        return lambda q: -jax.grad(potential)(q)

    return make


def by_grad(bilinear):
    """What a user of jax writes."""

    def potential(q):
        logs = jax.nn.logsumexp(BETA * (q @ bilinear.T) @ q.T, axis=1)
        return 0.5 * SPRING * jnp.sum(q * q) - 0.5 * jnp.sum(logs) / BETA

    return lambda q: -jax.grad(potential)(q)


def by_hand(bilinear):
    """What a user of jax writes who has taken the gradient on paper."""

    def force(q):
        turned = q @ bilinear.T
        weights = jax.nn.softmax(BETA * turned @ q.T, axis=1)
        return 0.5 * (weights @ q @ bilinear + weights.T @ turned) - SPRING * q

    return force


def torch_loop(dtype, make_force):
    q0, p0, bilinear = (torch.from_numpy(a) for a in operands(dtype))
    force = make_force(bilinear)

    def run():
        q, p = q0.clone(), p0.clone()
        with torch.no_grad():
            f = force(q)
            for _ in range(STEPS):
                p.add_(f, alpha=0.5 * STEP)
                q.add_(p, alpha=STEP)
                f = force(q)
                p.add_(f, alpha=0.5 * STEP)
        return [q.numpy(), p.numpy()]

    return run


def torch_by_hand(bilinear):
    def force(q):
        turned = q @ bilinear.T
        weights = torch.softmax((BETA * turned) @ q.T, dim=1)
        f = (weights @ q) @ bilinear
        return f.addmm_(weights.T, turned).mul_(0.5).sub_(q, alpha=SPRING)

    return force


def torch_by_grad(bilinear):
    def force(q):
        with torch.enable_grad():
            x = q.detach().requires_grad_()
            logs = torch.logsumexp((BETA * x @ bilinear.T) @ x.T, dim=1)
            energy = 0.5 * SPRING * (x * x).sum() - 0.5 * logs.sum() / BETA
            return torch.autograd.grad(energy, x)[0].neg_()

    return force


# --- Turns ----------------------------------------------------------------------------


def turns(contestants):
    """The least time of a call of each contestant, who take turns."""
    clock = time.process_time if THREADS == 1 else time.perf_counter
    calls = {}
    for name, run in contestants.items():
        start = time.perf_counter()
        run()
        # The process clock is coarse: a turn is as many calls as last 0.1 seconds.
        calls[name] = 1 + int(0.1 / (time.perf_counter() - start))
    best = dict.fromkeys(contestants, float("inf"))
    for _ in range(REPEATS):
        for name, run in contestants.items():
            start = clock()
            for _ in range(calls[name]):
                run()
            best[name] = min(best[name], (clock() - start) / calls[name])
    return best


def agree(contestants, tolerance):
    first, *others = (run() for run in contestants.values())
    for other in others:
        for a, b in zip(first, other, strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=tolerance)


def trajectories(dtype):
    peers = {
        "tfjax": ours(dtype),
        "jax.lax.scan, grad of AttentionPotential": scan(dtype, of_potential()),
        "jax.lax.scan, grad of logsumexp": scan(dtype, by_grad),
        "jax.lax.scan, force by hand": scan(dtype, by_hand),
        f"tfjax, chunk_size={CHUNK}": ours(dtype, CHUNK),
        f"jax.lax.scan, chunk_size={CHUNK}": scan(dtype, of_potential(CHUNK)),
    }
    if torch is not None:
        torch.set_num_threads(THREADS)
        peers["torch, force by hand"] = torch_loop(dtype, torch_by_hand)
        peers["torch, autograd"] = torch_loop(dtype, torch_by_grad)
    agree(peers, 1e-3 if dtype == np.float32 else 1e-9)
    return f"leapfrog, {STEPS} steps, {dtype.__name__}", turns(peers)


def energies_and_forces(dtype):
    q, _, bilinear = (jnp.asarray(a) for a in operands(dtype))
    potential = AttentionPotential(BETA, bilinear, SPRING)
    fused = jax.jit(lambda q: potential.with_force(q))
    energy = jax.jit(lambda q: potential(q))
    force = jax.jit(lambda q: -jax.grad(potential)(q))
    mean = jax.jit(lambda q: attend(q @ bilinear.T, q, q, beta=BETA))
    agree(
        {"fused": lambda: fused(q), "apart": lambda: (energy(q), force(q))},
        1e-3 if dtype == np.float32 else 1e-9,
    )
    peers = {
        "tfjax": lambda: jax.block_until_ready(fused(q)),
        "energy and force, apart": lambda: jax.block_until_ready((energy(q), force(q))),
        "attention alone": lambda: jax.block_until_ready(mean(q)),
    }
    return f"energy and force, {dtype.__name__}", turns(peers)


def main():
    """Prints the table, with the times of tfjax beside those of the peers."""
    if torch is None:
        print("torch is not installed: its rows are left out.")
    kind = "process time" if THREADS == 1 else "wall time"
    print(f"n={N}, d={D}, threads: {THREADS}, {kind}\n")
    print("| what | peer | tfjax (ms) | peer (ms) | ratio |\n|---|---|---|---|---|")
    for measure in (trajectories, energies_and_forces):
        for dtype in (np.float32, np.float64):
            what, best = measure(dtype)
            own = best.pop("tfjax")
            for peer, seconds in best.items():
                times = f"{own * 1e3:.2f} | {seconds * 1e3:.2f}"
                print(f"| {what} | {peer} | {times} | {seconds / own:.2f} |")


if __name__ == "__main__":
    main()
