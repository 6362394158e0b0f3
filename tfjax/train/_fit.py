"""Training: step after step, with what a person expects around them."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import optax
from jax.typing import DTypeLike
from jaxtyping import Array, Key

from .._core import count, must
from ._files import Record, RunFiles
from ._interrupt import stoppable
from ._optimizer import make_optimizer
from ._progress import Meter
from ._step import Loss, TrainState, make_step, start


# So many steps in a row whose gradient is not finite: it will not recover.
_HOPELESS = 20


class Fit(NamedTuple):
    """What [`fit`][] returns.

    - `state`: a [`TrainState`][]; `state.model` is the trained model.
    - `records`: a dictionary for each step: `step`, `loss`, `gradient_norm`, `skipped`,
      `per_second` (None for the first step, which compiles), and `validation` where
      it was evaluated.
    - `finished`: False if it was interrupted.
    """

    state: TrainState
    records: list[Record]
    finished: bool


def fit(
    model: Any,
    loss: Loss,
    batches: Callable[[int], Any],
    *,
    steps: int,
    key: Key[Array, ""],
    optimizer: optax.GradientTransformation | None = None,
    accumulate: int = 1,
    clip: float | int | None = 1.0,
    dtype: DTypeLike | None = None,
    evaluate: Callable[[Any], dict[str, Any]] | None = None,
    evaluate_every: int | None = None,
    directory: str | Path | None = None,
    checkpoint_every: int | None = None,
    metadata: dict[str, Any] | None = None,
    resume: bool = False,
    progress: bool = False,
    per_step: int = 1,
    unit: str = "steps",
) -> Fit:
    """Trains a model.

    Step s sees `batches(s)` and draws from `fold_in(key, s)`, so that a run that was
    interrupted goes on to the same result, bit for bit.

    **Arguments:**

    - `model`: a tree whose floating-point arrays are trained.
    - `loss`: a function `(model, batch, key) -> scalar`.
    - `batches`: the data of step s = 0, 1, ...: a function of its number alone.
    - `steps`: how many.
    - `key`: what the steps draw from.
    - `optimizer`: of optax; None is [`make_optimizer`][] with its defaults.
    - `accumulate`, `clip`, `dtype`: as in [`make_step`][].
    - `evaluate`: a function `model -> {name: number}`, called every `evaluate_every`
      steps (None: never before the end) and after the last. Numbers are shown; lists
      and dictionaries of them are recorded only.
    - `directory`: where `checkpoint.npz` and `log.jsonl` (a line of JSON for each step)
      are written; None writes nothing. It is an error if it holds a run already.
    - `checkpoint_every`: steps between checkpoints; None writes them at the beginning,
      at the end, and on interruption.
    - `metadata`: what JSON can hold; kept in the checkpoint, and compared on `resume`.
    - `resume`: go on from the checkpoint in `directory`.
    - `progress`: show loss, throughput and the time left on stderr.
    - `per_step`, `unit`: what throughput counts, such as tokens.

    **Returns:** a [`Fit`][]. The first Ctrl-C ends training after the step under way,
    with a checkpoint; `finished` is False then.

    **Raises:** ValueError where an argument is wrong, or a checkpoint does not fit;
    FileNotFoundError where there is none to go on from; RuntimeError, which names the
    step, after 20 steps in a row whose gradient was not finite; OSError where there is
    no room for two checkpoints at the beginning, or for one at the end. In between a
    full disk is reported and training goes on.

    !!! example

        >>> import jax, jax.numpy as jnp, optax
        >>> from tfjax.train import fit
        >>> loss = lambda w, batch, key: jnp.sum((w - batch) ** 2)
        >>> batches = lambda s: jnp.array([1.0, 3.0])
        >>> trained = fit(
        ...     jnp.zeros(2), loss, batches, steps=3, key=jax.random.key(0),
        ...     optimizer=optax.sgd(0.25), clip=None,
        ... )
        >>> trained.state.model.tolist(), trained.records[0]["loss"]
        ([0.875, 2.625], 10.0)

    Source: own.
    """
    steps, per_step = count("steps", steps), count("per_step", per_step)
    for name, value in (
        ("evaluate_every", evaluate_every),
        ("checkpoint_every", checkpoint_every),
    ):
        if value is not None:
            count(name, value)
    if resume and directory is None:
        raise must("directory", "be given with `resume`", "None")
    optimizer = make_optimizer(steps=steps) if optimizer is None else optimizer
    advance = make_step(loss, optimizer, accumulate=accumulate, clip=clip, dtype=dtype)
    files = RunFiles(None if directory is None else Path(directory), metadata or {})
    state, records = files.begin(start(model, optimizer, key), resume=resume)
    if int(state.step) > steps:
        raise must("steps", f"be at least the {int(state.step)} taken before", steps)
    done, lost = int(state.step), 0
    meter = Meter(steps, done, per_step=per_step, unit=unit, silent=not progress)
    with stoppable() as stop, meter:
        while done < steps and not stop.requested:
            state, measured = advance(state, batches(done))
            found, skipped = float(measured.loss), bool(measured.skipped)
            done += 1
            meter.step(found)
            record = {
                "step": done,
                "loss": found,
                "gradient_norm": float(measured.gradient_norm),
                "skipped": skipped,
                "per_second": meter.rate() or None,
            }
            lost = lost + 1 if skipped else 0
            begin = time.perf_counter()
            if evaluate is not None and _due(done, evaluate_every, steps):
                record["validation"] = evaluate(state.model)
                meter.say(f"step {done}: {_words(record['validation'])}")
            records.append(record)
            files.record(record)
            if lost == _HOPELESS:
                raise RuntimeError(
                    f"No gradient has been finite since step {done - lost + 1}: the "
                    "rate may be too high, or the data not finite."
                )
            if _due(done, checkpoint_every, steps):
                files.save(state)
            meter.away(time.perf_counter() - begin)
        files.close(state)
    return Fit(state, records, done == steps)


def _due(step: int, every: int | None, last: int) -> bool:
    return step == last or (every is not None and step % every == 0)


def _words(values: dict[str, Any]) -> str:
    numbers = {k: v for k, v in values.items() if isinstance(v, int | float)}
    return ", ".join(f"{name} {value:.4f}" for name, value in numbers.items())
