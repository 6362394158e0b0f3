"""The speed of `solve` and `solve_ensemble` as ratios to their peers, in one run.

    python benchmarks/bench_solve.py [--quick]

Each pair computes the same thing, which is asserted first. Contestants take turns in
one process on one thread; the least process time of several turns counts. What matters
is the ratio: the times are those of the machine that you run it on.
"""

import argparse
import os
import time


os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np

import tfjax
from tfjax.fields import AttentionParams, self_attention
from tfjax.geometry import Sphere
from tfjax.integrate import Projected


BETA, STEP = 9.0, 0.1


def numpy_field(x, beta):
    weights = np.exp(beta * (x @ x.T))
    weights /= weights.sum(axis=1, keepdims=True)
    drift = weights @ x
    return drift - np.sum(x * drift, axis=1, keepdims=True) * x


def numpy_heun(x, beta, steps):
    """Heun's method with projection: what a script of today would do."""
    for _ in range(steps):
        k1 = numpy_field(x, beta)
        k2 = numpy_field(x + STEP * k1, beta)
        x = x + 0.5 * STEP * (k1 + k2)
        x = x / np.linalg.norm(x, axis=1, keepdims=True)
    return x


def turns(contestants, repeats):
    """The least process time of a call of each contestant, who take turns."""
    calls = {}
    for name, run in contestants.items():
        start = time.perf_counter()
        run()
        # The process clock is coarse: a turn is as many calls as last 0.2 seconds.
        calls[name] = 1 + int(0.2 / (time.perf_counter() - start))
    best = dict.fromkeys(contestants, float("inf"))
    for _ in range(repeats):
        for name, run in contestants.items():
            start = time.process_time()
            for _ in range(calls[name]):
                run()
            best[name] = min(best[name], (time.process_time() - start) / calls[name])
    return best


def trajectory(n, d, steps, repeats):
    x0 = Sphere(d).random(jax.random.key(0), (n,), dtype=jnp.float32)
    args, t1 = AttentionParams(beta=BETA), STEP * steps

    def ours():
        kwargs = {"solver": dfx.Heun(), "dt0": STEP, "manifold": Sphere(d)}
        sol = tfjax.solve(self_attention, x0, args, t1=t1, **kwargs)
        return sol.ys[-1].block_until_ready()

    single, double = np.asarray(x0), np.asarray(x0, np.float64)
    np.testing.assert_allclose(ours(), numpy_heun(double, BETA, steps), atol=2e-3)
    peers = {
        "tfjax": ours,
        "numpy float32": lambda: numpy_heun(single, BETA, steps),
        "numpy float64": lambda: numpy_heun(double, BETA, steps),
    }
    best = turns(peers, repeats)
    return f"one trajectory, n={n}, d={d}, {steps} Heun steps", best


def ensemble(members, repeats):
    x0 = Sphere(3).random(jax.random.key(0), (members, 32), dtype=jnp.float32)
    args = AttentionParams(beta=BETA)

    def ours():
        kwargs = {"t1": 20.0, "manifold": Sphere(3)}
        sol = tfjax.solve_ensemble(self_attention, x0, args, **kwargs)
        return sol.ys[:, -1].block_until_ready()

    def vmapped(solver):
        def one(x0):
            controller = dfx.PIDController(rtol=1e-6, atol=1e-6)
            term, ends = dfx.ODETerm(self_attention), (0.0, 20.0, None)
            kwargs = {"stepsize_controller": controller, "throw": False}
            return dfx.diffeqsolve(term, solver, *ends, x0, args, **kwargs).ys[-1]

        compiled = jax.jit(jax.vmap(one))
        return lambda: compiled(x0).block_until_ready()

    on_sphere, free = vmapped(Projected(dfx.Tsit5(), Sphere(3))), vmapped(dfx.Tsit5())

    # Float32 errors grow while clusters form: the members agree, not their last digits.
    for peer in (on_sphere, free):
        gap = np.abs(np.asarray(ours()) - np.asarray(peer())).max(axis=(1, 2))
        assert np.mean(gap < 0.01) > 0.9, gap
    peers = {
        "tfjax": ours,
        "vmap(diffeqsolve), projected": on_sphere,
        "vmap(diffeqsolve), not projected": free,
    }
    best = turns(peers, repeats)
    return f"ensemble of {members}, n=32, d=3, t1=20, adaptive", best


def main():
    """Prints the table of README.md."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes, few turns")
    quick = parser.parse_args().quick
    repeats = 2 if quick else 7
    rows = [trajectory(32, 3, 200, repeats), trajectory(256, 3, 50, repeats)]
    if not quick:
        rows.append(trajectory(2048, 3, 10, 5))
    rows.append(ensemble(16 if quick else 256, repeats))
    print("| what | peer | tfjax (ms) | peer (ms) | ratio |\n|---|---|---|---|---|")
    for what, best in rows:
        own = best.pop("tfjax")
        for peer, seconds in best.items():
            times = f"{own * 1e3:.1f} | {seconds * 1e3:.1f}"
            print(f"| {what} | {peer} | {times} | {seconds / own:.1f} |")


if __name__ == "__main__":
    main()
