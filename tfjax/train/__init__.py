"""Training: data, compiled steps that skip what is not finite, and checkpoints.

- `make_step(loss, optimizer)`, `start(model, optimizer, key)`, `TrainState`: a step.
- `load_shakespeare()`, `load_text(path)`: a `Text`, characters as tokens.
- `load_digits()`, `load_ucr(name)`: `Examples`, labelled sequences of vectors.
- `fetch_data(name)`, `DATA`, `DataSource`: where published data come from.
- `witten_bell_bits(train, validation, order, vocabulary)`,
  `witten_bell_probabilities(...)`: n-gram models, which a language model has to beat.
- `perplexity`, `bits_per_character`, `accuracy`, `calibration_error`: metrics.
- `save_checkpoint(path, tree)`, `load_checkpoint(path, like)`, `read_metadata(path)`.
- `export_safetensors(path, model)`, `import_safetensors(path)`: for others.
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
)
from ._examples import (
    Examples as Examples,
    load_digits as load_digits,
    load_ucr as load_ucr,
)
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
from ._safetensors import (
    export_safetensors as export_safetensors,
    import_safetensors as import_safetensors,
)
from ._step import (
    StepMetrics as StepMetrics,
    TrainState as TrainState,
    global_norm as global_norm,
    make_step as make_step,
    start as start,
)
from ._text import (
    Text as Text,
    load_shakespeare as load_shakespeare,
    load_text as load_text,
)
