"""Runs as directories: batches, evaluation, samples, and going on to the same end."""

import functools
import os
import signal

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tfjax.train._fit as fitting
import tfjax.train._runs as runs
from tfjax.nn import (
    ContinuousTransformer,
    Transformer,
    TransformerConfig,
    attention_margins,
)
from tfjax.train import (
    LayerGeometry,
    RunConfig,
    cross_entropy,
    evaluate_examples,
    evaluate_text,
    load_run,
    make_optimizer,
    make_step,
    make_task,
    parameter_count,
    read_log,
    read_metadata,
    sample,
    save_checkpoint,
    train_run,
)


# Models of runs are in float32, whatever the default: once is enough.
pytestmark = pytest.mark.slow
MODEL = {"context": 16, "layers": 1, "heads": 2, "head_dim": 8}
# Not tied: an untrained model that is tied repeats its last token.
CONFIG = TransformerConfig(vocabulary=7, tied=False, **MODEL)


@pytest.fixture(scope="module", autouse=True)
def _compile_once():
    """Runs of the same settings would compile the same step again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "make_step", functools.cache(make_step))
        patch.setattr(runs, "make_optimizer", functools.cache(make_optimizer))
        yield


@pytest.fixture(scope="module")
def model():
    return Transformer(CONFIG, key=jax.random.key(5), dtype="float32")


@pytest.fixture(scope="module")
def plays(tmp_path_factory):
    """A text of two files, whose characters follow a rule with some chance in it."""
    folder = tmp_path_factory.mktemp("plays")
    for name in "ab":
        draws = np.random.default_rng(ord(name)).integers(1, 3, 3000)
        text = "".join("abcdefg"[k] for k in np.cumsum(draws) % 7)
        (folder / f"{name}.txt").write_text(text)
    return folder


def config(plays, **training):
    training = {"steps": 6, "batch": 4, "checkpoint_every": 2} | training
    values = {"data": {"name": "text", "path": str(plays)}, "model": MODEL}
    return RunConfig.from_dict(values | {"training": training})


def test_batches_are_passages_of_the_text_and_a_function_of_the_step(plays):
    task = make_task(config(plays))
    text = task.data.decode(task.data.train)
    for step in (0, 1):
        batch = task.batches(step)
        assert batch.shape == (4, 17)
        for row in batch:
            assert task.data.decode(row) in text
        np.testing.assert_array_equal(batch, task.batches(step))
    assert not np.array_equal(task.batches(0), task.batches(1))
    assert (task.per_step, task.unit, task.metric) == (64, "tokens", "bits")


def test_each_epoch_of_examples_sees_every_one_once():
    values = {"data": {"name": "digits"}, "training": {"batch": 50}}
    task = make_task(RunConfig.from_dict(values))
    count = len(task.data.train_inputs)
    seen = np.concatenate([task.batches(s)[0] for s in range(2 * count // 50 + 1)])
    rows = lambda a: sorted(map(bytes, np.ascontiguousarray(a)))
    epochs = seen[:count], seen[count : 2 * count]
    for epoch in epochs:
        assert rows(epoch) == rows(task.data.train_inputs)
    assert not np.array_equal(*epochs)
    labels = np.concatenate([task.batches(s)[1] for s in range(3)])
    first = {bytes(np.ascontiguousarray(x)): y for x, y in zip(
        task.data.train_inputs, task.data.train_labels, strict=True)}  # fmt: skip
    found = [first[bytes(np.ascontiguousarray(x))] for x in seen[:150]]
    np.testing.assert_array_equal(labels, found)


@pytest.mark.parametrize("length", [2, 10, 17, 18, 40, 100])
@pytest.mark.parametrize("stride", [None, 8, 5])
def test_every_token_but_the_first_is_counted_once(model, length, stride):
    """Against a loop that guesses each token from its window."""
    tokens = np.random.default_rng(length).integers(0, 7, length)
    found = evaluate_text(model, tokens, stride=stride, batch=3)
    context = min(16, length - 1)
    step = min(stride or 16, context)
    starts = [*range(0, length - context, step)]
    starts += [length - 1 - context] * (starts[-1] != length - 1 - context)
    nats, done = [], 0
    log_p = jax.nn.log_softmax(_windows(model, tokens, starts, context))
    for row, begin in zip(np.asarray(log_p), starts, strict=True):
        for place in range(context):
            if begin + place >= done:
                nats.append(-row[place, tokens[begin + place + 1]])
                done = begin + place + 1
    assert len(nats) == length - 1
    assert found["nats"] == pytest.approx(np.mean(nats), rel=1e-5)
    assert found["bits"] == pytest.approx(np.mean(nats) / np.log(2), rel=1e-5)
    assert found["perplexity"] == pytest.approx(np.exp(np.mean(nats)), rel=1e-5)


def _windows(model, tokens, starts, context):
    rows = np.stack([tokens[s : s + context] for s in starts])
    return jax.jit(lambda rows: model(rows))(jnp.asarray(rows, jnp.int32))


def test_a_look_is_at_windows_that_are_spread_evenly(model):
    tokens = np.random.default_rng(0).integers(0, 7, 161)
    whole = evaluate_text(model, tokens)
    parts = [evaluate_text(model, tokens[k : k + 17]) for k in range(0, 160, 16)]
    mean = np.mean([part["nats"] for part in parts])
    assert whole["nats"] == pytest.approx(mean, rel=1e-5)
    two = evaluate_text(model, tokens, windows=2)
    ends = np.mean([parts[0]["nats"], parts[-1]["nats"]])
    assert two["nats"] == pytest.approx(ends, rel=1e-5)


def test_what_cannot_be_evaluated_is_named(model):
    with pytest.raises(
        ValueError, match=r"`tokens` must have shape \(n,\), n at least"
    ):
        evaluate_text(model, np.zeros(1, int))
    with pytest.raises(ValueError, match="`stride` must be at most 16, but was 17"):
        evaluate_text(model, np.zeros(40, int), stride=17)
    with pytest.raises(
        ValueError, match=r"`labels` must have shape \(m,\), for inputs"
    ):
        evaluate_examples(model, np.zeros((3, 4, 2), np.float32), np.zeros(2, int))


def test_classes_are_judged_in_parts_as_in_one_piece():
    config = TransformerConfig(
        vocabulary=None, features=3, classes=4, context=5, layers=1, heads=1, head_dim=8
    )
    model = Transformer(config, key=jax.random.key(1), dtype="float32")
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((11, 5, 3)).astype(np.float32)
    labels = rng.integers(0, 4, 11)
    found = evaluate_examples(model, inputs, labels, batch=4)
    logits = np.asarray(jax.jit(lambda x: model(x))(jnp.asarray(inputs)))
    assert found["accuracy"] == pytest.approx(np.mean(logits.argmax(-1) == labels))
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    nats = -np.mean(log_p[np.arange(11), labels])
    assert found["nats"] == pytest.approx(nats, rel=1e-5)


def test_a_sample_is_drawn_token_by_token_from_the_last_context(model):
    """At temperature 0 against a loop, beyond the length of the context."""
    prompt = [1, 2, 3]
    found = sample(model, jnp.array(prompt), 30, key=jax.random.key(0), temperature=0)
    logits = jax.jit(lambda window: model(window))
    tokens = list(prompt)
    for _ in range(30):
        known = tokens[-16:]
        window = np.zeros(16, np.int32)
        window[: len(known)] = known
        tokens.append(int(jnp.argmax(logits(jnp.asarray(window))[len(known) - 1])))
    assert found.tolist() == tokens[3:]
    assert len(set(found.tolist())) > 1


def test_draws_have_the_probabilities_of_the_model(model):
    prompt, keys = jnp.array([1, 2, 3]), jax.random.split(jax.random.key(0), 4000)
    p = np.asarray(jax.nn.softmax(model(prompt)[-1] / 2))
    draw = lambda key: sample(model, prompt, 1, key=key, temperature=2.0)[0]
    shares = np.bincount(jax.vmap(draw)(keys), minlength=7) / 4000
    assert np.all(np.abs(shares - p) < 5 * np.sqrt(p * (1 - p) / 4000))
    best = lambda key: sample(model, prompt, 1, key=key, top_k=2)[0]
    assert set(jax.vmap(best)(keys).tolist()) == set(np.argsort(-p)[:2].tolist())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"prompt": jnp.array([], int)}, "`prompt` must have at least one token"),
        ({"length": 0}, "`length` must be a positive integer, but was 0"),
        ({"temperature": -1.0}, "`temperature` must be at least 0, but was -1.0"),
        ({"top_k": 0}, "`top_k` must be a positive integer, but was 0"),
    ],
)
def test_what_cannot_be_drawn_is_named(model, given, message):
    given = {"prompt": jnp.array([1]), "length": 2} | given
    prompt, length = given.pop("prompt"), given.pop("length")
    with pytest.raises(ValueError, match=message):
        sample(model, prompt, length, key=jax.random.key(0), **given)


def test_a_run_is_reproducible_and_goes_on_to_the_same_result(
    plays, tmp_path, monkeypatch
):
    whole = train_run(config(plays), tmp_path / "whole")
    again = train_run(config(plays), tmp_path / "again")
    assert again.validation == whole.validation
    real = np.random.default_rng

    def rng(seed):
        if seed == [0, 3]:  # the batch of the fourth step
            os.kill(os.getpid(), signal.SIGINT)
        return real(seed)

    with monkeypatch.context() as patch:
        patch.setattr(np.random, "default_rng", rng)
        part = train_run(config(plays), tmp_path / "part")
    assert part.validation is None
    assert load_run(tmp_path / "part").step == 4
    rest = train_run(config(plays), tmp_path / "part", resume=True)
    assert rest.validation == whole.validation
    leaves = lambda run: jax.tree.leaves(run.state.model)
    for a, b in zip(leaves(rest), leaves(whole), strict=True):
        np.testing.assert_array_equal(a, b)
    found = load_run(tmp_path / "whole")
    for a, b in zip(jax.tree.leaves(found.model), leaves(whole), strict=True):
        np.testing.assert_array_equal(a, b)
    assert (found.step, found.alphabet) == (6, "abcdefg")
    assert found.config == config(plays)


def test_another_text_or_configuration_is_not_gone_on_with(plays, tmp_path):
    train_run(config(plays, steps=2), tmp_path / "run")
    with pytest.raises(
        ValueError, match="`config.training.batch` must be 8, but was 4"
    ):
        train_run(config(plays, steps=2, batch=8), tmp_path / "run", resume=True)
    (plays / "a.txt").write_text((plays / "a.txt").read_text().swapcase())
    with pytest.raises(ValueError, match="npz: `data.alphabet` must be"):
        train_run(config(plays, steps=2), tmp_path / "run", resume=True)


def test_a_default_may_be_spelt_out(plays):
    values = config(plays).to_dict()
    assert RunConfig.from_dict(values) == config(plays)
    assert values["model"]["scan"] is False
    short = {"data": values["data"], "model": {"layers": 2}}
    spelt = {"data": values["data"], "model": {"layers": 2, "scan": False}}
    assert RunConfig.from_dict(short).to_dict() == RunConfig.from_dict(spelt).to_dict()
    digits = RunConfig.from_dict({"data": {"name": "digits"}})
    assert make_task(digits).model.context == 8


def test_a_run_goes_on_without_its_log_and_tidies_up(plays, tmp_path):
    out = tmp_path / "run"
    train_run(config(plays, steps=2), out)
    (out / "log.jsonl").unlink()
    left = out / ".checkpoint.npz.999999999"
    left.write_text("of a process that was killed")
    again = train_run(config(plays, steps=2), out, resume=True)
    assert int(again.state.step) == 2
    assert (out / "log.jsonl").read_text() == ""
    train_run(config(plays, steps=2), tmp_path / "other")
    assert not [f for f in (tmp_path / "other").iterdir() if f.name[0] == "."]


def test_data_that_do_not_fit_are_told_before_any_work(plays, tmp_path):
    short = tmp_path / "short.txt"
    short.write_text("ab" * 8)
    with pytest.raises(ValueError, match="`model.context` must be shorter than the 14"):
        train_run(config(short), tmp_path / "run")
    values = config(plays).to_dict()
    values["model"]["causal"] = False
    with pytest.raises(ValueError, match="`model.causal` must be true, or left out"):
        make_task(RunConfig.from_dict(values))
    values = {"data": {"name": "digits"}, "model": {"context": 4}}
    with pytest.raises(ValueError, match="`model.context` must be at least 8, the len"):
        make_task(RunConfig.from_dict(values))
    values = {"data": {"name": "digits"}, "training": {"batch": 5000}}
    with pytest.raises(ValueError, match="`training.batch` must be at most"):
        make_task(RunConfig.from_dict(values))
    if not jax.config.read("jax_enable_x64"):
        with pytest.raises(ValueError, match="`training.precision` must be at most"):
            train_run(config(plays, precision="float64"), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(FileNotFoundError, match="There is no checkpoint"):
        load_run(tmp_path)


def test_weights_can_begin_with_a_margin_and_the_rate_can_follow_the_depth(
    plays, tmp_path
):
    values = config(plays, steps=1).to_dict()
    values["initialization"] = {"kind": "worst_case", "margin": 4.0}
    values["optimizer"]["learning_rate"] = 1e-12
    found = train_run(RunConfig.from_dict(values), tmp_path / "run")
    tokens = found.task.inputs(found.task.batches(0))[:4]
    margins = attention_margins(found.state.model, jnp.asarray(tokens))
    np.testing.assert_allclose(margins.worst_case, 4.0, rtol=1e-3)
    same = load_run(tmp_path / "run").model
    np.testing.assert_array_equal(same.embedding, found.state.model.embedding)

    values["optimizer"] = {"learning_rate": 0.1, "schedule": "constant", "tuned_at": 4}
    deep = RunConfig.from_dict(values)
    moved = train_run(deep, tmp_path / "deep").state.model.embedding
    # Adam's first step is the rate: four times that of four layers, for one layer.
    step = np.abs(moved - same.embedding * (1 - 0.4 * 0.1)).max()
    assert step == pytest.approx(0.4, rel=1e-2)


def test_depth_may_be_time(plays, tmp_path):
    values = config(plays, steps=3).to_dict() | {"depth": {"kind": "continuous"}}
    values["initialization"] = {"kind": "typical"}
    run = train_run(RunConfig.from_dict(values), tmp_path / "run")
    assert isinstance(run.state.model, ContinuousTransformer)
    found = load_run(tmp_path / "run").model
    layers = lambda model: jax.tree.leaves(model.transformer)
    for a, b in zip(layers(found), layers(run.state.model), strict=True):
        np.testing.assert_array_equal(a, b)
    drawn = sample(found, jnp.array([0, 1]), 4, key=jax.random.key(0))
    assert drawn.shape == (4,)


def test_attention_may_be_bayesian_and_its_divergence_is_in_the_loss(plays, tmp_path):
    values = config(plays, steps=2).to_dict()
    values["model"]["bayesian"] = {"scores": "stochastic"}
    values["regularization"]["divergence"] = 0.5
    given = RunConfig.from_dict(values)
    run = train_run(given, tmp_path / "run")
    model, batch = run.state.model, jnp.asarray(run.task.batches(0))
    key = jax.random.key(0)
    logits, divergence = model.logits_and_divergence(batch[:, :-1], key=key)
    expected = cross_entropy(logits, batch[:, 1:]) + 0.5 * divergence
    np.testing.assert_allclose(run.task.loss(model, batch, key), expected, rtol=1e-6)
    assert 0.5 * divergence > 1e-3
    found = load_run(tmp_path / "run").model
    assert found.config.bayesian == model.config.bayesian
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(model), strict=True):
        np.testing.assert_array_equal(a, b)
    drawn = sample(found, jnp.array([0, 1]), 4, key=key)
    assert drawn.shape == (4,)


def test_a_run_of_an_earlier_version_is_gone_on_with(plays, tmp_path):
    """Its checkpoint knows fewer keys, which had their defaults."""
    out = tmp_path / "run"
    state = train_run(config(plays, steps=2), out).state
    file = out / "checkpoint.npz"
    metadata = read_metadata(file)
    del metadata["config"]["regularization"], metadata["transformer"]["scan"]
    save_checkpoint(file, state, metadata=metadata)
    assert load_run(out).config == config(plays, steps=2)
    again = train_run(config(plays, steps=2), out, resume=True)
    assert int(again.state.step) == 2
    with pytest.raises(ValueError, match="`config.training.batch` must be 8, but wa"):
        train_run(config(plays, steps=2, batch=8), out, resume=True)
    values = config(plays, steps=2).to_dict()
    values["regularization"]["kinetic"] = 0.5
    with pytest.raises(ValueError, match="`config.regularization.kinetic` must be 0.5"):
        train_run(RunConfig.from_dict(values), out, resume=True)


def test_a_run_has_terms_for_its_geometry_and_logs_that_of_every_layer(plays, tmp_path):
    values = config(plays, evaluate_every=3).to_dict()
    values["model"]["layers"] = 2
    plain = train_run(RunConfig.from_dict(values), tmp_path / "plain")
    values["regularization"] = {"kinetic": 0.01, "isometry": 0.1, "metrics": True}
    run = train_run(RunConfig.from_dict(values), tmp_path / "run")
    assert plain.geometry is None
    losses = [[r["loss"] for r in result.records] for result in (plain, run)]
    assert losses[0][0] < losses[1][0]
    log = read_log(tmp_path / "run" / "log.jsonl")
    logged = [r["validation"]["geometry"] for r in log if "validation" in r]
    assert len(logged) == 2
    assert logged[-1] == run.geometry
    assert set(run.geometry) == set(LayerGeometry._fields)
    assert all(len(layers) == 2 for layers in run.geometry.values())
    assert "geometry" not in run.validation


def test_parameters_are_counted(model):
    d, m = 16, 64
    layer = 3 * d * d + d * d + 2 * m * d + 2 * d
    assert parameter_count(model) == 2 * 7 * d + layer + d
