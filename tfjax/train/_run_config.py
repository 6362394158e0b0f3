"""What a run is made of: a file of sections and values, checked before any work."""

import dataclasses
import importlib.resources
import math
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import diffrax

from .._core import must
from ..integrate import SplitEuler
from ..nn import TransformerConfig
from ..nn._continuous import WEIGHTS, check_flow
from ..nn._initialization import KINDS
from ._geometric_loss import FORMS
from ._optimizer import rate_schedule
from ._sections import at_least_one, check_keys, one_of, prefixed, section


DATA = ("shakespeare", "text", "digits", "ucr")
PRECISIONS = ("float32", "bfloat16", "float64")
SOLVERS: dict[str, Callable[[], diffrax.AbstractSolver]] = {
    "euler": diffrax.Euler,
    "split-euler": SplitEuler,
    "midpoint": diffrax.Midpoint,
    "heun": diffrax.Heun,
    "tsit5": diffrax.Tsit5,
}
# These follow from the data.
_FROM_DATA = ("vocabulary", "features", "classes")


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """What is learned: `[data]` of a file.

    **Arguments:**

    - `name`: `"shakespeare"` (the plays), `"text"` (a file or folder of your own),
      `"digits"` (images of 8 x 8) or `"ucr"` (a set of time series).
    - `path`: of a text.
    - `set`: which set of time series.
    - `validation`: the share that is not trained on; a UCR set brings its own.
    """

    name: str = "shakespeare"
    path: str | None = None
    set: str | None = None
    validation: float = 0.1

    def __post_init__(self) -> None:
        one_of("data.name", self.name, DATA)
        for key, owner in (("path", "text"), ("set", "ucr")):
            given = getattr(self, key) is not None
            if given is not (self.name == owner):
                rule = f"be given for data.name = {owner!r}, and for no other"
                raise must(f"data.{key}", rule, repr(getattr(self, key)))
        if self.path == "":
            raise must("data.path", "name a file or a folder", "empty")
        if not 0 < self.validation < 1:
            raise must("data.validation", "lie between 0 and 1", self.validation)


@dataclasses.dataclass(frozen=True)
class DepthConfig:
    """Whether layers are layers, or knots of a flow: `[depth]` of a file.

    **Arguments:**

    - `kind`: `"discrete"`, a [`tfjax.nn.Transformer`][], or `"continuous"`, a
      [`tfjax.nn.ContinuousTransformer`][], which alone reads the rest.
    - `weights`: between knots, `"linear"` or `"constant"`.
    - `solver`: `"euler"`, `"split-euler"`, `"midpoint"`, `"heun"` or `"tsit5"`.
    - `steps`: how many equal ones from knot to knot.
    """

    kind: str = "discrete"
    weights: str = "linear"
    solver: str = "midpoint"
    steps: int = 1

    def __post_init__(self) -> None:
        one_of("depth.kind", self.kind, ("discrete", "continuous"))
        one_of("depth.weights", self.weights, WEIGHTS)
        one_of("depth.solver", self.solver, tuple(SOLVERS))
        at_least_one("depth.steps", self.steps, 10_000)


@dataclasses.dataclass(frozen=True)
class InitializationConfig:
    """What weights begin with: `[initialization]` of a file.

    **Arguments:**

    - `kind`: `"plain"`, or a kind of [`tfjax.nn.stable_initialization`][], which sees
      four sequences of the first batch: `"measured"`, `"typical"`, `"worst_case"`.
    - `margin`: of contraction, that every head is to have.
    """

    kind: str = "plain"
    margin: float = 2.0

    def __post_init__(self) -> None:
        one_of("initialization.kind", self.kind, ("plain", *KINDS))
        if not 0 < self.margin < math.inf:
            raise must("initialization.margin", "be finite, positive", self.margin)


@dataclasses.dataclass(frozen=True)
class OptimizerConfig:
    """How it is learned: `[optimizer]` of a file; see [`make_optimizer`][].

    **Arguments:**

    - `learning_rate`, `schedule`, `warmup`, `final`, `weight_decay`, `betas`: as there.
    - `clip`: the largest norm of a gradient; 0 clips nothing.
    - `tuned_at`: the number of layers for which the rate was chosen; for another depth
      it is multiplied as [`tfjax.nn.scaled_learning_rate`][] says, which is a rule for
      plain gradient descent. 0 leaves it alone.
    """

    learning_rate: float = 1e-3
    schedule: str = "cosine"
    warmup: int = 0
    final: float = 0.1
    weight_decay: float = 0.1
    betas: tuple[float, ...] = (0.9, 0.99)
    clip: float = 1.0
    tuned_at: int = 0


@dataclasses.dataclass(frozen=True)
class RegularizationConfig:
    """What is minimised beside the task's loss: `[regularization]` of a file.

    **Arguments:**

    - `isometry`, `curvature`, `kinetic`: factors of terms for the geometry of the
      layers; see [`geometric_loss`][].
    - `divergence`: a factor of the divergence of stochastic attention scores from their
      prior, for models that have some: without it they learn to be less and less
      random. 1 is the bound of variational inference for a text, the number of tokens
      for a classifier; smaller ones temper it. See [`variational_loss`][].
    - `form`, `probes`, `sequences`, `layers`, `every`: how the terms are estimated, as
      there; 0 sequences or layers are all.
    - `metrics`: whether [`layer_geometry`][] is measured with each evaluation, on four
      sequences of the first batch.
    """

    isometry: float = 0.0
    curvature: float = 0.0
    kinetic: float = 0.0
    divergence: float = 0.0
    form: str = "pullback"
    probes: int = 4
    sequences: int = 1
    layers: int = 1
    every: int = 1
    metrics: bool = False

    def __post_init__(self) -> None:
        for key in ("isometry", "curvature", "kinetic", "divergence"):
            if getattr(self, key) < 0:
                value = getattr(self, key)
                raise must(f"regularization.{key}", "be at least 0", value)
        one_of("regularization.form", self.form, FORMS)
        for key in ("probes", "every"):
            at_least_one(f"regularization.{key}", getattr(self, key))
        for key in ("sequences", "layers"):
            if getattr(self, key) < 0:
                rule = "be at least 0, which is all of them"
                raise must(f"regularization.{key}", rule, getattr(self, key))


@dataclasses.dataclass(frozen=True)
class TrainingConfig:
    """For how long, and what is measured: `[training]` of a file.

    **Arguments:**

    - `steps`, `batch`: how many steps, of how many sequences.
    - `accumulate`: parts of a batch whose gradients are added up: less memory.
    - `precision`: what the loss is computed in; below float32 the parameters stay in
      float32.
    - `evaluate_every`, `checkpoint_every`: in steps.
    - `baselines`: whether n-grams (or nearest neighbours) are evaluated beside it.
    """

    steps: int = 2000
    batch: int = 16
    accumulate: int = 1
    precision: str = "float32"
    evaluate_every: int = 200
    checkpoint_every: int = 200
    baselines: bool = True

    def __post_init__(self) -> None:
        for key in ("steps", "batch", "accumulate"):
            at_least_one(f"training.{key}", getattr(self, key))
        for key in ("evaluate_every", "checkpoint_every"):
            at_least_one(f"training.{key}", getattr(self, key))
        one_of("training.precision", self.precision, PRECISIONS)
        if self.batch % self.accumulate:
            rule = f"divide training.batch = {self.batch}"
            raise must("training.accumulate", rule, self.accumulate)


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """All that decides a run, but for the versions of the libraries.

    **Arguments:**

    - `data`: a [`DataConfig`][].
    - `model`: keys of a [`tfjax.nn.TransformerConfig`][], without those that follow
      from the data: `vocabulary`, `features`, `classes`.
    - `depth`: a [`DepthConfig`][].
    - `initialization`: an [`InitializationConfig`][].
    - `optimizer`: an [`OptimizerConfig`][].
    - `regularization`: a [`RegularizationConfig`][].
    - `training`: a [`TrainingConfig`][].
    - `seed`: of weights, batches and dropout.

    **Raises:** ValueError, which names section and key, for what cannot be.

    !!! example

        >>> from tfjax.train import RunConfig
        >>> config = RunConfig.from_dict({"training": {"steps": 10}, "seed": 1})
        >>> config.training.steps, config.data.name
        (10, 'shakespeare')
        >>> RunConfig.from_dict(config.to_dict()) == config
        True

    Source: own.
    """

    data: DataConfig = dataclasses.field(default_factory=DataConfig)
    model: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    depth: DepthConfig = dataclasses.field(default_factory=DepthConfig)
    initialization: InitializationConfig = dataclasses.field(
        default_factory=InitializationConfig
    )
    optimizer: OptimizerConfig = dataclasses.field(default_factory=OptimizerConfig)
    regularization: RegularizationConfig = dataclasses.field(
        default_factory=RegularizationConfig
    )
    training: TrainingConfig = dataclasses.field(default_factory=TrainingConfig)
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**32:
            raise must("seed", "lie in [0, 2**32)", self.seed)
        given = [key for key in _FROM_DATA if key in self.model]
        if given:
            raise must(f"model.{given[0]}", "be left to the data", "given")
        known = [f.name for f in dataclasses.fields(TransformerConfig)]
        check_keys("model.", self.model, [k for k in known if k not in _FROM_DATA])
        # Any data will do for a first look at the sizes.
        sizes = self.transformer(vocabulary=2)
        # With every key, so that a default and its being spelt out are the same.
        full = {k: v for k, v in sizes.to_dict().items() if k not in _FROM_DATA}
        if "context" not in self.model:  # that of examples follows from the data
            del full["context"]
        object.__setattr__(self, "model", full)
        if self.depth.kind == "continuous":
            with prefixed("model"):
                check_flow(sizes)
        optimizer = self.optimizer
        with prefixed("optimizer"):
            rate_schedule(
                steps=self.training.steps,
                learning_rate=optimizer.learning_rate,
                schedule=optimizer.schedule,
                warmup=optimizer.warmup,
                final=optimizer.final,
            )
        if optimizer.tuned_at > 2**31 - 1:
            raise must("optimizer.tuned_at", "be a number of layers", "larger")
        for key in ("weight_decay", "clip", "tuned_at"):
            if getattr(optimizer, key) < 0:
                rule = "be at least 0"
                raise must(f"optimizer.{key}", rule, getattr(optimizer, key))
        if self.initialization.kind != "plain" and self.model.get("norm") == "ngpt":
            rule = "be 'plain' for model.norm = 'ngpt'"
            raise must("initialization.kind", rule, repr(self.initialization.kind))
        bayesian = sizes.bayesian
        noisy = bayesian is not None and bayesian.scores == "stochastic"
        if self.regularization.divergence and not noisy:
            rule = "be 0 but for model.bayesian.scores = 'stochastic'"
            raise must(
                "regularization.divergence", rule, self.regularization.divergence
            )
        if len(optimizer.betas) != 2 or not all(0 <= b < 1 for b in optimizer.betas):
            raise must("optimizer.betas", "be two numbers in [0, 1)", optimizer.betas)

    def transformer(self, **from_data: int) -> TransformerConfig:
        """The sizes of the model, once the data are known."""
        missing = {key: None for key in _FROM_DATA}
        with prefixed("model"):
            given = {**self.model, **missing, **from_data}
            return section(TransformerConfig, "model.", given)

    def to_dict(self) -> dict[str, Any]:
        """All values, as JSON has them."""
        found = dataclasses.asdict(self)
        found["model"] = dict(self.model)
        found["optimizer"]["betas"] = list(self.optimizer.betas)
        return found

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "RunConfig":
        """The inverse of `to_dict`; **Raises** ValueError as the class does."""
        return section(cls, "", values)

    @classmethod
    def from_toml(cls, text: str) -> "RunConfig":
        """Reads the text of a TOML file; **Raises** ValueError, with the line."""
        try:
            return cls.from_dict(tomllib.loads(text))
        except tomllib.TOMLDecodeError as error:
            raise ValueError(f"The configuration is no TOML: {error}.") from error
        except RecursionError as error:
            raise ValueError("The configuration is nested too deeply.") from error


def read_config(name: str | Path) -> RunConfig:
    """A configuration from a file, or one of those that come with the library.

    **Arguments:**

    - `name`: a file `*.toml`, or a name of [`ready_configs`][].

    **Returns:** a [`RunConfig`][].

    **Raises:** FileNotFoundError where there is none; ValueError, which names the file,
    where it cannot be.

    !!! example

        >>> from tfjax.train import read_config
        >>> read_config("digits").data.name
        'digits'

    Source: own.
    """
    path = Path(name)
    ready = _folder().joinpath(f"{name}.toml")
    if path.suffix != ".toml" and ready.is_file():
        text = ready.read_text(encoding="utf-8")
    elif path.is_file():
        try:
            text = path.read_text(encoding="utf-8-sig")
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}: must be UTF-8, but {error}.") from error
    else:
        known = ", ".join(ready_configs())
        raise FileNotFoundError(f"There is no file {path}; there are ready {known}.")
    try:
        return RunConfig.from_toml(text)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def ready_configs() -> list[str]:
    """The names of the configurations that come with the library.

    **Returns:** names that [`read_config`][] takes.

    !!! example

        >>> from tfjax.train import ready_configs
        >>> ready_configs()
        ['digits', 'japanese-vowels', 'shakespeare-char']

    Source: own.
    """
    return sorted(Path(f.name).stem for f in _folder().iterdir())


def _folder():
    return importlib.resources.files("tfjax.train").joinpath("configs")
