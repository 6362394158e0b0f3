"""Trained encoders with their tokenizers, read without torch."""

import importlib
import importlib.util
import json
import os
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Int

from .._core import must
from ._bert import BertEncoder
from ._bert_config import BertConfig
from ._download import MODEL_FILES, WEIGHTS, weights_directory


# Our attribute names in Hugging Face's names.
_HF_NAMES = {
    "word": "embeddings.word_embeddings.weight",
    "position": "embeddings.position_embeddings.weight",
    "token_type": "embeddings.token_type_embeddings.weight",
    "norm": "embeddings.LayerNorm",
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


class Tokens(NamedTuple):
    """A text as its model reads it.

    - `ids`: of shape `(n,)`, the rows of the embedding table.
    - `words`: the `n` pieces of text; `##` marks one that continues a word.
    - `special`: of shape `(n,)`, True where the tokenizer added the token
      (`[CLS]`, `[SEP]`).
    """

    ids: Int[Array, " n"]
    words: tuple[str, ...]
    special: Bool[Array, " n"]


class Pretrained(eqx.Module):
    """A trained encoder and the tokenizer that belongs to it.

    **Arguments:**

    - `model`: the encoder, a PyTree of arrays.
    - `tokenizer`: a `tokenizers.Tokenizer` that neither cuts nor pads.

    Made by [`tfjax.nn.load_pretrained`][].
    """

    model: BertEncoder
    tokenizer: Any = eqx.field(static=True)

    def encode(self, text: str) -> Tokens:
        """Splits a text into tokens; nothing is cut off and nothing is padded.

        **Arguments:** `text`: a string.

        **Returns:** [`tfjax.nn.Tokens`][], `n` of them.

        **Raises:** `ValueError` for a text that holds no token, or more than the
        encoder has positions.
        """
        if not isinstance(text, str):
            raise must("text", "be a string", repr(text))
        found = self.tokenizer.encode(text)
        n, limit = len(found.ids), self.model.config.positions
        if all(found.special_tokens_mask):
            raise must("text", "have at least one token", repr(text))
        if n > limit:
            rule = f"have at most {limit} tokens, the positions that the model knows"
            raise must("text", rule, f"of {n} tokens")
        return Tokens(
            ids=jnp.asarray(found.ids, dtype=jnp.int32),
            words=tuple(found.tokens),
            special=jnp.asarray(found.special_tokens_mask, dtype=bool),
        )

    def hidden_states(self, tokens: Tokens) -> Float[Array, "layers_plus_1 n d"]:
        """The tokens of a text in every layer.

        **Arguments:** `tokens`: what `encode` returned.

        **Returns:** an array of shape `(layers + 1, n, d)`: index 0 is the embedding,
        index -1 the last hidden layer.
        """
        if not isinstance(tokens, Tokens):
            raise must("tokens", "come from `encode`", f"a {type(tokens).__name__}")
        return self.model.hidden_states(tokens.ids)


def load_pretrained(
    path: str | os.PathLike[str] = "minilm", *, dtype: DTypeLike | None = None
) -> Pretrained:
    """Reads a trained BERT encoder and its tokenizer (extra `tfjax[pretrained]`).

    **Arguments:**

    - `path`: `"minilm"` (all-MiniLM-L6-v2: 6 layers, d = 384), looked for in the
      directory of [`tfjax.nn.fetch_weights`][], then in the installed package; or a
      directory with `model.safetensors`, `config.json` and `tokenizer.json`. Write
      `./minilm` for a directory of that name.
    - `dtype`: of the parameters; `None` keeps that of the file.

    **Returns:** [`tfjax.nn.Pretrained`][].

    **Raises:** `FileNotFoundError` for a missing directory or file; `ValueError` for
    an unreadable file, a missing or misshapen tensor, or an architecture other than
    BERT; `ImportError` without the extra.

    !!! example

        >>> from tfjax.nn import load_pretrained
        >>> pretrained = load_pretrained("minilm")  # doctest: +SKIP
        >>> tokens = pretrained.encode("The oven is lit.")  # doctest: +SKIP
        >>> pretrained.hidden_states(tokens).shape  # doctest: +SKIP
        (7, 7, 384)

    Source: Wang et al., *MiniLM*, NeurIPS 2020, arXiv 2002.10957; Reimers, Gurevych,
    *Sentence-BERT*, EMNLP 2019, arXiv 1908.10084.
    """
    directory = _find(path)
    for file in MODEL_FILES:
        if not (directory / file).is_file():
            raise _not_found(f"hold {file}", f"{directory} without it")
    try:
        values = json.loads((directory / "config.json").read_text(encoding="utf-8"))
        if not isinstance(values, dict):
            raise ValueError("not a JSON object")
    except ValueError as error:  # also of JSON and of UTF-8
        raise _unreadable(directory / "config.json", error) from error
    config = BertConfig.from_hf(values)
    return Pretrained(
        _read_encoder(directory / "model.safetensors", config, dtype),
        _read_tokenizer(directory / "tokenizer.json", config),
    )


def _find(path: str | os.PathLike[str]) -> Path:
    if isinstance(path, str) and path in WEIGHTS:
        source, candidates = WEIGHTS[path], [weights_directory(path)]
        # Found without being imported: the package itself imports torch.
        spec = importlib.util.find_spec(source.module)
        for root in (spec and spec.submodule_search_locations) or ():
            candidates.append(Path(root) / source.folder)
        for directory in candidates:
            if all((directory / file).is_file() for file in MODEL_FILES):
                return directory
        raise _not_found(
            "name weights that are on this machine (run `tfjax fetch-weights`)",
            f"{path!r} with no whole set of files in {candidates[0]}",
        )
    directory = Path(path).expanduser()
    if not directory.exists():
        rule = f"be an existing directory or one of {sorted(WEIGHTS)}"
        raise _not_found(rule, repr(str(path)))
    if not directory.is_dir():
        raise must("path", "be a directory", f"the file {directory}")
    return directory


def _read_encoder(
    file: Path, config: BertConfig, dtype: DTypeLike | None
) -> BertEncoder:
    safetensors = _extra("safetensors")
    wanted = None if dtype is None else _floating(dtype)
    # Shapes only: the leaves and their paths say which tensors must be in the file.
    model = eqx.filter_eval_shape(BertEncoder, config, key=jr.key(0))
    leaves, structure = jax.tree_util.tree_flatten_with_path(model)
    arrays = []
    try:
        with safetensors.safe_open(file, framework="numpy") as tensors:
            names = set(tensors.keys())
            for path, leaf in leaves:
                name = _hf_name(path, names)
                found = tensors.get_tensor(name) if name in names else None
                arrays.append(_checked(name, found, leaf.shape, wanted))
    except (safetensors.SafetensorError, OSError) as error:
        raise _unreadable(file, error) from error
    kinds = sorted({str(array.dtype) for array in arrays})
    if len(kinds) > 1:
        raise must("dtype", f"be given for a file with tensors of {kinds}", None)
    return jax.tree_util.tree_unflatten(structure, arrays)


def _hf_name(path: tuple[Any, ...], names: set[str]) -> str:
    parts = jax.tree_util.keystr(path, simple=True, separator=".").split(".")
    name = ".".join(_HF_NAMES.get(part, part) for part in parts)
    # Checkpoints with a task head keep the encoder one level down.
    return f"bert.{name}" if f"bert.{name}" in names else name


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


def _read_tokenizer(file: Path, config: BertConfig) -> Any:
    tokenizers = _extra("tokenizers")
    try:
        tokenizer = tokenizers.Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises nothing narrower
        raise _unreadable(file, error) from error
    # The file may ask for both: a text would be cut without a word.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    if tokenizer.get_vocab_size() > config.vocabulary:
        rule = f"have at most {config.vocabulary} tokens"
        raise must("tokenizer.json", rule, f"with {tokenizer.get_vocab_size()}")
    return tokenizer


def _extra(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"`load_pretrained` must have {module}, but it was not found: "
            f'install the extra, `pip install "tfjax[pretrained]"`.'
        ) from error


def _not_found(rule: str, got: str) -> FileNotFoundError:
    return FileNotFoundError(str(must("path", rule, got)))


def _unreadable(file: Path, error: Exception) -> ValueError:
    return must("path", f"hold a readable {file.name}", f"with {file} ({error})")
