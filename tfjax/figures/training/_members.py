"""Many tiny models, each trained by a call of the same compiled program.

All steps of a member run in a loop of the program, and what differs between members is
data to it: weights, examples, batches, strengths of penalties, rates. So a further
member compiles nothing. They are called one by one, two at a time: a vmap over members
costs as much work on CPU (within a tenth, for widths of 32 to 64 and 8 to 64 tokens),
and keeps two cores busy less well.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Int32, Key

from ...train import make_optimizer, make_step, start


_AT_ONCE = 2


class Member(NamedTuple):
    """One model that is to be trained.

    - `model`: with the weights it starts from.
    - `data`: a tree of arrays whose leading axis is that of examples.
    - `places`: which of them are the batch of each step, of shape (steps, batch).
    - `strengths`: numbers that the loss gets beside the batch.
    - `options`: numbers for `train.make_optimizer`, such as its `learning_rate`.
    - `key`: what the loss draws from.
    """

    model: Any
    data: Any
    places: Int32[np.ndarray, "steps batch"]
    strengths: dict[str, float]
    options: dict[str, float]
    key: Key[Array, ""]


class Trained(NamedTuple):
    """A member after its steps, and what each of them measured before it was taken.

    A step whose gradient is not finite changes nothing; `skipped` counts them.
    """

    model: Any
    losses: Float[Array, " steps"]
    gradient_norms: Float[Array, " steps"]
    skipped: Int[Array, ""]


Loss = Callable[[Any, Any, Key[Array, ""]], Float[Array, ""]]
Program = Callable[[Member], Trained]


def training(loss: Loss, *, clip: float | None = 1.0, **fixed: Any) -> Program:
    """A compiled program that takes all steps of a member.

    **Arguments:**

    - `loss`: a function `(model, (batch, strengths), key) -> scalar`; the batch is
      `data` at the places of the step.
    - `clip`: the largest norm of a gradient; longer ones are shortened to it.
    - `fixed`: further arguments of `train.make_optimizer`, the same for all members.

    **Returns:** a function of a `Member`. It compiles for members of new shapes, not
    for new numbers.
    """

    @eqx.filter_jit
    def program(member: Member) -> Trained:
        optimizer = make_optimizer(
            steps=member.places.shape[0], **member.options, **fixed
        )
        step = make_step(loss, optimizer, clip=clip)
        state, static = eqx.partition(
            start(member.model, optimizer, member.key), eqx.is_array
        )

        def take(state, places):
            batch = jax.tree.map(lambda a: a[places], member.data)
            moved, metrics = step(eqx.combine(state, static), (batch, member.strengths))
            return eqx.filter(moved, eqx.is_array), metrics

        state, metrics = jax.lax.scan(take, state, member.places)
        last = eqx.combine(state, static)
        return Trained(last.model, metrics.loss, metrics.gradient_norm, last.skipped)

    return lambda member: program(_as_arrays(member))


def _as_arrays(member: Member) -> Member:
    """Numbers as arrays in float32: a number of Python's would be compiled in."""
    numbers = lambda tree: jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), tree)
    return member._replace(
        data=jax.tree.map(jnp.asarray, member.data),
        places=jnp.asarray(member.places),
        strengths=numbers(member.strengths),
        options=numbers(member.options),
    )


def train_members(program: Program, members: Iterable[Member]) -> Iterator[Trained]:
    """Members after their training, in order, each as soon as it is done."""
    config: Any = jax.config
    x64 = config.jax_enable_x64  # of this thread, which others do not know

    def run(member: Member) -> Trained:
        with jax.enable_x64(x64):
            return jax.block_until_ready(program(member))

    members = iter(members)
    for first in members:  # Alone, so that the program is compiled once.
        yield run(first)
        break
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        waiting: deque[Future[Trained]] = deque()
        for member in members:
            waiting.append(threads.submit(run, member))
            if len(waiting) > _AT_ONCE:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def batch_places(
    count: int, steps: int, batch: int, rng: np.random.Generator
) -> Int32[np.ndarray, "steps batch"]:
    """Places in `count` examples: every one once, in a new order, then again."""
    rounds = -(-steps * batch // count)
    order = np.concatenate([rng.permutation(count) for _ in range(rounds)])
    return order[: steps * batch].reshape(steps, batch).astype(np.int32)
