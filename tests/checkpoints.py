"""Checkpoints of a few numbers, in the files of published ones."""

import json

import numpy as np
import pytest

from tfjax.nn import BertConfig


WORDS = "[PAD] [UNK] [CLS] [SEP] the oven sea bread dough net".split()
TINY = BertConfig(
    vocabulary=len(WORDS),
    width=8,
    layers=2,
    heads=2,
    mlp_width=12,
    positions=6,
    epsilon=1e-3,  # large enough to be seen
)
TINY_HF = {
    "model_type": "bert",
    "hidden_act": "gelu",
    "vocab_size": len(WORDS),
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "max_position_embeddings": 6,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-3,
    "hidden_dropout_prob": 0.1,
    "transformers_version": "4.8.2",
}


def tiny_tensors():
    """A checkpoint in the original's names, float32, with no symmetric parameter."""
    rng = np.random.default_rng(7)
    shapes = {"embeddings.LayerNorm.weight": (8,), "embeddings.LayerNorm.bias": (8,)}
    for table, rows in (("word", len(WORDS)), ("position", 6), ("token_type", 2)):
        shapes[f"embeddings.{table}_embeddings.weight"] = (rows, 8)
    for i in range(2):
        for name, m, d in (
            ("attention.self.query", 8, 8),
            ("attention.self.key", 8, 8),
            ("attention.self.value", 8, 8),
            ("attention.output.dense", 8, 8),
            ("intermediate.dense", 12, 8),
            ("output.dense", 8, 12),
        ):
            shapes[f"encoder.layer.{i}.{name}.weight"] = (m, d)
            shapes[f"encoder.layer.{i}.{name}.bias"] = (m,)
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            shapes[f"encoder.layer.{i}.{name}.weight"] = (8,)
            shapes[f"encoder.layer.{i}.{name}.bias"] = (8,)
    draw = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    tensors = {name: value.astype(np.float32) for name, value in draw.items()}
    # Published files hold this one too; it must be ignored.
    return tensors | {"embeddings.position_ids": np.arange(6)[None]}


ALBERT_HF = {
    "model_type": "albert",
    "hidden_act": "gelu_new",
    "vocab_size": len(WORDS),
    "embedding_size": 5,
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_hidden_groups": 1,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "max_position_embeddings": 6,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-3,
    "classifier_dropout_prob": 0.1,
}


def albert_tensors():
    """An ALBERT in the original's names, float32, with no symmetric parameter."""
    layer = "encoder.albert_layer_groups.0.albert_layers.0"
    shapes = {"embeddings.LayerNorm.weight": (5,), "embeddings.LayerNorm.bias": (5,)}
    for table, rows in (("word", len(WORDS)), ("position", 6), ("token_type", 2)):
        shapes[f"embeddings.{table}_embeddings.weight"] = (rows, 5)
    for name, m, d in (
        ("encoder.embedding_hidden_mapping_in", 8, 5),
        (f"{layer}.attention.query", 8, 8),
        (f"{layer}.attention.key", 8, 8),
        (f"{layer}.attention.value", 8, 8),
        (f"{layer}.attention.dense", 8, 8),
        (f"{layer}.ffn", 12, 8),
        (f"{layer}.ffn_output", 8, 12),
    ):
        shapes[f"{name}.weight"] = (m, d)
        shapes[f"{name}.bias"] = (m,)
    for name in (f"{layer}.attention.LayerNorm", f"{layer}.full_layer_layer_norm"):
        shapes[f"{name}.weight"] = (8,)
        shapes[f"{name}.bias"] = (8,)
    rng = np.random.default_rng(11)
    draw = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    return {name: value.astype(np.float32) for name, value in draw.items()}


def write_tiny(directory, tensors=None, config=None):
    safetensors = pytest.importorskip("safetensors.numpy")
    tokenizers = pytest.importorskip("tokenizers")
    directory.mkdir(parents=True, exist_ok=True)
    tensors = tiny_tensors() if tensors is None else tensors
    safetensors.save_file(tensors, directory / "model.safetensors")
    (directory / "config.json").write_text(json.dumps(config or TINY_HF))
    vocabulary = {word: i for i, word in enumerate(WORDS)}
    tokenizer = tokenizers.Tokenizer(
        tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]")
    )
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    # As in the published file: text would be cut and padded without a word.
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=4)
    tokenizer.save(str(directory / "tokenizer.json"))
    (directory / "vocab.txt").write_text("\n".join(WORDS))
    return directory
