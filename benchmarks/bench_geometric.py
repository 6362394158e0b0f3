"""Training with terms for the geometry of the layers: its cost as ratios, in one run.

    python benchmarks/bench_geometric.py [--quick] [--threads 2]

4 layers, 4 heads, 128 dimensions, 256 tokens in the vocabulary; batches of 16 sequences
of 128 tokens, in float32, with AdamW. Every contestant takes the same steps, one after
the other in turns, in one process; the least time of several turns counts: of the
process on one thread, of the clock on more. What matters is the ratio to training
without terms. That the default sample of sequences and layers costs at most 1.6 times
as much is asserted; the full terms, of all sequences and layers, are beside it.
"""

import argparse
import os
import time


parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--quick", action="store_true", help="few turns")
parser.add_argument("--threads", type=int, default=1, help="of every contestant")
OPTIONS = parser.parse_args()
THREADS = OPTIONS.threads

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
import optax

from tfjax.nn import Transformer, TransformerConfig
from tfjax.train import geometric_loss, language_loss, make_step, start


CONFIG = TransformerConfig(vocabulary=256, context=128, layers=4, heads=4, head_dim=32)
BATCH, REPEATS, MOST = 16, (3 if OPTIONS.quick else 15), 1.6
ISOMETRY, CURVATURE = {"isometry": 0.1}, {"curvature": 0.1}
BOTH, ALL = ISOMETRY | CURVATURE, {"sequences": None, "layers": None}
DEFAULT = "both, default sample"
CONTESTANTS = {
    "no terms": {},
    "isometry, default sample": ISOMETRY,
    "curvature, default sample": CURVATURE,
    DEFAULT: BOTH,
    "both, 1 sequence, all layers": BOTH | {"layers": None},
    "both, as pairs of tokens": BOTH | {"layers": None, "form": "pairs"},
    "isometry, all": ISOMETRY | ALL,
    "curvature, all": CURVATURE | ALL,
    "both, all": BOTH | ALL,
}


def contestant(terms):
    """A function that takes one step and waits for it."""
    optimizer = optax.adamw(1e-3)
    step = make_step(geometric_loss(language_loss, **terms), optimizer)
    state = start(
        Transformer(CONFIG, key=jax.random.key(0)), optimizer, jax.random.key(1)
    )
    shape = BATCH, CONFIG.context + 1
    draws = np.random.default_rng(0).integers(0, CONFIG.vocabulary, shape)
    tokens = jnp.asarray(draws, jnp.int32)

    def take():
        nonlocal state
        state, metrics = step(state, tokens)
        assert not bool(metrics.skipped)
        return float(metrics.loss)

    return take


def turns(contestants):
    """The least time of a step of each contestant, who take turns."""
    clock = time.process_time if THREADS == 1 else time.perf_counter
    best = dict.fromkeys(contestants, float("inf"))
    for _ in range(REPEATS):
        for name, take in contestants.items():
            start = clock()
            take()
            best[name] = min(best[name], clock() - start)
    return best


def main():
    """Prints the table, with each cost over that of training without terms."""
    contestants = {name: contestant(terms) for name, terms in CONTESTANTS.items()}
    for take in contestants.values():
        take()  # compiles
    best = turns(contestants)
    kind = "process time" if THREADS == 1 else "wall time"
    print(f"threads: {THREADS}, {kind}\n")
    print("| terms | step (ms) | over none |\n|---|---|---|")
    ratios = {name: seconds / best["no terms"] for name, seconds in best.items()}
    for name, seconds in best.items():
        print(f"| {name} | {seconds * 1e3:.1f} | {ratios[name]:.2f} |")
    assert ratios[DEFAULT] <= MOST, f"{DEFAULT}: {ratios[DEFAULT]:.2f} > {MOST}"


if __name__ == "__main__":
    main()
