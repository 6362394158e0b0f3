"""Training: data, losses, steps that skip what is not finite, and checkpoints.

- `cross_entropy(logits, labels)`, and what a step minimises with it:
  `language_loss(model, tokens, key)`, `classification_loss(model, batch, key)`.
- `make_step(loss, optimizer)`, `start(model, optimizer, key)`, `TrainState`: a step.
- `load_shakespeare()`, `load_text(path)`: a `Text`, characters as tokens.
- `load_digits()`, `load_ucr(name)`: `Examples`, labelled sequences of vectors.
- `fetch_data(name)`, `DATA`, `DataSource`: where published data come from.
- `witten_bell_bits(train, validation, order, vocabulary)`,
  `witten_bell_probabilities(...)`: n-gram models, which a language model has to beat.
- `save_checkpoint(path, tree)`, `load_checkpoint(path, like)`, `read_metadata(path)`.
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
from ._losses import (
    classification_loss as classification_loss,
    cross_entropy as cross_entropy,
    language_loss as language_loss,
)
from ._ngram import (
    witten_bell_bits as witten_bell_bits,
    witten_bell_probabilities as witten_bell_probabilities,
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
