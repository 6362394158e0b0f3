"""Transformers as equinox modules, and trained ones whose layers are a flow.

- `load_pretrained(path="minilm")`: a `Pretrained` model with its tokenizer.
- `BertEncoder`, `BertLayer`, `BertConfig`: the architecture of most.
- `AlbertEncoder`, `AlbertConfig`: one layer, applied any number of times.
- `MaskedHead`: guesses words from tokens.
- `Transformer(config)`, of `TransformerLayer`s, with a `TransformerConfig`: a model to
  be trained. `attention_margins` says how far its heads are from expanding,
  `stable_initialization` brings them to a margin.
- `BayesianAttention`, with a `BayesianConfig`: attention as inference, with priors,
  precisions, gates and stochastic scores to be chosen; `HeadPosteriors`.
- `predict(model, inputs)`: a `Prediction`, with its uncertainty in two parts.
- `suggested_depth`, `scaled_learning_rate`: rules of thumb, and when they hold.
- `ContinuousTransformer(config, key=key)`: a `Transformer` whose depth is time, by any
  solver; `.from_transformer(model)` reads trained layers so.
- `LeapfrogBlock(potential)`, `CouplingBlock(f, g)`, `RotationBlock(generator)`:
  residual blocks with an inverse, which keep energies, volumes, lengths of tokens.
- `fetch_weights`, `find_weights`, `weights_directory`, `WEIGHTS`: where weights come
  from and where they lie.
"""

from ._albert import AlbertEncoder as AlbertEncoder
from ._bayesian import (
    BayesianAttention as BayesianAttention,
    HeadPosteriors as HeadPosteriors,
)
from ._bayesian_config import BayesianConfig as BayesianConfig
from ._bert import BertEncoder as BertEncoder
from ._config import AlbertConfig as AlbertConfig, BertConfig as BertConfig
from ._continuous import ContinuousTransformer as ContinuousTransformer
from ._download import fetch_weights as fetch_weights
from ._heuristics import (
    scaled_learning_rate as scaled_learning_rate,
    suggested_depth as suggested_depth,
)
from ._initialization import stable_initialization as stable_initialization
from ._layers import BertLayer as BertLayer, MaskedHead as MaskedHead
from ._margins import (
    AttentionMargins as AttentionMargins,
    attention_margins as attention_margins,
)
from ._predict import Prediction as Prediction, predict as predict
from ._pretrained import (
    Pretrained as Pretrained,
    Tokens as Tokens,
    load_pretrained as load_pretrained,
)
from ._residual import (
    CouplingBlock as CouplingBlock,
    LeapfrogBlock as LeapfrogBlock,
    RotationBlock as RotationBlock,
)
from ._transformer import (
    Transformer as Transformer,
    TransformerLayer as TransformerLayer,
)
from ._transformer_config import TransformerConfig as TransformerConfig
from ._weights import (
    WEIGHTS as WEIGHTS,
    WeightsFile as WeightsFile,
    WeightsSource as WeightsSource,
    find_weights as find_weights,
    weights_directory as weights_directory,
)
