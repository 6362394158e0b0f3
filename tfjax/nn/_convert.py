"""Published files of other formats, made into those that `load_pretrained` reads."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from .._core import must
from ._extra import extra
from ._torch_file import read_torch


# --- ALBERT, in the ONNX file of a voice ----------------------------------------------

_LAYER = "encoder.albert_layer_groups.0.albert_layers.0"
# The names of the quantised matrices, which the export has lost, and which are stored
# as factors on the right.
_MATRICES = {
    "onnx::MatMul_6547": "encoder.embedding_hidden_mapping_in",
    "onnx::MatMul_6548_3": f"{_LAYER}.attention.query",
    "onnx::MatMul_6551_3": f"{_LAYER}.attention.key",
    "onnx::MatMul_6554_3": f"{_LAYER}.attention.value",
    "onnx::MatMul_6558_3": f"{_LAYER}.attention.dense",
    "onnx::MatMul_6559_3": f"{_LAYER}.ffn",
    "onnx::MatMul_6560_3": f"{_LAYER}.ffn_output",
}
_TABLES = ("word", "position", "token_type")
_ALBERT = {
    "model_type": "albert",
    "hidden_act": "gelu_new",
    "vocab_size": 178,
    "embedding_size": 128,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_hidden_groups": 1,
    "inner_group_num": 1,
    "num_attention_heads": 12,
    "intermediate_size": 2048,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
}


def convert_albert(raw: Path, out: Path) -> None:
    """The encoder of `part-1`, ... and the symbols of `vocab.json`, in float32."""
    parts = sorted(raw.glob("part-*"))
    content = b"".join(part.read_bytes() for part in parts)
    _write(out, albert_tensors(content), _ALBERT)
    symbols = json.loads((raw / "vocab.json").read_text(encoding="utf-8"))["vocab"]
    # The symbol of padding stands at both ends of a sentence, as in training.
    _tokenizer(symbols | {"[PAD]": 0}, "[PAD]", "[PAD]").save(
        str(out / "tokenizer.json")
    )


def albert_tensors(content: bytes) -> dict[str, np.ndarray]:
    """The encoder in an ONNX file, under the names of Hugging Face, dequantised."""
    graph = extra("onnx", "fetch_weights").load_from_string(content).graph
    to_array = extra("onnx", "fetch_weights").numpy_helper.to_array
    stored = {tensor.name: tensor for tensor in graph.initializer}
    zeros = _zero_points(graph)

    def read(name: str) -> np.ndarray:
        if name not in stored:
            raise must("the ONNX file", f"hold {name}", "without it")
        return to_array(stored[name])

    def dequantised(name: str) -> np.ndarray:
        q = read(f"{name}_quantized").astype(np.int32)
        zero = read(zeros[f"{name}_quantized"]).astype(np.int32)
        return ((q - zero) * read(f"{name}_scale")).astype(np.float32)

    prefix, tensors = "encoder.bert.", {}
    for table in _TABLES:
        name = f"embeddings.{table}_embeddings.weight"
        tensors[name] = dequantised(prefix + name)
    for onnx_name, name in _MATRICES.items():
        tensors[f"{name}.weight"] = dequantised(onnx_name).T
        tensors[f"{name}.bias"] = read(f"{prefix}{name}.bias")
    norms = ("attention.LayerNorm", "full_layer_layer_norm")
    for name in ("embeddings.LayerNorm", *(f"{_LAYER}.{norm}" for norm in norms)):
        for part in ("weight", "bias"):
            tensors[f"{name}.{part}"] = read(f"{prefix}{name}.{part}")
    return tensors


def _zero_points(graph: Any) -> dict[str, str]:
    """The names of the zero points by those of the tensors: equal ones are shared."""
    zeros, gathered = {}, {}
    for node in graph.node:
        if node.op_type == "Gather":
            gathered[node.output[0]] = node.input[0]
        elif node.op_type == "MatMulInteger":
            zeros[node.input[1]] = node.input[3]
        elif node.op_type == "DequantizeLinear":
            zeros[gathered.get(node.input[0], node.input[0])] = node.input[2]
    return zeros


# --- AntiBERTy, in a checkpoint of PyTorch --------------------------------------------


def convert_antiberty(raw: Path, out: Path) -> None:
    """The encoder and the masked-language head of `pytorch_model.bin`."""
    tensors = read_torch(raw / "pytorch_model.bin")
    table, decoder = "bert.embeddings.word_embeddings.weight", "cls.predictions.decoder"
    # The head uses the table of words: a decoder of its own would be lost.
    for kept, tied in ((table, "weight"), ("cls.predictions.bias", "bias")):
        other = tensors.pop(f"{decoder}.{tied}", tensors[kept])
        if not np.array_equal(tensors[kept], other):
            rule = f"have {decoder}.{tied} equal to {kept}"
            raise must("pytorch_model.bin", rule, "with another")
    wanted = ("bert.embeddings.", "bert.encoder.", "cls.predictions.")
    floats = {
        name: tensor
        for name, tensor in tensors.items()
        if name.startswith(wanted) and np.issubdtype(tensor.dtype, np.floating)
    }
    config = json.loads((raw / "config.json").read_text(encoding="utf-8"))
    _write(out, floats, config)
    words = (raw / "vocab.txt").read_text(encoding="utf-8").split()
    vocabulary = {word: i for i, word in enumerate(words)}
    tokenizer = _tokenizer(vocabulary, "[CLS]", "[SEP]", unknown="[UNK]")
    # A place to be guessed is written [MASK].
    tokenizer.add_special_tokens(["[MASK]"])
    tokenizer.save(str(out / "tokenizer.json"))


# --- What both are written as ---------------------------------------------------------


def _write(out: Path, tensors: dict[str, np.ndarray], config: dict[str, Any]) -> None:
    save = extra("safetensors.numpy", "fetch_weights").save
    # The library writes the memory as it lies, whatever the strides.
    whole = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
    (out / "model.safetensors").write_bytes(save(whole))
    text = json.dumps(config, indent=2) + "\n"
    (out / "config.json").write_text(text, encoding="utf-8")


def _tokenizer(
    vocabulary: dict[str, int], first: str, last: str, unknown: str | None = None
) -> Any:
    """A token for each character other than a line's end, between two marks."""
    library = extra("tokenizers", "fetch_weights")
    words = library.models.WordLevel(vocabulary, unk_token=unknown or "")
    tokenizer = library.Tokenizer(words)
    characters = library.pre_tokenizers.Split(library.Regex("."), "isolated")
    lines = library.pre_tokenizers.Split(library.Regex(r"[\r\n]+"), "removed")
    tokenizer.pre_tokenizer = library.pre_tokenizers.Sequence([lines, characters])
    ends = [(mark, vocabulary[mark]) for mark in dict.fromkeys((first, last))]
    tokenizer.post_processor = library.processors.TemplateProcessing(
        single=f"{first} $A {last}", special_tokens=ends
    )
    return tokenizer
