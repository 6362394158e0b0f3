"""A whole run: goes on bit for bit, survives kills and full disks, names mistakes."""

import errno
import functools
import json
import os
import signal
import subprocess
import sys
import textwrap

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import tfjax.train._files as files
import tfjax.train._fit as fitting
from tfjax.train import (
    fit,
    load_checkpoint,
    make_optimizer,
    make_step,
    rate_schedule,
    read_log,
)


STEPS = 10


class Model(eqx.Module):
    w: jax.Array
    scale: jax.Array


def loss(model, batch, key):
    x, y = batch
    noise = 0.01 * jax.random.normal(key, (), jnp.float32)
    guess = x @ model.w * model.scale.reshape(1)
    return jnp.mean((guess - y + noise) ** 2)


def batches(step):
    x = np.random.default_rng(step).standard_normal((8, 3)).astype(np.float32)
    return x, x @ np.array([1.0, -2.0, 0.5], np.float32)


def model():
    return Model(jnp.zeros(3, jnp.float32), jnp.ones((), jnp.float32))


OPTIMIZER = make_optimizer(steps=STEPS, learning_rate=0.1, warmup=3)


def run(directory=None, *, batches=batches, **options):
    options = {"steps": STEPS, "optimizer": OPTIMIZER} | options
    return fit(
        model(), loss, batches, key=jax.random.key(0), directory=directory, **options
    )


def arrays(state):
    leaves = jax.tree.leaves(eqx.filter(state, eqx.is_array))
    is_key = lambda x: jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
    return [jax.random.key_data(x) if is_key(x) else x for x in leaves]


def same(one, other):
    for a, b in zip(*map(arrays, (one, other)), strict=True):
        np.testing.assert_array_equal(a, b)


def without_times(records):
    return [{k: v for k, v in r.items() if k != "per_second"} for r in records]


@pytest.fixture(scope="module", autouse=True)
def _compile_once():
    """Every run would compile its step anew."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "make_step", functools.cache(make_step))
        yield


@pytest.fixture(scope="module")
def whole(_compile_once):
    return run(evaluate=lambda m: {"w": float(m.w[0])}, evaluate_every=4)


def interrupting(at, seen, number=signal.SIGINT):
    """Batches of which one comes with a signal, as of a person at the keyboard."""

    def given(step):
        seen.append(step)
        if step == at:
            os.kill(os.getpid(), number)
        return batches(step)

    return given


@pytest.mark.parametrize("stop", range(1, STEPS))
def test_an_interrupted_run_goes_on_to_the_same_result(tmp_path, stop, whole, capsys):
    judge = {"evaluate": lambda m: {"w": float(m.w[0])}, "evaluate_every": 4}
    seen = []
    number = (signal.SIGINT, signal.SIGTERM)[stop % 2]
    part = run(tmp_path, batches=interrupting(stop - 1, seen, number), **judge)
    assert (part.finished, int(part.state.step)) == (False, stop)
    assert "Stopping after this step" in capsys.readouterr().err
    rest = run(tmp_path, batches=interrupting(None, seen), resume=True, **judge)
    assert rest.finished
    assert seen == list(range(STEPS))
    same(rest.state, whole.state)
    assert without_times(rest.records) == without_times(whole.records)
    written = read_log(tmp_path / "log.jsonl")
    assert without_times(written) == without_times(whole.records)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_second_interrupt_ends_at_once_and_the_checkpoint_before_stands(tmp_path):
    def twice(step):
        if step == 7:
            for _ in range(2):
                os.kill(os.getpid(), signal.SIGINT)
        return batches(step)

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, batches=twice, checkpoint_every=3)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    state, _ = load_checkpoint(tmp_path / "checkpoint.npz", run(steps=1).state)
    assert int(state.step) == 6
    same(run(tmp_path, resume=True).state, run().state)


KILLED = """
    import os, signal, sys
    sys.path.insert(0, {folder!r})
    import numpy as np
    import test_fit as t

    saves, real = 0, np.savez

    def savez(file, **given):
        global saves
        saves += 1
        real(file, **given)
        if saves == 6:  # two at the beginning: in the middle of that of step 4
            file.flush()
            os.truncate(file.name, os.path.getsize(file.name) // 2)
            os.kill(os.getpid(), signal.SIGKILL)

    np.savez = savez
    t.run(sys.argv[1], checkpoint_every=1)
"""


def test_a_kill_in_the_middle_of_saving_leaves_the_former_checkpoint(tmp_path, whole):
    folder = os.path.dirname(__file__)
    script = textwrap.dedent(KILLED.format(folder=folder))
    command = [sys.executable, "-c", script, str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    file = tmp_path / "run" / "checkpoint.npz"
    state, _ = load_checkpoint(file, run(steps=1).state)
    assert int(state.step) == 3
    same(run(tmp_path / "run", resume=True).state, whole.state)


def test_a_line_of_the_log_that_was_cut_off_is_left_out(tmp_path, whole):
    run(tmp_path, batches=interrupting(4, []))
    with (tmp_path / "log.jsonl").open("a") as stream:
        stream.write('{"step": 6, "lo')
    run(tmp_path, resume=True)
    steps = [r["step"] for r in read_log(tmp_path / "log.jsonl")]
    assert steps == list(range(1, STEPS + 1))
    (tmp_path / "log.jsonl").write_text('{"step": 1}\nrubbish\n{"step": 3}\n')
    with pytest.raises(ValueError, match=r"log.jsonl: line 2 is no record of a step"):
        read_log(tmp_path / "log.jsonl")


def full(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_disk_that_is_full_at_the_beginning_costs_no_work(tmp_path, monkeypatch):
    monkeypatch.setattr(np, "savez", full)
    seen = []
    with pytest.raises(OSError, match="No space left"):
        run(tmp_path / "run", batches=interrupting(None, seen))
    assert not seen
    assert not list((tmp_path / "run").iterdir())


def test_an_interruption_of_the_first_checkpoint_leaves_no_half_of_a_run(
    tmp_path, monkeypatch
):
    real, saves = np.savez, []

    def savez(file, **given):
        saves.append(1)
        if len(saves) == 2:
            raise KeyboardInterrupt
        real(file, **given)

    monkeypatch.setattr(np, "savez", savez)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path)
    assert not list(tmp_path.iterdir())
    run(tmp_path, steps=1)


def test_a_disk_that_fills_up_is_waited_for(tmp_path, monkeypatch, capsys, whole):
    real, saves = np.savez, []

    def savez(file, **given):
        saves.append(1)
        if 4 <= len(saves) <= 6:
            full()
        real(file, **given)

    monkeypatch.setattr(np, "savez", savez)
    found = run(tmp_path, checkpoint_every=1)
    same(found.state, whole.state)
    assert "No space left on device; going on." in capsys.readouterr().err
    state, _ = load_checkpoint(tmp_path / "checkpoint.npz", found.state)
    assert int(state.step) == STEPS


def test_a_disk_that_stays_full_is_an_error_that_says_what_is_there(
    tmp_path, monkeypatch
):
    real, saves = np.savez, []

    def savez(file, **given):
        saves.append(1)
        if len(saves) > 6:
            full()
        real(file, **given)

    monkeypatch.setattr(np, "savez", savez)
    with pytest.raises(OSError, match="holds the run up to step 4 of 10 only: No spa"):
        run(tmp_path, checkpoint_every=1)
    monkeypatch.undo()
    same(run(tmp_path, resume=True).state, run().state)


def test_the_log_catches_up_after_a_full_disk(tmp_path, monkeypatch, whole):
    real, calls = files.RunFiles._append, []

    def append(self):
        calls.append(1)
        if 3 <= len(calls) <= 5:
            full()
        real(self)

    monkeypatch.setattr(files.RunFiles, "_append", append)
    run(tmp_path)
    assert [r["step"] for r in read_log(tmp_path / "log.jsonl")] == [*range(1, 11)]


def test_nothing_is_overwritten_and_another_run_is_not_gone_on_with(tmp_path):
    run(tmp_path, steps=2, metadata={"a": {"b": 1}})
    with pytest.raises(ValueError, match="`directory` must hold no run"):
        run(tmp_path)
    with pytest.raises(ValueError, match=r"`a.b` must be 2, but was 1\."):
        run(tmp_path, resume=True, metadata={"a": {"b": 2}})
    with pytest.raises(ValueError, match="`steps` must be at least the 2 taken before"):
        run(tmp_path, steps=1, resume=True, metadata={"a": {"b": 1}})
    with pytest.raises(FileNotFoundError, match="There is no checkpoint"):
        run(tmp_path / "nothing", resume=True)
    with pytest.raises(ValueError, match="`directory` must be given with `resume`"):
        run(resume=True)


def test_a_run_that_cannot_recover_is_ended_and_a_bad_step_is_not(tmp_path):
    def bad(step):
        x, y = batches(step)
        return (x, np.full_like(y, np.nan)) if step == 2 else (x, y)

    found = run(tmp_path, batches=bad)
    assert [r["skipped"] for r in found.records].count(True) == 1
    assert int(found.state.skipped) == 1
    line = (tmp_path / "log.jsonl").read_text().splitlines()[2]
    assert json.loads(line)["loss"] is None
    never = lambda step: (batches(step)[0], np.full(8, np.nan, np.float32))
    with pytest.raises(RuntimeError, match="No gradient has been finite since step 1"):
        run(batches=never, steps=30)


def test_progress_says_loss_rate_and_what_is_left(capsys):
    judge = {"evaluate": lambda m: {"w": 1.0}, "evaluate_every": 5}
    run(progress=True, per_step=8, unit="tokens", **judge)
    printed = capsys.readouterr().err
    assert "step 5: w 1.0000" in printed
    assert "step 10/10, loss" in printed
    assert "tokens/s, 0 s left" in printed
    run()
    assert capsys.readouterr().err == ""


def test_the_rate_rises_then_falls_as_it_says():
    rates = {}
    for schedule in ("cosine", "linear", "constant"):
        rate = rate_schedule(
            steps=100, learning_rate=0.5, schedule=schedule, warmup=10, final=0.1
        )
        rates[schedule] = [float(rate(step)) for step in (0, 5, 10, 55, 100)]
    np.testing.assert_allclose(rates["cosine"], [0, 0.25, 0.5, 0.275, 0.05], rtol=1e-6)
    np.testing.assert_allclose(rates["linear"], [0, 0.25, 0.5, 0.275, 0.05], rtol=1e-6)
    np.testing.assert_allclose(rates["constant"], [0, 0.25, 0.5, 0.5, 0.5], rtol=1e-6)


def test_scales_and_vectors_do_not_decay():
    optimizer = make_optimizer(
        steps=10, learning_rate=0.1, schedule="constant", weight_decay=1.0
    )

    class Two(eqx.Module):
        up: jax.Array
        scale: jax.Array
        bias: jax.Array

    two = Two(*(jnp.ones(s, jnp.float32) for s in ((2, 2), (2, 2), (2,))))
    zeros = jax.tree.map(jnp.zeros_like, two)
    with jax.numpy_dtype_promotion("standard"):
        updates, _ = optimizer.update(zeros, optimizer.init(two), two)
        moved = optax.apply_updates(two, updates)
    np.testing.assert_allclose(moved.up, 0.9, rtol=1e-6)
    np.testing.assert_array_equal(moved.scale, 1)
    np.testing.assert_array_equal(moved.bias, 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"learning_rate": 0.0}, "`learning_rate` must be positive, but was 0.0"),
        ({"schedule": "up"}, "`schedule` must be one of 'cosine', 'linear', 'const"),
        ({"warmup": 10}, r"`warmup` must lie in \[0, steps = 10\), but was 10"),
        ({"final": 2.0}, r"`final` must lie in \[0, 1\], but was 2.0"),
        ({"weight_decay": -1.0}, "`weight_decay` must be at least 0, but was -1.0"),
        ({"betas": (0.9, 1.0)}, r"`betas` must be two numbers in \[0, 1\)"),
    ],
)
def test_an_optimizer_that_cannot_be_is_named(options, message):
    with pytest.raises(ValueError, match=message):
        make_optimizer(steps=10, **options)
