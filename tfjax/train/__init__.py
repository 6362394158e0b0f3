"""Training: losses, compiled steps that skip what is not finite, and checkpoints.

- `cross_entropy(logits, labels)`, and what a step minimises with it:
  `language_loss(model, tokens, key)`, `classification_loss(model, batch, key)`.
- `make_step(loss, optimizer)`, `start(model, optimizer, key)`, `TrainState`: a step.
- `save_checkpoint(path, tree)`, `load_checkpoint(path, like)`, `read_metadata(path)`.
"""

from ._checkpoint import (
    load_checkpoint as load_checkpoint,
    read_metadata as read_metadata,
    save_checkpoint as save_checkpoint,
)
from ._losses import (
    classification_loss as classification_loss,
    cross_entropy as cross_entropy,
    language_loss as language_loss,
)
from ._step import (
    StepMetrics as StepMetrics,
    TrainState as TrainState,
    global_norm as global_norm,
    make_step as make_step,
    start as start,
)
