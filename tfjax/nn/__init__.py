"""Transformers as equinox modules, and trained ones whose layers are a flow.

- `load_pretrained(path="minilm")`: a `Pretrained` model with its tokenizer.
- `BertEncoder`, `BertLayer`, `BertConfig`: its architecture.
- `fetch_weights`, `weights_directory`, `WEIGHTS`: where the weights come from.
"""

from ._bert import BertEncoder as BertEncoder, BertLayer as BertLayer
from ._bert_config import BertConfig as BertConfig
from ._download import (
    WEIGHTS as WEIGHTS,
    WeightsSource as WeightsSource,
    fetch_weights as fetch_weights,
    weights_directory as weights_directory,
)
from ._pretrained import (
    Pretrained as Pretrained,
    Tokens as Tokens,
    load_pretrained as load_pretrained,
)
