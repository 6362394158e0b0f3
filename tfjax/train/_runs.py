"""A run as a directory: from a configuration to a trained model, and back."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr

from .._core import must
from ..nn import (
    ContinuousTransformer,
    Transformer,
    TransformerConfig,
    scaled_learning_rate,
    stable_initialization,
)
from ._checkpoint import load_checkpoint, read_metadata
from ._files import CHECKPOINT, Record, check_same
from ._fit import fit
from ._layer_geometry import layer_geometry
from ._optimizer import make_optimizer
from ._run_config import SOLVERS, RunConfig
from ._step import TrainState, start
from ._tasks import Task, make_task


class RunResult(NamedTuple):
    """What [`train_run`][] returns.

    - `state`: a [`TrainState`][].
    - `task`: a [`Task`][], with the data.
    - `records`: those of [`fit`][].
    - `validation`: what the whole of the validation data says; None if interrupted.
    - `geometry`: that of every layer of the trained model, lists by name as of
      [`LayerGeometry`][], where the configuration asks for it; else None.
    """

    state: TrainState
    task: Task
    records: list[Record]
    validation: dict[str, float] | None
    geometry: dict[str, list[float]] | None


class Run(NamedTuple):
    """A run that was read from its directory.

    - `model`: a [`tfjax.nn.Transformer`][], or a `ContinuousTransformer`.
    - `config`: a [`RunConfig`][].
    - `step`: how many steps it has had.
    - `alphabet`: of a text, else None; character k is token k.
    """

    model: Transformer | ContinuousTransformer
    config: RunConfig
    step: int
    alphabet: str | None


def train_run(
    config: RunConfig,
    directory: str | Path,
    *,
    resume: bool = False,
    progress: bool = False,
    ready: Callable[[], None] | None = None,
) -> RunResult:
    """Trains as a configuration says, in a directory from which it can go on.

    **Arguments:**

    - `config`: a [`RunConfig`][].
    - `directory`: where checkpoint and log are written; see [`fit`][].
    - `resume`: go on from its checkpoint; the configuration and the data must be those
      that it began with.
    - `progress`: show loss, throughput and the time left on stderr.
    - `ready`: is called when data and sizes were found to fit, before anything is
      written.

    **Returns:** a [`RunResult`][].

    **Raises:** as [`fit`][], and ValueError where data and sizes do not fit, before any
    work.

    !!! example

        >>> import tempfile
        >>> from tfjax.train import RunConfig, train_run
        >>> values = {"data": {"name": "digits"}, "training": {"steps": 2}}
        >>> values["model"] = {"layers": 1, "heads": 1, "head_dim": 8}
        >>> result = train_run(RunConfig.from_dict(values), tempfile.mkdtemp())
        >>> int(result.state.step), sorted(result.validation)
        (2, ['accuracy', 'calibration_error', 'nats'])

    Source: own.
    """
    training = config.training
    single = jax.dtypes.canonicalize_dtype("float64") == "float32"
    if training.precision == "float64" and single:
        rule = "be at most 'float32' where jax_enable_x64 is off"
        raise must("training.precision", rule, "'float64'")
    task = make_task(config)
    _check_sizes(config, task)
    if ready is not None:
        ready()
    half = training.precision == "bfloat16"
    geometry = _geometry(config, task)

    def look(model: Any) -> dict[str, Any]:
        found = task.look(model)
        return found if geometry is None else {**found, "geometry": geometry(model)}

    trained = fit(
        _begun(config, task),
        task.loss,
        task.batches,
        steps=training.steps,
        key=_keys(config)[1],
        optimizer=_optimizer(config, task.model.layers),
        accumulate=training.accumulate,
        clip=config.optimizer.clip or None,
        dtype=training.precision if half else None,
        evaluate=look,
        evaluate_every=training.evaluate_every,
        directory=directory,
        checkpoint_every=training.checkpoint_every,
        metadata=_metadata(config, task, Path(directory), resume),
        resume=resume,
        progress=progress,
        per_step=task.per_step,
        unit=task.unit,
    )
    model, found, shape = trained.state.model, None, None
    if trained.finished:
        found = task.judge(model)
        shape = None if geometry is None else geometry(model)
    return RunResult(trained.state, task, trained.records, found, shape)


def load_run(directory: str | Path) -> Run:
    """The model of a run, finished or not.

    **Arguments:**

    - `directory`: where [`train_run`][] or `tfjax train` wrote.

    **Returns:** a [`Run`][].

    **Raises:** FileNotFoundError where no run lies; ValueError, which names file and
    leaf, where it is damaged.

    !!! example

        >>> import tempfile
        >>> from tfjax.train import RunConfig, load_run, train_run
        >>> values = {"data": {"name": "digits"}, "training": {"steps": 2}}
        >>> values["model"] = {"layers": 1, "heads": 1, "head_dim": 8}
        >>> directory = tempfile.mkdtemp()
        >>> _ = train_run(RunConfig.from_dict(values), directory)
        >>> load_run(directory).step
        2

    Source: own.
    """
    file = Path(directory) / CHECKPOINT
    metadata = read_metadata(file)
    try:
        config = RunConfig.from_dict(metadata["config"])
        sizes = TransformerConfig.from_dict(metadata["transformer"])
        alphabet = metadata["data"].get("alphabet")
    except (KeyError, AttributeError, ValueError) as error:
        raise ValueError(f"{file} is of no run: {error}.") from error
    like = start(
        _fresh(config, sizes), _optimizer(config, sizes.layers), _keys(config)[1]
    )
    state, _ = load_checkpoint(file, like)
    return Run(state.model, config, int(state.step), alphabet)


def parameter_count(model: Any) -> int:
    """How many numbers of a model are trained.

    **Arguments:**

    - `model`: any tree.

    **Returns:** the number of entries of its floating-point arrays.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.train import parameter_count
        >>> parameter_count({"w": jnp.zeros((2, 3)), "name": "linear"})
        6

    Source: own.
    """
    arrays = eqx.filter(model, eqx.is_inexact_array)
    return sum(leaf.size for leaf in jax.tree.leaves(arrays))


def _check_sizes(config: RunConfig, task: Task) -> None:
    """Whether the model fits into memory, and a batch into the model."""
    sizes = task.model
    matrices = sizes.layers * (4 + 2 * sizes.mlp_ratio) * sizes.width**2
    have = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    # Parameters, their gradient, and AdamW's two means, of 4 bytes at least.
    if 16 * matrices > have:
        rule = f"be small enough to train in {have / 2**30:.0f} GiB of memory"
        raise must("model", rule, f"of {float(matrices):.3g} parameters")
    sequence = task.per_step if task.unit == "tokens" else config.training.batch
    if 4 * sequence > have:
        rule = f"fit into {have / 2**30:.0f} GiB of memory"
        raise must("training.batch", rule, config.training.batch)
    batch = jax.tree.map(jnp.asarray, task.batches(0))
    like = eqx.filter_eval_shape(lambda: _fresh(config, sizes))
    eqx.filter_eval_shape(task.loss, like, batch, _keys(config)[1])


def _metadata(
    config: RunConfig, task: Task, directory: Path, resume: bool
) -> dict[str, Any]:
    """What a checkpoint is told by; to go on, as the one at hand has it.

    One of an earlier version knows fewer keys, which had their defaults.
    """
    wanted = {
        "config": config.to_dict(),
        "transformer": task.model.to_dict(),
        "data": task.description,
    }
    if not resume:
        return wanted
    file = directory / CHECKPOINT
    found = read_metadata(file)
    try:
        spelt = {
            "config": RunConfig.from_dict(found["config"]).to_dict(),
            "transformer": TransformerConfig.from_dict(found["transformer"]).to_dict(),
        }
    except (KeyError, TypeError, ValueError):
        spelt = {}
    check_same(str(file), {**found, **spelt}, wanted)
    return found


def _geometry(
    config: RunConfig, task: Task
) -> Callable[[Any], dict[str, list[float]]] | None:
    """What measures the layers of a model, where that is wanted."""
    given = config.regularization
    if not given.metrics:
        return None
    inputs = jnp.asarray(task.inputs(task.batches(0))[:4])
    return lambda model: layer_geometry(
        model, inputs, key=_keys(config)[1], probes=given.probes
    ).to_dict()


def _keys(config: RunConfig):
    """Of the weights, and of the steps."""
    return jr.split(jr.key(config.seed))


def _fresh(
    config: RunConfig, sizes: TransformerConfig
) -> Transformer | ContinuousTransformer:
    double = config.training.precision == "float64"
    dtype = "float64" if double else "float32"
    key, depth = _keys(config)[0], config.depth
    if depth.kind == "discrete":
        return Transformer(sizes, key=key, dtype=dtype)
    return ContinuousTransformer(
        sizes,
        key=key,
        dtype=dtype,
        weights=depth.weights,
        solver=SOLVERS[depth.solver](),
        steps=depth.steps,
    )


def _begun(config: RunConfig, task: Task) -> Transformer | ContinuousTransformer:
    """The model before its first step."""
    model, given = _fresh(config, task.model), config.initialization
    if given.kind == "plain":
        return model
    inputs = jnp.asarray(task.inputs(task.batches(0))[:4])
    kind = cast(Literal["measured", "typical", "worst_case"], given.kind)
    stable = lambda m: stable_initialization(m, inputs, margin=given.margin, kind=kind)
    if isinstance(model, Transformer):
        return stable(model)
    layers = stable(model.transformer)
    return eqx.tree_at(lambda m: m.transformer, model, layers)


def _optimizer(config: RunConfig, layers: int):
    given = config.optimizer
    rate = given.learning_rate
    if given.tuned_at:
        exponent = config.model.get("branch_exponent", 0.0)
        rate = float(
            scaled_learning_rate(rate, layers, exponent, tuned_at=given.tuned_at)
        )
    return make_optimizer(
        steps=config.training.steps,
        learning_rate=rate,
        schedule=given.schedule,
        warmup=given.warmup,
        final=given.final,
        weight_decay=given.weight_decay,
        betas=(given.betas[0], given.betas[1]),
    )
