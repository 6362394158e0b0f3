"""Training: compiled steps that skip what is not finite, and checkpoints.

- `make_step(loss, optimizer)`, `start(model, optimizer, key)`, `TrainState`: a step.
- `save_checkpoint(path, tree)`, `load_checkpoint(path, like)`, `read_metadata(path)`.
"""

from ._checkpoint import (
    load_checkpoint as load_checkpoint,
    read_metadata as read_metadata,
    save_checkpoint as save_checkpoint,
)
from ._step import (
    StepMetrics as StepMetrics,
    TrainState as TrainState,
    global_norm as global_norm,
    make_step as make_step,
    start as start,
)
