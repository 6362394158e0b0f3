"""Training: data, compiled steps, checkpoints, and whole runs.

- `fit(model, loss, batches, steps=, key=)`: a run that can be interrupted and resumed.
- `make_step(loss, optimizer)`, `start(model, optimizer, key)`, `TrainState`: a step.
- `make_optimizer(steps=)`, `rate_schedule(steps=)`: AdamW with a schedule.
- `cross_entropy`, `language_loss`, `classification_loss`: what is minimised;
  `variational_loss(loss, weight)`: with the divergence of stochastic scores.
- `geometric_loss(loss, isometry=, curvature=, kinetic=)`: a loss with terms for the
  geometry of the layers; `layer_geometry(model, inputs, key=)`, `LayerGeometry`: what
  it is.
- `isometry_loss`, `pullback_isometry_loss` (`layer_norm_tangent`), `curvature_loss`,
  `kinetic_loss`, `mean_curvature_loss`: these terms alone; `distance_variance`: one
  that rewards collapse.
- `save_checkpoint(path, tree)`, `load_checkpoint(path, like)`, `read_metadata(path)`;
  `read_log(path)`.
- `export_safetensors(path, model)`, `import_safetensors(path)`: for other libraries.
- `RunConfig`, `read_config(name)`, `ready_configs()`: a run as a file.
- `train_run(config, directory)`, `load_run(directory)`: a run as a directory.
- `evaluate_text`, `evaluate_examples`, `sample`: what came of it.
- `load_shakespeare()`, `load_text(path)`: a `Text`, characters as tokens.
- `load_digits()`, `load_ucr(name)`: `Examples`, labelled sequences of vectors.
- `fetch_data(name)`, `find_data(name)`, `DATA`, `DataSource`: published data.
- `witten_bell_bits(train, validation, order, vocabulary)`,
  `witten_bell_probabilities(...)`: n-gram models, which a language model has to beat.
- `perplexity`, `bits_per_character`, `accuracy`, `calibration_error`: metrics.
"""

from ._checkpoint import (
    load_checkpoint as load_checkpoint,
    read_metadata as read_metadata,
    save_checkpoint as save_checkpoint,
)
from ._data import (
    DATA as DATA,
    DataSource as DataSource,
    fetch_data as fetch_data,
    find_data as find_data,
)
from ._evaluate import (
    evaluate_examples as evaluate_examples,
    evaluate_text as evaluate_text,
)
from ._examples import (
    Examples as Examples,
    load_digits as load_digits,
    load_ucr as load_ucr,
)
from ._files import read_log as read_log
from ._fit import Fit as Fit, fit as fit
from ._geometric_loss import geometric_loss as geometric_loss
from ._isometry import (
    distance_variance as distance_variance,
    isometry_loss as isometry_loss,
    layer_norm_tangent as layer_norm_tangent,
    pullback_isometry_loss as pullback_isometry_loss,
)
from ._layer_geometry import (
    LayerGeometry as LayerGeometry,
    layer_geometry as layer_geometry,
)
from ._losses import (
    classification_loss as classification_loss,
    cross_entropy as cross_entropy,
    language_loss as language_loss,
    variational_loss as variational_loss,
)
from ._mean_curvature import mean_curvature_loss as mean_curvature_loss
from ._metrics import (
    accuracy as accuracy,
    bits_per_character as bits_per_character,
    calibration_error as calibration_error,
    perplexity as perplexity,
)
from ._ngram import (
    witten_bell_bits as witten_bell_bits,
    witten_bell_probabilities as witten_bell_probabilities,
)
from ._optimizer import (
    make_optimizer as make_optimizer,
    rate_schedule as rate_schedule,
)
from ._paths import curvature_loss as curvature_loss, kinetic_loss as kinetic_loss
from ._run_config import (
    DataConfig as DataConfig,
    DepthConfig as DepthConfig,
    InitializationConfig as InitializationConfig,
    OptimizerConfig as OptimizerConfig,
    RegularizationConfig as RegularizationConfig,
    RunConfig as RunConfig,
    TrainingConfig as TrainingConfig,
    read_config as read_config,
    ready_configs as ready_configs,
)
from ._runs import (
    Run as Run,
    RunResult as RunResult,
    load_run as load_run,
    parameter_count as parameter_count,
    train_run as train_run,
)
from ._safetensors import (
    export_safetensors as export_safetensors,
    import_safetensors as import_safetensors,
)
from ._sample import sample as sample
from ._step import (
    StepMetrics as StepMetrics,
    TrainState as TrainState,
    global_norm as global_norm,
    make_step as make_step,
    start as start,
)
from ._tasks import Task as Task, make_task as make_task
from ._text import (
    Text as Text,
    load_shakespeare as load_shakespeare,
    load_text as load_text,
)
