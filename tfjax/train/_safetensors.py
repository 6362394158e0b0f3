"""Transformers in the file format that other libraries read."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array

from .._core import must
from ..nn import Transformer, TransformerConfig
from ..nn._extra import extra
from ._atomic import replaced
from ._checkpoint import leaf_error


# The key of the configuration, as JSON, in the metadata of a file.
_CONFIG = "transformer_config"


def export_safetensors(
    path: str | Path,
    model: Transformer,
    *,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Writes a Transformer as safetensors, which other libraries read.

    A tensor's name is the path of the leaf, such as `layers.0.attention.qkv`; with
    `scan`, the tensors of all layers are stacked. The configuration is in the file's
    metadata, as JSON under `"transformer_config"`. The file is replaced in one step
    when the new one is complete and on disk.

    **Arguments:**

    - `path`: the file, by custom with the ending `.safetensors`.
    - `model`: a [`tfjax.nn.Transformer`][], of any floating dtype.
    - `metadata`: more words, such as the alphabet; any reader of the format shows them.

    **Raises:** ImportError without safetensors; ValueError where `model` is no
    Transformer or has other leaves than arrays of floats, or `metadata` other values
    than strings; OSError where the file cannot be written.

    !!! example

        >>> import jax, pathlib, tempfile
        >>> from tfjax.nn import Transformer, TransformerConfig
        >>> from tfjax.train import export_safetensors, import_safetensors
        >>> config = TransformerConfig(vocabulary=5, layers=1, heads=2, head_dim=8)
        >>> model = Transformer(config, key=jax.random.key(0))
        >>> file = pathlib.Path(tempfile.mkdtemp()) / "model.safetensors"
        >>> export_safetensors(file, model)
        >>> bool((import_safetensors(file).embedding == model.embedding).all())
        True

    Source: own.
    """
    save = extra("safetensors.numpy", "export_safetensors").save
    if not isinstance(model, Transformer):
        raise must("model", "be a Transformer", f"a {type(model).__name__}")
    path, words = Path(path), dict(metadata or {})
    for key, value in words.items():
        if not isinstance(key, str) or not isinstance(value, str) or key == _CONFIG:
            rule = f"have strings as keys and values, and no key {_CONFIG!r}"
            raise must("metadata", rule, f"with {key!r}: {value!r}")
    words[_CONFIG] = json.dumps(model.config.to_dict())
    tensors = {}
    for name, leaf in _named_leaves(model):
        if not eqx.is_inexact_array(leaf):
            got = getattr(leaf, "dtype", type(leaf).__name__)
            raise must("model", f"have arrays of floats, at {name} too", got)
        # The library writes the memory as it lies, whatever the strides.
        tensors[name] = np.ascontiguousarray(leaf).reshape(leaf.shape)
    with replaced(path) as file:
        file.write(save(tensors, words))


def import_safetensors(path: str | Path) -> Transformer:
    """Reads what [`export_safetensors`][] wrote.

    **Arguments:**

    - `path`: the file.

    **Returns:** the model, bit for bit, in the dtype of the file.

    **Raises:** ImportError without safetensors; FileNotFoundError where there is no
    file; ValueError, which names the file and the tensor, where it is damaged, holds
    something else, or is of 64 bits where x64 is off.

    Source: own.
    """
    library = extra("safetensors", "import_safetensors")
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}.")
    try:
        with library.safe_open(path, framework="numpy") as file:
            words = file.metadata() or {}
            found = {name: file.get_tensor(name) for name in file.keys()}
    except (library.SafetensorError, OSError) as error:
        raise ValueError(f"{path} is no whole safetensors file: {error}.") from error
    config = _config(path, words)
    # Shapes only: the leaves and their paths say which tensors must be in the file.
    like = eqx.filter_eval_shape(Transformer, config, key=jr.key(0), dtype=jnp.float32)
    wanted = dict(_named_leaves(like))
    for name in found:
        if name not in wanted:
            raise leaf_error(path, name, "be of the model", "in the file only")
    new = [_tensor(path, name, found.get(name), leaf) for name, leaf in wanted.items()]
    return jax.tree_util.tree_unflatten(jax.tree_util.tree_structure(like), new)


def _named_leaves(tree: Any) -> list[tuple[str, Any]]:
    name = lambda where: jax.tree_util.keystr(where, simple=True, separator=".")
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return [(name(where), leaf) for where, leaf in leaves]


def _config(path: Path, words: Mapping[str, str]) -> TransformerConfig:
    if _CONFIG not in words:
        rule, got = f"have {_CONFIG!r} in its metadata", f"with {sorted(words)}"
        raise must(str(path), rule, got)
    try:
        return TransformerConfig.from_dict(json.loads(words[_CONFIG]))
    except (TypeError, ValueError) as error:
        text = f"{path} has no configuration of a Transformer: {error}"
        raise ValueError(text) from error


def _tensor(path: Path, name: str, found: np.ndarray | None, like: Any) -> Array:
    if found is None:
        raise leaf_error(path, name, "be in the file", "missing")
    if found.shape != like.shape:
        rule = f"have shape {like.shape}"
        raise leaf_error(path, name, rule, f"of shape {found.shape}")
    if not jnp.issubdtype(found.dtype, jnp.floating):
        raise leaf_error(path, name, "have floats", f"of dtype {found.dtype}")
    # Without x64 jax would narrow silently.
    if jax.dtypes.canonicalize_dtype(found.dtype) != found.dtype:
        rule = "be at most 32 bits wide where x64 is off"
        raise leaf_error(path, name, rule, f"of dtype {found.dtype}")
    return jnp.asarray(found)
