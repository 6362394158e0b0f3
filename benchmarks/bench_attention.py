"""The time of the attention kernels as ratios to their peers, in one run.

    python benchmarks/bench_attention.py [--quick]

One head of width 64 in float32, on one thread: the value, and the value with the
gradients of q, k and v. Contestants take turns in one process; the least process time
of several turns counts. What matters are the ratios: to the dense kernel, to the row
above (n doubles, or k does), and to torch where it is installed.
"""

import argparse
import os
import time


os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import jax
import jax.numpy as jnp
import numpy as np

from tfjax.attention import Causal, TopK, Window, attend


try:
    import torch
except ImportError:
    torch = None

WIDTH, CHUNK = 64, 128


def operands(n):
    random = np.random.default_rng(n)
    return [random.standard_normal((n, WIDTH)).astype(np.float32) for _ in "qkv"]


def kernel(n, mask=None, chunk_size=None):
    """Two functions without arguments: the value, and the value and gradients."""
    given = [jnp.asarray(a) for a in operands(n)]
    run = lambda q, k, v: attend(q, k, v, mask=mask, chunk_size=chunk_size)
    loss = lambda q, k, v: jnp.sum(jnp.sin(run(q, k, v)))
    programs = (jax.jit(run), jax.jit(jax.value_and_grad(loss, (0, 1, 2))))
    compiled = [program.lower(*given).compile() for program in programs]
    return [lambda p=p: jax.block_until_ready(p(*given)) for p in compiled]


def torch_kernel(n):
    torch.set_num_threads(1)
    given = [torch.from_numpy(a)[None].requires_grad_() for a in operands(n)]
    run = torch.nn.functional.scaled_dot_product_attention

    def value():
        with torch.no_grad():
            return run(*given).numpy()[0]

    def both():
        torch.autograd.grad(run(*given).sin().sum(), given)

    return [value, both]


def turns(contestants, repeats):
    """The least process times (value, with gradients) of contestants in turn."""
    best = {name: [float("inf")] * 2 for name in contestants}
    for turn in range(repeats + 1):
        for name, runs in contestants.items():
            for which, run in enumerate(runs):
                start = time.process_time()
                run()
                spent = time.process_time() - start
                if turn:  # the first one warms up
                    best[name][which] = min(best[name][which], spent)
    return best


def agree(one, other):
    np.testing.assert_allclose(one[0](), other[0](), rtol=1e-4, atol=1e-5)


def table(title, rows):
    """Prints the times of rows (name, (value, with gradients), reference or None)."""
    print(f"\n{title}\n\n| what | value (ms) | with gradients (ms) | ratios |")
    print("|---|---|---|---|")
    for name, times, reference in rows:
        ratios = ""
        if reference is not None:
            ratios = " / ".join(
                f"{a / b:.2f}" for a, b in zip(times, reference, strict=True)
            )
        value, both = (f"{t * 1e3:.1f}" for t in times)
        print(f"| {name} | {value} | {both} | {ratios} |")


def dense_and_chunked(sizes, repeats):
    rows = []
    for n in sizes:
        peers = {
            "dense": kernel(n),
            f"chunks of {CHUNK}": kernel(n, None, CHUNK),
            f"chunks of {CHUNK}, causal": kernel(n, Causal(), CHUNK),
        }
        agree(*list(peers.values())[:2])
        if torch is not None:
            peers["torch SDPA"] = torch_kernel(n)
            agree(peers["dense"], peers["torch SDPA"])
        best = turns(peers, repeats)
        rows += [(f"n={n}, {who}", best[who], best["dense"]) for who in peers]
    table("All pairs; ratios to dense", rows)


def windows(sizes, w, repeats):
    peers = {n: kernel(n, Window(w)) for n in sizes}
    n = sizes[0]
    agree(peers[n], kernel(n, Window(w)(n, n)))
    best = turns(peers, repeats)
    rows, before = [], None
    for n in sizes:
        rows.append((f"n={n}", best[n], before))
        before = best[n]
    table(f"Window({w}); ratios to the row above", rows)
    pair = {"window": peers[sizes[0]], "all": kernel(sizes[0], None, CHUNK)}
    best = turns(pair, repeats)
    name = f"n={sizes[0]}, Window({w})"
    table("The band; ratio to all pairs by chunks", [(name, *best.values())])


def highest(n, tops, repeats):
    peers = {"all": kernel(n, None, CHUNK)}
    peers |= {top: kernel(n, TopK(top), CHUNK) for top in tops}
    best = turns(peers, repeats)
    rows = [(f"TopK({top})", best[top], best["all"]) for top in tops]
    table(f"TopK at n={n}; ratios to all pairs by chunks", rows)


def main():
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes, few turns")
    quick = parser.parse_args().quick
    repeats = 2 if quick else 5
    if torch is None:
        print("torch is not installed: its rows are left out.")
    dense_and_chunked((512, 1024) if quick else (1024, 2048, 4096, 8192), repeats)
    if quick:
        windows((1024, 2048), 64, repeats)
    else:
        windows((4096, 8192, 16_384, 32_768, 65_536), 256, repeats)
    highest(1024 if quick else 4096, (8, 32, 128, 512), repeats)


if __name__ == "__main__":
    main()
