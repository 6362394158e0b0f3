"""What a run learns: data, batches, loss, and how it is judged."""

import hashlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .._core import must
from ..nn import TransformerConfig
from ..nn._extra import extra
from ._evaluate import evaluate_examples, evaluate_text
from ._examples import Examples, load_digits, load_ucr
from ._geometric_loss import geometric_loss
from ._losses import classification_loss, language_loss, variational_loss
from ._ngram import witten_bell_bits
from ._run_config import RunConfig
from ._step import Loss
from ._text import Text, load_shakespeare, load_text


# Of n-grams; on the plays longer ones are no better.
_ORDERS = (3, 4, 5, 6)
# Windows of the validation text that are looked at while training goes on.
_LOOK = 64


class Task(NamedTuple):
    """A run's data and all that follows from them.

    - `data`: a [`Text`][] or [`Examples`][].
    - `model`: the sizes of the model.
    - `loss`, `batches`: as [`fit`][] takes them.
    - `inputs`: what the model takes of a batch.
    - `look`: a quick judgement `model -> {name: number}`, in between.
    - `judge`: the whole one.
    - `baselines`: a function that returns what others reach, by name.
    - `per_step`, `unit`: what a step sees.
    - `metric`: the name of the number by which models are compared.
    - `description`: what a checkpoint must agree with to go on.
    """

    data: Text | Examples
    model: TransformerConfig
    loss: Loss
    batches: Callable[[int], Any]
    inputs: Callable[[Any], np.ndarray]
    look: Callable[[Any], dict[str, float]]
    judge: Callable[[Any], dict[str, float]]
    baselines: Callable[[], dict[str, float]]
    per_step: int
    unit: str
    metric: str
    description: dict[str, Any]


def make_task(config: RunConfig) -> Task:
    """Loads the data of a run and makes batches, loss and metrics of them.

    **Arguments:**

    - `config`: a [`RunConfig`][].

    **Returns:** a [`Task`][].

    **Raises:** ValueError where the data are too short for the model's context, or the
    like; FileNotFoundError where they are missing.

    !!! example

        >>> from tfjax.train import make_task, read_config
        >>> task = make_task(read_config("digits"))
        >>> task.model.classes, task.unit
        (10, 'examples')

    Source: own.
    """
    data = _load(config)
    text = isinstance(data, Text)
    task = _language(config, data) if text else _classes(config, data)
    return task._replace(loss=_regularized(config, task))


def _regularized(config: RunConfig, task: Task) -> Loss:
    """The loss of the task with the terms that are wanted beside it."""
    given, loss = config.regularization, task.loss
    if given.divergence:
        loss = variational_loss(loss, given.divergence)
    return geometric_loss(
        loss,
        isometry=given.isometry,
        curvature=given.curvature,
        kinetic=given.kinetic,
        form=given.form,
        probes=given.probes,
        sequences=given.sequences or None,
        layers=given.layers or None,
        every=given.every,
        inputs=task.inputs,
    )


def _load(config: RunConfig) -> Text | Examples:
    given = config.data
    if given.name == "shakespeare":
        return load_shakespeare(validation=given.validation)
    if given.name == "text":
        return load_text(given.path or "", validation=given.validation)
    if given.name == "digits":
        return load_digits(validation=given.validation)
    return load_ucr(given.set or "")


def _language(config: RunConfig, data: Text) -> Task:
    model = config.transformer(vocabulary=len(data.alphabet))
    context, batch = model.context, config.training.batch
    room = len(data.train) - context
    if room < 1:
        rule = f"be shorter than the {len(data.train)} tokens of training data"
        raise must("model.context", rule, context)
    if len(data.validation) < 2:
        got = f"{config.data.validation}, which leaves {len(data.validation)}"
        raise must("data.validation", "hold out at least 2 tokens", got)
    if not model.sees_earlier_only:
        rule = "be true, or left out, for a text: the next token is to be guessed"
        raise must("model.causal", rule, "false")
    tokens = data.train.astype(np.int32)

    def batches(step: int) -> np.ndarray:
        draws = np.random.default_rng([config.seed, step])
        starts = draws.integers(0, room, batch)
        return tokens[starts[:, None] + np.arange(context + 1)]

    def baselines() -> dict[str, float]:
        bits = lambda order: witten_bell_bits(
            data.train, data.validation, order, len(data.alphabet)
        )
        return {f"{order}-gram": bits(order) for order in _ORDERS}

    return Task(
        data,
        model,
        language_loss,
        batches,
        lambda batch: batch[:, :-1],
        lambda model: evaluate_text(model, data.validation, windows=_LOOK),
        lambda model: evaluate_text(
            model, data.validation, stride=max(context // 2, 1)
        ),
        baselines,
        batch * context,
        "tokens",
        "bits",
        {
            "alphabet": data.alphabet,
            "fingerprint": _digest(data.train, data.validation),
        },
    )


def _classes(config: RunConfig, data: Examples) -> Task:
    count, length, features = data.train_inputs.shape
    if config.model.get("context", length) < length:
        rule = f"be at least {length}, the length of the sequences"
        raise must("model.context", rule, config.model["context"])
    if config.training.batch > count:
        rule = f"be at most {count}, the number of examples"
        raise must("training.batch", rule, config.training.batch)
    sizes = {"features": features, "classes": len(data.classes)}
    if "context" not in config.model:
        sizes["context"] = length
    if config.training.baselines:
        extra("sklearn", "tfjax train", "data")  # before the training, not after it
    batch, labels = config.training.batch, data.train_labels.astype(np.int32)

    def batches(step: int) -> tuple[np.ndarray, np.ndarray]:
        """Each epoch sees every example once, in an order of its own."""
        epoch, place = np.divmod(step * batch + np.arange(batch), count)
        chosen = np.empty(batch, int)
        for number in np.unique(epoch):
            order = np.random.default_rng([config.seed, int(number)]).permutation(count)
            chosen[epoch == number] = order[place[epoch == number]]
        return data.train_inputs[chosen], labels[chosen]

    judge = lambda model: evaluate_examples(
        model, data.validation_inputs, data.validation_labels
    )
    return Task(
        data,
        config.transformer(**sizes),
        classification_loss,
        batches,
        lambda batch: batch[0],
        judge,
        judge,
        lambda: {"nearest neighbour": _nearest(data)},
        batch,
        "examples",
        "accuracy",
        {
            "classes": list(data.classes),
            "fingerprint": _digest(data.train_inputs, data.validation_inputs),
        },
    )


def _nearest(data: Examples) -> float:
    """Accuracy of the label of the nearest training example."""
    from sklearn.neighbors import KNeighborsClassifier

    flat = lambda inputs: inputs.reshape(len(inputs), -1)
    neighbours = KNeighborsClassifier(1).fit(flat(data.train_inputs), data.train_labels)
    guesses = neighbours.predict(flat(data.validation_inputs))
    return float(np.mean(guesses == data.validation_labels))


def _digest(*arrays: np.ndarray) -> str:
    """A fingerprint of the data, to tell another text from the same."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(str((array.shape, array.dtype.str)).encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:16]
