"""What `tfjax train` does."""

import argparse
import json
import math
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr

from ..figures import plot_training, save_figure
from ..nn import Transformer
from ..train import (
    DATA,
    RunConfig,
    RunResult,
    Text,
    export_safetensors,
    fetch_data,
    find_data,
    parameter_count,
    read_config,
    read_metadata,
    ready_configs,
    sample,
    train_run,
)
from ._errors import FailedRun, InputError, must, unreadable
from ._output import write_json
from ._versions import versions
from .train import FILES


# Written at the end, and written anew when a run goes on.
_CHECKPOINT = FILES[0]


def listed() -> str:
    """The ready configurations, a line each."""
    names = ready_configs()
    width = max(map(len, names))
    lines = []
    for name in names:
        config = read_config(name)
        model = config.transformer(vocabulary=2)
        text = f"{model.layers} layers of width {model.width}, {config.training.steps}"
        what = config.data.set or config.data.name
        lines.append(f"{name:<{width}}  {what}: {text} steps")
    return "\n".join(lines)


def configuration(arguments: argparse.Namespace) -> RunConfig:
    """The file with what the command line changes in it; or that of the checkpoint."""
    if arguments.resume:
        values = _of_checkpoint(arguments.out)
        if arguments.config is None:
            changed = arguments.set or arguments.quick or arguments.seed is not None
            if changed:
                rule = "be given alone, or with the --config that the run began with"
                raise must("--resume", rule, "with --set, --seed or --quick")
            return _checked(values)
    elif arguments.config is None:
        names = ", ".join(ready_configs())
        raise InputError(f"`--config` must be given: a file, or one of {names}.")
    try:
        config = read_config(arguments.config)
    except FileNotFoundError as error:
        raise InputError(str(error)) from error
    except OSError as error:
        raise unreadable("--config", Path(arguments.config), error) from error
    except ValueError as error:
        raise InputError(str(error)) from error
    values = config.to_dict()
    if arguments.quick:
        training = values["training"]
        training["steps"] = max(20, training["steps"] // 50)
        training["baselines"] = False
        warmup = values["optimizer"]["warmup"]
        values["optimizer"]["warmup"] = min(warmup, training["steps"] // 5)
    for word in arguments.set:
        _change(values, word)
    if arguments.seed is not None:
        values["seed"] = arguments.seed
    return _checked(values)


def train(config: RunConfig, arguments: argparse.Namespace) -> int:
    """Trains, and says what came of it; returns the exit code."""
    out: Path = arguments.out
    begin = time.perf_counter()
    with jax.enable_x64(config.training.precision == "float64"):
        try:
            _bring(config)
            ready = None if arguments.resume else lambda: _make_room(out)
            result = train_run(
                config, out, resume=arguments.resume, progress=True, ready=ready
            )
        except (FileNotFoundError, ValueError, ImportError) as error:
            raise InputError(str(error)) from error
        except (MemoryError, OverflowError) as error:
            raise InputError(f"The run does not fit into memory: {error}.") from error
        except RuntimeError as error:
            raise FailedRun(str(error)) from error
        except OSError as error:
            reason = error.strerror or str(error)
            raise FailedRun(
                f"The run could not be written to {out}: {reason}."
            ) from error
        if result.validation is None:
            step = int(result.state.step)
            print(
                f"Interrupted after step {step} of {config.training.steps}; "
                f"`tfjax train --resume --out {out}` goes on.",
                file=sys.stderr,
            )
            return 130
        try:
            _finish(config, result, out, time.perf_counter() - begin)
        except OSError as error:
            reason = error.strerror or str(error)
            text = f"The results could not be written to {out}: {reason}; "
            text += f"`tfjax train --resume --out {out}` tries again."
            raise FailedRun(text) from error
    return 0


def _finish(config: RunConfig, result: RunResult, out: Path, seconds: float) -> None:
    task, found = result.task, result.validation or {}
    baselines = task.baselines() if config.training.baselines else {}
    print(_table(task.metric, found[task.metric], baselines))
    others = {k: v for k, v in found.items() if k != task.metric}
    print("  ".join(f"{name} {value:.4f}" for name, value in others.items()))
    model = result.state.model
    write_json(out / "config.json", config.to_dict())
    if isinstance(task.data, Text):
        text = _continued(model, task.data, config.seed)
        (out / "sample.txt").write_text(text + "\n", encoding="utf-8")
    _export(out / "model.safetensors", model, config)
    plot = plot_training(
        result.records, metric=task.metric, baselines=baselines, unit=task.unit
    )
    save_figure(plot.figure, out / "training.png")
    rates = [r["per_second"] for r in result.records if r["per_second"]]
    summary = {
        "config": config.to_dict(),
        "versions": versions(),
        "parameters": parameter_count(model),
        "steps": int(result.state.step),
        "skipped": int(result.state.skipped),
        "metric": task.metric,
        # JSON knows no infinity: the perplexity of a run that diverged.
        "validation": {k: _finite(v) for k, v in found.items()},
        "baselines": baselines,
        "geometry": {k: [*map(_finite, v)] for k, v in (result.geometry or {}).items()},
        f"{task.unit}_per_second": round(rates[-1]) if rates else None,
        "seconds": round(seconds, 1),
    }
    write_json(out / "summary.json", summary)
    print(f"{out}: {', '.join(f for f in FILES if (out / f).exists())}")
    if not all(map(math.isfinite, found.values())):
        text = "The run diverged: its validation is not finite. A lower "
        raise FailedRun(text + "`optimizer.learning_rate` may help.")


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _export(path: Path, model: Any, config: RunConfig) -> None:
    """Weights for other libraries, where the library for that is installed."""
    layers = model if isinstance(model, Transformer) else model.transformer
    metadata = {"run_config": json.dumps(config.to_dict())}
    try:
        export_safetensors(path, layers, metadata=metadata)
    except ImportError as error:
        print(f"{path.name} is left out: {error}", file=sys.stderr)


def _table(metric: str, found: float, baselines: dict[str, float]) -> str:
    rows = {"this model": found} | baselines
    width = max(map(len, rows))
    lines = [f"validation, {metric.replace('_', ' ')}"]
    lines += [f"  {name:<{width}}  {value:.4f}" for name, value in rows.items()]
    return "\n".join(lines)


def _continued(model: Any, data: Text, seed: int) -> str:
    """What the model writes after the beginning of the validation text."""
    prompt = jnp.asarray(data.validation[:32].astype("int32"))
    drawn = sample(model, prompt, 500, key=jr.key(seed), temperature=0.8)
    return data.decode(data.validation[:32]) + data.decode(jax.device_get(drawn))


def _of_checkpoint(out: Path) -> dict[str, Any]:
    try:
        metadata = read_metadata(out / _CHECKPOINT)
        return metadata["config"]
    except FileNotFoundError as error:
        text = f"There is no run in {out} to go on with: no {_CHECKPOINT} is there."
        raise InputError(text) from error
    except KeyError as error:
        raise must("--out", "hold a run of `tfjax train`", out) from error
    except ValueError as error:
        raise InputError(str(error)) from error


def _checked(values: dict[str, Any]) -> RunConfig:
    try:
        return RunConfig.from_dict(values)
    except ValueError as error:
        raise InputError(str(error)) from error


def _change(values: dict[str, Any], word: str) -> None:
    """Puts `section.key=value` in its place; a bare word is a text."""
    path, sign, text = word.partition("=")
    if not sign or not path:
        raise must("--set", "be KEY=VALUE, such as training.steps=500", repr(word))
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        value = text
    *sections, key = path.strip().split(".")
    place = values
    for section in sections:
        if place.get(section) is None:  # a section that is left out
            place[section] = {}
        place = place[section]
        if not isinstance(place, dict):
            raise must("--set", "name a key of a section", repr(word))
    place[key] = value


def _bring(config: RunConfig) -> None:
    """Published data that are not here are fetched, once, and that is said."""
    name = config.data.name
    if name not in DATA:
        return
    try:
        find_data(name)
    except FileNotFoundError:
        print(f"{name}: downloading {DATA[name].megabytes} MB, once ...", flush=True)
        fetch_data(name)


def _make_room(out: Path) -> None:
    """Removes the files of an earlier run, which --force allowed."""
    own = [name for name in FILES if (out / name).exists()]
    if own:
        print(f"Replacing in {out}: {', '.join(own)}.")
    for name in own:
        (out / name).unlink()
