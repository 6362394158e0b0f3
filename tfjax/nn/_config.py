"""Sizes of an encoder, and how they are read from a published configuration."""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

from .._core import must


# Keys of a Hugging Face `config.json` that fix the shape of the encoder.
_HF_SIZES = {
    "vocab_size": "vocabulary",
    "hidden_size": "width",
    "num_hidden_layers": "layers",
    "num_attention_heads": "heads",
    "intermediate_size": "mlp_width",
    "max_position_embeddings": "positions",
    "type_vocab_size": "token_types",
    "layer_norm_eps": "epsilon",
}
# Keys that choose the architecture: only these values are implemented here.
_HF_CHOICES = {
    "model_type": "bert",
    "hidden_act": "gelu",
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
}
_ALBERT_CHOICES = _HF_CHOICES | {
    "model_type": "albert",
    "hidden_act": "gelu_new",
    "num_hidden_groups": 1,
    "inner_group_num": 1,
}
# Keys without effect on the hidden states of a trained encoder.
_HF_IGNORED = frozenset(
    "_name_or_path architectures attention_probs_dropout_prob bos_token_id "
    "chunk_size_feed_forward classifier_dropout classifier_dropout_prob "
    "down_scale_factor dtype eos_token_id gap_size net_structure_type "
    "num_memory_blocks "
    "gradient_checkpointing hidden_dropout_prob id2label initializer_range label2id "
    "output_attentions output_hidden_states pad_token_id problem_type return_dict "
    "sep_token_id tie_word_embeddings torch_dtype transformers_version "
    "use_cache".split()
)


@dataclasses.dataclass(frozen=True)
class BertConfig:
    """Sizes of a BERT encoder; the defaults are those of MiniLM-L6 (22.6 M parameters).

    **Arguments:**

    - `vocabulary`, `positions`, `token_types`: rows of the three embedding tables;
      `positions` is the longest sequence that the encoder can read.
    - `width`: dimension $d$ of a token.
    - `layers`, `heads`, `mlp_width`: blocks, heads in each, hidden units of its MLP.
    - `epsilon`: what LayerNorm adds to the variance.

    **Raises:** `ValueError` for a size below 1 or a `width` that `heads` do not divide.

    !!! example

        >>> from tfjax.nn import BertConfig
        >>> config = BertConfig(vocabulary=100, width=16, layers=2, heads=4)
        >>> BertConfig.from_dict(config.to_dict()) == config
        True
    """

    vocabulary: int = 30522
    width: int = 384
    layers: int = 6
    heads: int = 12
    mlp_width: int = 1536
    positions: int = 512
    token_types: int = 2
    epsilon: float = 1e-12

    tanh: ClassVar[bool] = False  # which GELU
    _hf_sizes: ClassVar[Mapping[str, str]] = _HF_SIZES
    _hf_choices: ClassVar[Mapping[str, Any]] = _HF_CHOICES

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            name, value = field.name, getattr(self, field.name)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if name == "epsilon":
                if not number or not 0.0 <= value < float("inf"):
                    raise must(name, "be finite and not negative", repr(value))
            elif not number or isinstance(value, float) or value < 1:
                raise must(name, "be an integer of at least 1", repr(value))
        if self.width % self.heads:
            raise must("width", f"be a multiple of heads = {self.heads}", self.width)

    def to_dict(self) -> dict[str, Any]:
        """The sizes as a plain dictionary that JSON can hold."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "BertConfig":
        """The inverse of `to_dict`; **Raises** `ValueError` for an unknown key."""
        known = [field.name for field in dataclasses.fields(cls)]
        unknown = sorted(set(values) - set(known))
        if unknown:
            raise must("values", f"have keys among {known}", f"given {unknown}")
        return cls(**values)

    @classmethod
    def from_hf(cls, values: Mapping[str, Any]) -> "BertConfig":
        """The sizes in a Hugging Face `config.json` of this architecture.

        **Arguments:** `values`: the content of the file. Keys without effect on the
        hidden states of a trained encoder (dropout, cache, label names, ...) are
        skipped.

        **Raises:** `ValueError` for another architecture, a missing size, or a key
        whose effect is not known.
        """
        for key, wanted in cls._hf_choices.items():
            # The model type must be stated; the other choices default to ours.
            found = values.get(key, None if key == "model_type" else wanted)
            if found != wanted:
                raise must("config.json", f"have {key} = {wanted!r}", repr(found))
        missing = [key for key in cls._hf_sizes if key not in values]
        if missing:
            raise must("config.json", f"have {missing}", "without")
        unknown = set(values) - set(cls._hf_sizes) - set(cls._hf_choices) - _HF_IGNORED
        if unknown:
            rule = "have only keys whose effect is known"
            raise must("config.json", rule, f"given {sorted(unknown)}")
        return cls(**{name: values[key] for key, name in cls._hf_sizes.items()})


@dataclasses.dataclass(frozen=True)
class AlbertConfig(BertConfig):
    """Sizes of an ALBERT encoder; the defaults are those of PL-BERT (5.7 M parameters).

    **Arguments:** those of [`tfjax.nn.BertConfig`][], where `layers` is how often the
    one layer is applied, and

    - `embedding_width`: dimension of the rows of the embedding tables.

    **Raises:** `ValueError` for a size below 1 or a `width` that `heads` do not divide.

    !!! example

        >>> from tfjax.nn import AlbertConfig
        >>> AlbertConfig().width, AlbertConfig().embedding_width
        (768, 128)
    """

    vocabulary: int = 178
    width: int = 768
    layers: int = 12
    mlp_width: int = 2048
    embedding_width: int = 128

    tanh: ClassVar[bool] = True
    _hf_sizes: ClassVar[Mapping[str, str]] = _HF_SIZES | {
        "embedding_size": "embedding_width"
    }
    _hf_choices: ClassVar[Mapping[str, Any]] = _ALBERT_CHOICES
