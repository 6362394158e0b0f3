"""Training a small GPT: its speed as ratios to its peers, in one run.

    python benchmarks/bench_training.py [--quick] [--threads 2]

4 layers, 4 heads, 128 dimensions, 256 tokens in the vocabulary; batches of 16 sequences
of 128 tokens, in float32, with AdamW; once more with gradients averaged over parts of
the batch, which fit the processor's cache. All peers start from the weights of tfjax
and are given the same batches; that their gradients and their losses are the same is
asserted first. Contestants take turns in one process; the least time of several turns
counts: of the process on one thread, of the clock on more, where a busy machine spoils
it (torch's threads wait for each other). What matters is the ratio.
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

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from tfjax.nn import Transformer, TransformerConfig
from tfjax.train import language_loss, make_step, start


try:
    import torch
except ImportError:
    torch = None

CONFIG = TransformerConfig(vocabulary=256, context=128, layers=4, heads=4, head_dim=32)
BATCH, WIDTH, HIDDEN = 16, CONFIG.width, CONFIG.mlp_ratio * CONFIG.width
ADAMW = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.1}
PARTS = 4
STEPS, REPEATS = 10, (3 if OPTIONS.quick else 25)


def optimizer():
    (b1, b2), decay = ADAMW["betas"], ADAMW["weight_decay"]
    return optax.adamw(ADAMW["lr"], b1, b2, ADAMW["eps"], weight_decay=decay)


def batches():
    """Sequences that can be learned: the next token is the last one's, now and then."""
    random = np.random.default_rng(0)
    follower = random.permutation(CONFIG.vocabulary)
    while True:
        tokens = random.integers(0, CONFIG.vocabulary, (BATCH, CONFIG.context + 1))
        for place in range(CONFIG.context):
            kept = random.random(BATCH) < 0.7
            tokens[kept, place + 1] = follower[tokens[kept, place]]
        yield tokens


BATCHES = [tokens for tokens, _ in zip(batches(), range(STEPS), strict=False)]


def first_model():
    return Transformer(CONFIG, key=jax.random.key(0))


# --- Contestants: a gradient as a list in one order, and a step with its loss ---------


class Ours:
    """What the library has a user write."""

    gradients = staticmethod(eqx.filter_jit(eqx.filter_grad(language_loss)))

    def __init__(self, parts=1):
        self.step = make_step(language_loss, optimizer(), accumulate=parts)
        self.state = start(first_model(), optimizer(), jax.random.key(0))
        self.batches = [jnp.asarray(tokens, jnp.int32) for tokens in BATCHES]

    def gradient(self):
        return weights_of(self.gradients(self.state.model, self.batches[0], None))

    def __call__(self, k):
        self.state, metrics = self.step(self.state, self.batches[k])
        return float(metrics.loss)


def weights_of(model):
    """All weights of a Transformer as arrays of numpy, qkv in three."""
    layers = [
        [
            layer.norms[0].scale,
            *np.split(np.asarray(layer.attention.qkv), 3),
            layer.attention.out,
            layer.norms[1].scale,
            layer.feed_forward.up,
            layer.feed_forward.down,
        ]
        for layer in model.layers
    ]
    flat = [model.embedding, *sum(layers, []), model.norm.scale]
    return [np.asarray(a) for a in flat]


class EquinoxBlock(eqx.Module):
    """As equinox documents it: of one sequence, every layer mapped over its tokens."""

    norms: list
    attention: eqx.nn.MultiheadAttention
    rope: eqx.nn.RotaryPositionalEmbedding
    up: eqx.nn.Linear
    down: eqx.nn.Linear

    def __init__(self):
        key = jax.random.key(0)
        norm = lambda: eqx.nn.LayerNorm(WIDTH, use_bias=False)
        linear = lambda m, n: eqx.nn.Linear(m, n, use_bias=False, key=key)
        self.norms = [norm(), norm()]
        self.attention = eqx.nn.MultiheadAttention(CONFIG.heads, WIDTH, key=key)
        self.rope = eqx.nn.RotaryPositionalEmbedding(CONFIG.head_dim)
        self.up, self.down = linear(WIDTH, HIDDEN), linear(HIDDEN, WIDTH)

    def __call__(self, x, mask):
        def turned(q, k, v):
            turn = jax.vmap(self.rope, in_axes=1, out_axes=1)
            return turn(q), turn(k), v

        y = jax.vmap(self.norms[0])(x)
        x = x + self.attention(y, y, y, mask, process_heads=turned)
        y = jax.vmap(self.up)(jax.vmap(self.norms[1])(x))
        return x + jax.vmap(self.down)(jax.nn.gelu(y))


class EquinoxGPT(eqx.Module):
    embedding: eqx.nn.Embedding
    blocks: list
    norm: eqx.nn.LayerNorm

    def __init__(self):
        key = jax.random.key(0)
        self.embedding = eqx.nn.Embedding(CONFIG.vocabulary, WIDTH, key=key)
        self.blocks = [EquinoxBlock() for _ in range(CONFIG.layers)]
        self.norm = eqx.nn.LayerNorm(WIDTH, use_bias=False)

    def __call__(self, tokens):
        mask = jnp.tril(jnp.ones((tokens.shape[0], tokens.shape[0]), bool))
        x = jax.vmap(self.embedding)(tokens)
        for block in self.blocks:
            x = block(x, mask)
        return WIDTH**-0.5 * jax.vmap(self.norm)(x) @ self.embedding.weight.T


def equinox_weights(model):
    blocks = [
        [
            block.norms[0].weight,
            block.attention.query_proj.weight,
            block.attention.key_proj.weight,
            block.attention.value_proj.weight,
            block.attention.output_proj.weight,
            block.norms[1].weight,
            block.up.weight,
            block.down.weight,
        ]
        for block in model.blocks
    ]
    return [model.embedding.weight, *sum(blocks, []), model.norm.weight]


class Equinox:
    """A model and a loop of training as equinox's documentation has them."""

    def __init__(self):
        weights = [jnp.asarray(a) for a in weights_of(first_model())]
        self.model = eqx.tree_at(equinox_weights, EquinoxGPT(), weights)
        adamw = optimizer()
        self.memory = adamw.init(eqx.filter(self.model, eqx.is_array))
        self.batches = [jnp.asarray(tokens, jnp.int32) for tokens in BATCHES]

        def loss(model, tokens):
            logits = jax.vmap(model)(tokens[:, :-1])
            entropy = optax.softmax_cross_entropy_with_integer_labels
            return jnp.mean(entropy(logits, tokens[:, 1:]))

        @eqx.filter_jit
        def step(model, memory, tokens):
            value, gradient = eqx.filter_value_and_grad(loss)(model, tokens)
            updates, memory = adamw.update(
                gradient, memory, eqx.filter(model, eqx.is_array)
            )
            return eqx.apply_updates(model, updates), memory, value

        self.step, self.loss = step, loss

    def gradient(self):
        function = eqx.filter_jit(eqx.filter_grad(self.loss))
        return equinox_weights(function(self.model, self.batches[0]))

    def __call__(self, k):
        self.model, self.memory, value = self.step(
            self.model, self.memory, self.batches[k]
        )
        return float(value)


class Torch:
    """The same in torch, with its fused attention and its fused AdamW."""

    def __init__(self, parts=1):
        torch.set_num_threads(THREADS)
        self.parts = parts
        self.model = torch_gpt()
        self.adamw = torch.optim.AdamW(self.model.parameters(), fused=True, **ADAMW)
        self.batches = [torch.from_numpy(tokens) for tokens in BATCHES]

    def loss(self, tokens):
        logits = self.model(tokens[:, :-1])
        flat = logits.reshape(-1, CONFIG.vocabulary), tokens[:, 1:].reshape(-1)
        return torch.nn.functional.cross_entropy(*flat)

    def gradient(self):
        gradients = torch.autograd.grad(
            self.loss(self.batches[0]), list(self.model.parameters())
        )
        return split_qkv([g.numpy() for g in gradients])

    def __call__(self, k):
        self.adamw.zero_grad(set_to_none=True)
        total = 0.0
        for tokens in self.batches[k].split(BATCH // self.parts):
            value = self.loss(tokens) / self.parts
            value.backward()
            total += value.item()
        self.adamw.step()
        return total


def torch_gpt():
    """A GPT with the weights of tfjax, its parameters in the same order."""
    from torch import nn
    from torch.nn import functional as F

    d, heads, k = WIDTH, CONFIG.heads, CONFIG.head_dim
    linear = lambda m, n: nn.Linear(m, n, bias=False)
    half = k // 2
    rates = 10000.0 ** (-torch.arange(half) / half)
    angle = torch.arange(CONFIG.context)[:, None] * rates
    cos, sin = angle.cos(), angle.sin()

    def turned(x):
        first, second = x[..., :half], x[..., half:]
        return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.LayerNorm(d, bias=False)
            self.qkv, self.out = linear(d, 3 * d), linear(d, d)
            self.second = nn.LayerNorm(d, bias=False)
            self.up, self.down = linear(d, HIDDEN), linear(HIDDEN, d)

        def forward(self, x):
            b, n, _ = x.shape
            q, key, v = (
                part.view(b, n, heads, k).transpose(1, 2)
                for part in self.qkv(self.first(x)).split(d, dim=2)
            )
            y = F.scaled_dot_product_attention(
                turned(q), turned(key), v, is_causal=True
            )
            x = x + self.out(y.transpose(1, 2).reshape(b, n, d))
            y = F.gelu(self.up(self.second(x)), approximate="tanh")
            return x + self.down(y)

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(CONFIG.vocabulary, d)
            self.blocks = nn.ModuleList([Block() for _ in range(CONFIG.layers)])
            self.norm = nn.LayerNorm(d, bias=False)

        def forward(self, tokens):
            x = self.embedding(tokens)
            for block in self.blocks:
                x = block(x)
            return d**-0.5 * F.linear(self.norm(x), self.embedding.weight)

    model, weights = GPT(), weights_of(first_model())
    with torch.no_grad():
        for p in model.parameters():
            parts = 3 if p.shape == (3 * d, d) else 1
            p.copy_(torch.from_numpy(np.concatenate(weights[:parts])))
            del weights[:parts]
    return model


def split_qkv(arrays):
    parts = [np.split(a, 3) if a.shape == (3 * WIDTH, WIDTH) else [a] for a in arrays]
    return sum(parts, [])


# --- Turns ----------------------------------------------------------------------------


def agree(contestants):
    """Asserts that gradients and losses of the first steps are the same."""
    first, *others = contestants.values()
    gradient = first.gradient()
    losses = [first(k) for k in range(STEPS)]
    assert losses[-1] < losses[0] - 0.1, losses
    for other in others:
        for a, b in zip(gradient, other.gradient(), strict=True):
            size = np.linalg.norm(a)
            np.testing.assert_array_less(np.linalg.norm(a - np.asarray(b)), 1e-4 * size)
        found = [other(k) for k in range(STEPS)]
        np.testing.assert_allclose(found, losses, rtol=1e-4)
    return losses


def turns(contestants):
    """The least time of a step of each contestant, who take turns."""
    clock = time.process_time if THREADS == 1 else time.perf_counter
    best = dict.fromkeys(contestants, float("inf"))
    for turn in range(REPEATS):
        for name, step in contestants.items():
            start = clock()
            step(turn % STEPS)
            best[name] = min(best[name], clock() - start)
    return best


def main():
    """Prints the table, with the speed of tfjax beside those of the peers."""
    in_parts = f"gradient in {PARTS} parts"
    contestants = {
        "tfjax": Ours(),
        "equinox, as documented": Equinox(),
        f"tfjax, {in_parts}": Ours(PARTS),
    }
    if torch is None:
        print("torch is not installed: its rows are left out.")
    else:
        contestants["torch"] = Torch()
        contestants[f"torch, {in_parts}"] = Torch(PARTS)
    losses = agree(contestants)
    print(f"losses of {STEPS} steps agree: from {losses[0]:.4f} to {losses[-1]:.4f}")
    kind = "process time" if THREADS == 1 else "wall time"
    print(f"threads: {THREADS}, {kind}\n")
    print("| who | step (ms) | tokens/s | over tfjax |\n|---|---|---|---|")
    best = turns(contestants)
    for name, seconds in best.items():
        speed, ratio = BATCH * CONFIG.context / seconds, best["tfjax"] / seconds
        print(f"| {name} | {seconds * 1e3:.1f} | {speed:.0f} | {ratio:.2f} |")


if __name__ == "__main__":
    main()
