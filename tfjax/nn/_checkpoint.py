"""Tensors of a safetensors file, checked and put in their places in an encoder."""

from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array

from .._core import must
from ._albert import AlbertEncoder
from ._bert import BertEncoder
from ._config import AlbertConfig, BertConfig
from ._extra import extra
from ._layers import MaskedHead


# Our attribute names in Hugging Face's names.
_EMBEDDING = {
    "embedding": "embeddings",
    "word": "word_embeddings.weight",
    "position": "position_embeddings.weight",
    "token_type": "token_type_embeddings.weight",
    "norm": "LayerNorm",
}
_BERT = _EMBEDDING | {
    "layers": "encoder.layer",
    "query": "attention.self.query",
    "key": "attention.self.key",
    "value": "attention.self.value",
    "output": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "expand": "intermediate.dense",
    "contract": "output.dense",
    "mlp_norm": "output.LayerNorm",
}
_ALBERT = _EMBEDDING | {
    "lift": "encoder.embedding_hidden_mapping_in",
    "layer": "encoder.albert_layer_groups.0.albert_layers.0",
    "query": "attention.query",
    "key": "attention.key",
    "value": "attention.value",
    "output": "attention.dense",
    "attention_norm": "attention.LayerNorm",
    "expand": "ffn",
    "contract": "ffn_output",
    "mlp_norm": "full_layer_layer_norm",
}
_HEAD = {"dense": "transform.dense", "norm": "transform.LayerNorm"}
_HEAD_PREFIX = "cls.predictions."


def read_model(
    file: Path, config: BertConfig, dtype: DTypeLike | None
) -> tuple[BertEncoder | AlbertEncoder, MaskedHead | None]:
    """The encoder in a file and, where the file has one, its masked-language head."""
    safetensors = extra("safetensors", "load_pretrained")
    wanted = None if dtype is None else _floating(dtype)
    albert = isinstance(config, AlbertConfig)
    kind, table = (AlbertEncoder, _ALBERT) if albert else (BertEncoder, _BERT)
    try:
        with safetensors.safe_open(file, framework="numpy") as tensors:
            names = set(tensors.keys())
            # Checkpoints with a task head keep the encoder one level down.
            root = "albert." if albert else "bert."
            root = root if any(name.startswith(root) for name in names) else ""
            encoder = _read(tensors, kind, config, root, table, wanted)
            head = None
            if not albert and f"{_HEAD_PREFIX}bias" in names:
                head = _read(tensors, MaskedHead, config, _HEAD_PREFIX, _HEAD, wanted)
    except (safetensors.SafetensorError, OSError) as error:
        raise unreadable(file, error) from error
    kinds = sorted({str(leaf.dtype) for leaf in jax.tree.leaves((encoder, head))})
    if len(kinds) > 1:
        raise must("dtype", f"be given for a file with tensors of {kinds}", None)
    return encoder, head


def _read(
    tensors: Any,
    kind: Any,
    config: BertConfig,
    prefix: str,
    table: dict[str, str],
    wanted: np.dtype | None,
) -> Any:
    # Shapes only: the leaves and their paths say which tensors must be in the file.
    shapes = eqx.filter_eval_shape(kind, config, key=jr.key(0), dtype=jnp.float32)
    leaves, structure = jax.tree_util.tree_flatten_with_path(shapes)
    names, arrays = set(tensors.keys()), []
    for path, leaf in leaves:
        parts = jax.tree_util.keystr(path, simple=True, separator=".").split(".")
        name = prefix + ".".join(table.get(part, part) for part in parts)
        found = tensors.get_tensor(name) if name in names else None
        arrays.append(_checked(name, found, leaf.shape, wanted))
    return jax.tree_util.tree_unflatten(structure, arrays)


def _checked(
    name: str, found: np.ndarray | None, shape: tuple[int, ...], dtype: Any
) -> Array:
    rule = f"have the tensor {name} of shape {shape}"
    if found is None:
        raise must("model.safetensors", rule, "without it")
    if found.shape != shape:
        raise must("model.safetensors", rule, f"with one of shape {found.shape}")
    if not jnp.issubdtype(found.dtype, jnp.floating):
        rule = f"have floating tensors such as {name}"
        raise must("model.safetensors", rule, f"with one of {found.dtype}")
    return jnp.asarray(found, dtype=_floating(found.dtype) if dtype is None else dtype)


def _floating(dtype: DTypeLike) -> np.dtype:
    dtype = np.dtype(dtype)
    if not jnp.issubdtype(dtype, jnp.floating):
        raise must("dtype", "be floating", dtype)
    # Without x64 jax would narrow silently.
    if jax.dtypes.canonicalize_dtype(dtype) != dtype:
        raise must("dtype", "be at most 32 bits wide where x64 is off", dtype)
    return dtype


def unreadable(file: Path, error: Exception) -> ValueError:
    """The error for a file of the directory that cannot be read."""
    return must("path", f"hold a readable {file.name}", f"with {file} ({error})")
