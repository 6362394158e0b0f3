"""Trained encoders with their tokenizers, read without torch."""

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Int

from .._core import must
from ._albert import AlbertEncoder
from ._bert import BertEncoder
from ._checkpoint import read_model, unreadable
from ._config import AlbertConfig, BertConfig
from ._extra import extra
from ._layers import MaskedHead
from ._weights import MODEL_FILES, WEIGHTS, find_weights


class Tokens(NamedTuple):
    """A text as its model reads it.

    - `ids`: of shape `(n,)`, the rows of the embedding table.
    - `words`: the `n` pieces of text; `##` marks one that continues a word.
    - `special`: of shape `(n,)`, True where the tokenizer added the token
      (`[CLS]`, `[SEP]`; for phonemes `[PAD]`).
    """

    ids: Int[Array, " n"]
    words: tuple[str, ...]
    special: Bool[Array, " n"]


class Pretrained(eqx.Module):
    """A trained encoder and the tokenizer that belongs to it.

    **Arguments:**

    - `model`: the encoder, a PyTree of arrays.
    - `head`: its masked-language head; `None` where the file has none.
    - `tokenizer`: a `tokenizers.Tokenizer` that neither cuts nor pads.

    Made by [`tfjax.nn.load_pretrained`][].
    """

    model: BertEncoder | AlbertEncoder
    head: MaskedHead | None
    tokenizer: Any = eqx.field(static=True)

    def encode(self, text: str) -> Tokens:
        """Splits a text into tokens; nothing is cut off and nothing is padded.

        **Arguments:** `text`: a string.

        **Returns:** [`tfjax.nn.Tokens`][], `n` of them.

        **Raises:** `ValueError` for a text that holds no token, more than the encoder
        has positions, or a symbol that a model without `[UNK]` does not know.
        """
        if not isinstance(text, str):
            raise must("text", "be a string", repr(text))
        try:
            found = self.tokenizer.encode(text)
        except Exception as error:  # the library raises nothing narrower
            raise must("text", "hold symbols that the model knows", text) from error
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

    def hidden_states(
        self, tokens: Tokens, *, steps: int | None = None
    ) -> Float[Array, "layers_plus_1 n d"]:
        """The tokens of a text in every layer, compiled whole.

        **Arguments:**

        - `tokens`: what `encode` returned.
        - `steps`: how often the one layer of an ALBERT is applied; `None` is the depth
          with which the model was trained.

        **Returns:** an array of shape `(layers + 1, n, d)`, or `(steps + 1, n, d)`:
        index 0 is the embedding, index -1 the last hidden layer.

        **Raises:** `ValueError` for `steps` of a model whose layers differ.
        """
        _check_tokens(tokens)
        if isinstance(self.model, AlbertEncoder):
            return _iterate(self.model, tokens.ids, steps)
        if steps is not None:
            raise must("steps", "be None where every layer has its own weights", steps)
        return _run(self.model, tokens.ids)

    def logits(self, tokens: Tokens) -> Float[Array, "n vocabulary"]:
        """How well each word fits each place, which is to be guessed where `[MASK]` is.

        **Arguments:** `tokens`: what `encode` returned.

        **Returns:** logits, of shape `(n, vocabulary)`.

        **Raises:** `ValueError` for a model without a masked-language head.
        """
        _check_tokens(tokens)
        if self.head is None:
            raise must("head", "be in the file of the model", None)
        return _guess(self.model, self.head, tokens.ids)


def _check_tokens(tokens: Any) -> None:
    if not isinstance(tokens, Tokens):
        raise must("tokens", "come from `encode`", f"a {type(tokens).__name__}")


@eqx.filter_jit
def _run(model, ids):
    return model.hidden_states(ids)


@eqx.filter_jit
def _iterate(model, ids, steps):
    return model.hidden_states(ids, steps=steps)


@eqx.filter_jit
def _guess(model, head, ids):
    return head(model(ids), model.embedding.word)


def load_pretrained(
    path: str | os.PathLike[str] = "minilm", *, dtype: DTypeLike | None = None
) -> Pretrained:
    """Reads a trained encoder and its tokenizer (extra `tfjax[pretrained]`).

    **Arguments:**

    - `path`: the name of weights that [`tfjax.nn.fetch_weights`][] has fetched:
      `"minilm"` (all-MiniLM-L6-v2 for English: 6 layers, d = 384), `"albert"` (PL-BERT
      for phonemes: one layer, applied 12 times, d = 768; int8 weights, dequantised) or
      `"antiberty"` (for antibodies: 8 layers, d = 512, with a masked-language head).
      Or a directory with `model.safetensors`, `config.json` and `tokenizer.json` of a
      BERT or an ALBERT; write `./minilm` for a directory of that name.
    - `dtype`: of the parameters; `None` keeps that of the file.

    **Returns:** [`tfjax.nn.Pretrained`][].

    **Raises:** `FileNotFoundError` for a missing directory or file; `ValueError` for
    an unreadable file, a missing or misshapen tensor, or an architecture other than
    BERT and ALBERT; `ImportError` without the extra.

    !!! example

        >>> from tfjax.nn import load_pretrained
        >>> pretrained = load_pretrained("minilm")  # doctest: +SKIP
        >>> tokens = pretrained.encode("The oven is lit.")  # doctest: +SKIP
        >>> pretrained.hidden_states(tokens).shape  # doctest: +SKIP
        (7, 7, 384)

    Source: Wang et al., *MiniLM*, NeurIPS 2020, arXiv 2002.10957; Reimers, Gurevych,
    *Sentence-BERT*, EMNLP 2019, arXiv 1908.10084. Li, Han, Jiang, Mesgarani, *PL-BERT*,
    ICASSP 2023, arXiv 2301.08810. Ruffolo, Gray, Sulam, *AntiBERTy*, 2021, arXiv
    2112.07782.
    """
    directory = _find(path)
    for file in MODEL_FILES:
        if not (directory / file).is_file():
            raise _not_found(f"hold {file}", f"{directory} without it")
    config = _read_config(directory / "config.json")
    model, head = read_model(directory / "model.safetensors", config, dtype)
    tokenizer = _read_tokenizer(directory / "tokenizer.json", config)
    return Pretrained(model, head, tokenizer)


def _find(path: str | os.PathLike[str]) -> Path:
    if isinstance(path, str) and path in WEIGHTS:
        return find_weights(path)
    directory = Path(path).expanduser()
    if not directory.exists():
        rule = f"be an existing directory or one of {sorted(WEIGHTS)}"
        raise _not_found(rule, repr(str(path)))
    if not directory.is_dir():
        raise must("path", "be a directory", f"the file {directory}")
    return directory


def _read_config(file: Path) -> BertConfig:
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(values, dict):
            raise ValueError("not a JSON object")
    except ValueError as error:  # also of JSON and of UTF-8
        raise unreadable(file, error) from error
    kinds = {"albert": AlbertConfig, "bert": BertConfig}
    kind = values.get("model_type")
    if kind not in kinds:
        rule = f"have a model_type among {sorted(kinds)}"
        raise must("config.json", rule, repr(kind))
    return kinds[kind].from_hf(values)


def _read_tokenizer(file: Path, config: BertConfig) -> Any:
    tokenizers = extra("tokenizers", "load_pretrained")
    try:
        tokenizer = tokenizers.Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises nothing narrower
        raise unreadable(file, error) from error
    # The file may ask for both: a text would be cut without a word.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    if tokenizer.get_vocab_size() > config.vocabulary:
        rule = f"have at most {config.vocabulary} tokens"
        raise must("tokenizer.json", rule, f"with {tokenizer.get_vocab_size()}")
    return tokenizer


def _not_found(rule: str, got: str) -> FileNotFoundError:
    return FileNotFoundError(str(must("path", rule, got)))
