"""Trained encoders: equal to the original, and every bad input named at the door."""

import json
import math
import sys
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from checkpoints import TINY, TINY_HF, WORDS, tiny_tensors, write_tiny

from tfjax.nn import (
    WEIGHTS,
    BertConfig,
    BertEncoder,
    WeightsSource,
    load_pretrained,
    weights_directory,
)


REFERENCE = Path(__file__).parents[1] / "reference"


@pytest.fixture
def tiny(tmp_path):
    return write_tiny(tmp_path / "tiny")


@pytest.fixture(scope="module")
def minilm():
    try:
        return load_pretrained("minilm")
    except (FileNotFoundError, ImportError) as error:
        pytest.skip(f"no trained weights: {error}")


@pytest.fixture(scope="module")
def paragraph():
    return json.loads((REFERENCE / "minilm_paragraph.json").read_text())


# --- the real weights ---------------------------------------------------------------


@pytest.mark.pretrained
def test_every_layer_equals_the_original(minilm, paragraph):
    hidden = minilm.hidden_states(minilm.encode(paragraph["text"]))
    assert hidden.dtype == jnp.float32
    assert hidden.shape == (7, 69, 384)
    hidden = np.asarray(hidden, np.float64)
    kept = np.load(REFERENCE / "minilm_hidden.npz")
    np.testing.assert_allclose(
        hidden[:, :, kept["columns"]], kept["hidden"], rtol=0, atol=1e-4
    )
    projected = hidden @ kept["signs"].astype(np.float64) / np.sqrt(384)
    np.testing.assert_allclose(projected, kept["projected"], rtol=0, atol=1e-4)
    norms = np.linalg.norm(hidden, axis=-1)
    np.testing.assert_allclose(norms, kept["norms"], rtol=0, atol=1e-4)
    full = np.load(REFERENCE / "minilm_paragraph.npz")
    np.testing.assert_allclose(hidden[-1], full["last"], rtol=0, atol=1e-4)
    np.testing.assert_allclose(hidden[0, :, :8], full["first"], rtol=0, atol=1e-4)


@pytest.mark.pretrained
def test_the_paragraph_has_its_tokens(minilm, paragraph):
    tokens = minilm.encode(paragraph["text"])
    assert tokens.ids.tolist() == paragraph["ids"]
    assert list(tokens.words) == paragraph["tokens"]
    assert np.flatnonzero(tokens.special).tolist() == [0, 68]


@pytest.mark.pretrained
def test_a_long_text_is_neither_cut_nor_padded(minilm):
    assert len(minilm.encode("sea").words) == 3
    assert len(minilm.encode("sea " * 510).words) == 512
    with pytest.raises(ValueError, match="at most 512 tokens.* but was of 513 tokens"):
        minilm.encode("sea " * 511)


# --- the encoder on a tiny checkpoint -------------------------------------------------


def original(tensors, ids):
    """Post-norm BERT in numpy, float64, one head at a time."""
    t = {name: np.asarray(value, np.float64) for name, value in tensors.items()}

    def affine(x, name):
        return x @ t[f"{name}.weight"].T + t[f"{name}.bias"]

    def norm(x, name):
        x = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-3)
        return x * t[f"{name}.weight"] + t[f"{name}.bias"]

    x = t["embeddings.word_embeddings.weight"][ids]
    x = x + t["embeddings.position_embeddings.weight"][: len(ids)]
    x = x + t["embeddings.token_type_embeddings.weight"][0]
    states = [norm(x, "embeddings.LayerNorm")]
    for i in range(2):
        x, layer = states[-1], f"encoder.layer.{i}"
        q, k, v = (
            affine(x, f"{layer}.attention.self.{m}") for m in ("query", "key", "value")
        )
        heads = []
        for part in (slice(0, 4), slice(4, 8)):
            weights = np.exp(q[:, part] @ k[:, part].T / 2.0)
            heads.append(weights / weights.sum(1, keepdims=True) @ v[:, part])
        y = affine(np.concatenate(heads, 1), f"{layer}.attention.output.dense")
        x = norm(x + y, f"{layer}.attention.output.LayerNorm")
        z = affine(x, f"{layer}.intermediate.dense")
        z = z * 0.5 * (1.0 + np.vectorize(math.erf)(z / math.sqrt(2.0)))
        y = affine(z, f"{layer}.output.dense")
        states.append(norm(x + y, f"{layer}.output.LayerNorm"))
    return np.stack(states)


@eqx.filter_jit
def run(model, ids, mask=None):
    return model.hidden_states(ids, mask=mask)


def test_tiny_encoder_equals_numpy(tiny, tol):
    dtype = jnp.zeros(()).dtype
    pretrained = load_pretrained(tiny, dtype=dtype)
    tokens = pretrained.encode("the oven bread dough")
    assert tokens.ids.tolist() == [2, 4, 5, 7, 8, 3]
    hidden = pretrained.hidden_states(tokens)
    assert hidden.dtype == dtype
    expected = original(tiny_tensors(), tokens.ids.tolist())
    np.testing.assert_allclose(hidden, expected, rtol=0, atol=100 * tol.identity)
    last = pretrained.model(tokens.ids)
    np.testing.assert_allclose(last, hidden[-1], rtol=0, atol=100 * tol.identity)
    with pytest.raises(ValueError, match="`steps` must be None where every layer has"):
        pretrained.hidden_states(tokens, steps=3)
    with pytest.raises(ValueError, match="`head` must be in the file of the model"):
        pretrained.logits(tokens)


def test_jit_equals_eager_and_vmap_equals_loop(tiny):
    model = load_pretrained(tiny).model
    ids = jnp.asarray([[2, 4, 5, 7, 8, 3], [2, 9, 6, 3, 0, 0], [4, 4, 4, 4, 4, 4]])
    loop = jnp.stack([run(model, row) for row in ids])
    assert loop.dtype == jnp.float32
    np.testing.assert_allclose(model.hidden_states(ids[0]), loop[0], atol=1e-5)
    mapped = jax.jit(jax.vmap(model.hidden_states))(ids)
    np.testing.assert_allclose(mapped, loop, rtol=0, atol=1e-5)


def test_absent_tokens_are_not_seen(tiny):
    model = load_pretrained(tiny).model
    mask = jnp.asarray([True, True, True, False, False, False])
    alone = original(tiny_tensors(), [2, 5, 3])
    for rest in ([0, 0, 0], [9, 8, 7]):
        padded = run(model, jnp.asarray([2, 5, 3, *rest]), mask)
        np.testing.assert_allclose(padded[:, :3], alone, rtol=0, atol=1e-4)
        seen = np.asarray(run(model, jnp.asarray([2, 5, 3, *rest])))
        assert np.abs(seen[-1, :3] - alone[-1]).max() > 0.01


def test_gradient_reaches_every_parameter_in_use(tiny):
    model = load_pretrained(tiny).model
    loss = eqx.filter_jit(eqx.filter_grad(lambda m: jnp.sum(m(jnp.arange(6)) ** 3)))
    for path, leaf in jax.tree_util.tree_leaves_with_path(loss(model)):
        assert jnp.all(jnp.isfinite(leaf)), path
        # A common shift of the keys moves no weight.
        if "key.bias" not in jax.tree_util.keystr(path):
            assert jnp.any(leaf != 0), path


def test_half_precision_is_kept_outside_and_widened_inside(tiny):
    single = run(load_pretrained(tiny, dtype=jnp.float32).model, jnp.arange(6))
    half = run(load_pretrained(tiny, dtype=jnp.bfloat16).model, jnp.arange(6))
    assert half.dtype == jnp.bfloat16
    assert np.abs(np.asarray(half, np.float32) - single).max() < 0.2


def test_random_encoder_has_the_shapes_of_its_config(getkey):
    # One shape for every table and matrix, so that one sampler is compiled.
    sizes = dict.fromkeys(TINY.to_dict(), 8) | {"layers": 2, "epsilon": 1e-6}
    config = BertConfig(**sizes)
    model = BertEncoder(config, key=getkey())
    assert {leaf.dtype for leaf in jax.tree.leaves(model)} == {jnp.zeros(()).dtype}
    tables = [
        model.embedding.word,
        model.embedding.position,
        model.layers[1].query.weight,
    ]
    assert all(abs(float(jnp.std(table)) - 0.02) < 0.01 for table in tables)
    assert not jnp.array_equal(model.layers[0].key.weight, model.layers[1].key.weight)
    half = eqx.filter_eval_shape(BertEncoder, TINY, key=getkey(), dtype=jnp.float16)
    assert {leaf.dtype for leaf in jax.tree.leaves(half)} == {np.dtype("float16")}
    assert half.layers[1].contract.weight.shape == (8, 12)


def test_bad_token_ids_are_refused(tiny):
    model = load_pretrained(tiny).model
    for wrong in (-1, len(WORDS)):
        ids = jnp.asarray([2, 4, 5, 7, 8, wrong])
        with pytest.raises(ValueError, match=r"`token_ids` must lie in \[0, 10\)"):
            model(ids)
        with pytest.raises(RuntimeError, match=r"`token_ids` must lie in \[0, 10\)"):
            jax.block_until_ready(run(model, ids))
    for n in (0, 7):
        with pytest.raises(
            ValueError, match=f"have from 1 to 6 tokens, but was of {n}"
        ):
            model(jnp.zeros(n, dtype=jnp.int32))


def test_short_integers_reach_a_large_vocabulary(tiny):
    # In uint8 the comparison 200 < 300 wraps to 200 < 44.
    tensors, name = tiny_tensors(), "embeddings.word_embeddings.weight"
    large = {name: np.tile(tensors[name], (30, 1))}
    write_tiny(tiny, tensors | large, TINY_HF | {"vocab_size": 300})
    model = load_pretrained(tiny).model
    ids = jnp.asarray([202, 204, 205, 207, 208, 203], dtype=jnp.uint8)
    expected = original(tiny_tensors(), [2, 4, 5, 7, 8, 3])
    np.testing.assert_allclose(run(model, ids), expected, rtol=0, atol=1e-4)


# --- the configuration ----------------------------------------------------------------


def test_config_goes_through_json():
    text = json.dumps(TINY.to_dict())
    assert BertConfig.from_dict(json.loads(text)) == TINY
    assert hash(BertConfig()) == hash(BertConfig(width=384))
    assert BertConfig.from_hf(TINY_HF) == TINY


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            {"model_type": "gpt2"},
            r"model_type among \['albert', 'bert'\], but was 'gpt2'",
        ),
        ({"hidden_act": "relu"}, "must have hidden_act = 'gelu', but was 'relu'"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type"),
        ({"is_decoder": True}, "must have is_decoder = False, but was True"),
        ({"rotary_base": 3}, r"effect is known, but was given \['rotary_base'\]"),
        ({"num_attention_heads": 3}, "`width` must be a multiple of heads = 3"),
        ({"hidden_size": -8}, "`width` must be an integer of at least 1, but was -8"),
        ({"layer_norm_eps": -1.0}, "`epsilon` must be finite and not negative"),
    ],
)
def test_unknown_architectures_are_refused(tiny, change, text):
    (tiny / "config.json").write_text(json.dumps(TINY_HF | change))
    with pytest.raises(ValueError, match=text):
        load_pretrained(tiny)


def test_missing_and_unknown_keys_are_refused():
    few = {key: value for key, value in TINY_HF.items() if key != "vocab_size"}
    with pytest.raises(
        ValueError, match=r"must have \['vocab_size'\], but was without"
    ):
        BertConfig.from_hf(few)
    with pytest.raises(ValueError, match=r"but was given \['depth'\]"):
        BertConfig.from_dict({"depth": 3})
    with pytest.raises(ValueError, match="`layers` must be an integer"):
        BertConfig(layers=0)


# --- errors at the door ---------------------------------------------------------------


def test_missing_directories_and_files(tiny, tmp_path):
    with pytest.raises(
        FileNotFoundError, match=r"or one of \[.*'minilm'\], but was 'maxi'"
    ):
        load_pretrained("maxi")
    with pytest.raises(ValueError, match="must be a directory, but was the file"):
        load_pretrained(tiny / "config.json")
    for file in ("model.safetensors", "config.json", "tokenizer.json"):
        content = (tiny / file).read_bytes()
        (tiny / file).unlink()
        with pytest.raises(
            FileNotFoundError, match=f"must hold {file}, but was .*tiny"
        ):
            load_pretrained(tiny)
        (tiny / file).write_bytes(content)


@pytest.mark.parametrize("file", ["model.safetensors", "config.json", "tokenizer.json"])
def test_truncated_files(tiny, file):
    content = (tiny / file).read_bytes()
    for size in (len(content) // 2, 5, 0):
        (tiny / file).write_bytes(content[:size])
        with pytest.raises(ValueError, match=f"must hold a readable {file}, but was"):
            load_pretrained(tiny)


def test_wrong_tensors(tiny):
    query, tensors = "encoder.layer.1.attention.self.query.weight", tiny_tensors()
    write_tiny(tiny, {k: v for k, v in tensors.items() if k != query})
    with pytest.raises(
        ValueError, match=rf"{query} of shape \(8, 8\), but was without"
    ):
        load_pretrained(tiny)
    write_tiny(tiny, tensors | {query: np.zeros((8, 4), np.float32)})
    with pytest.raises(
        ValueError,
        match=rf"{query} of shape \(8, 8\), but was with one of shape \(8, 4\)",
    ):
        load_pretrained(tiny)
    write_tiny(tiny, tensors | {query: np.zeros((8, 8), np.int8)})
    with pytest.raises(ValueError, match=f"floating tensors such as {query}.*int8"):
        load_pretrained(tiny)
    write_tiny(tiny, tensors | {query: np.zeros((8, 8), np.float16)})
    with pytest.raises(
        ValueError, match="`dtype` must be given for .*float16.*float32"
    ):
        load_pretrained(tiny)
    assert (
        load_pretrained(tiny, dtype=jnp.float32).model.embedding.word.dtype
        == jnp.float32
    )


def test_a_task_head_is_left_aside(tiny):
    ids = jnp.arange(4)
    expected = load_pretrained(tiny).model(ids)
    tensors = {f"bert.{name}": value for name, value in tiny_tensors().items()}
    write_tiny(tiny, tensors | {"cls.bias": np.zeros(3, np.float32)})
    np.testing.assert_array_equal(load_pretrained(tiny).model(ids), expected)


def test_dtype_must_be_one_that_jax_has(tiny):
    with pytest.raises(ValueError, match="`dtype` must be floating, but was int32"):
        load_pretrained(tiny, dtype=jnp.int32)
    if jax.config.jax_enable_x64:
        return
    with pytest.raises(ValueError, match="at most 32 bits wide where x64 is off"):
        load_pretrained(tiny, dtype=np.float64)


def test_texts_that_do_not_fit(tiny):
    pretrained = load_pretrained(tiny)
    with pytest.raises(
        ValueError, match="`text` must have at least one token, but was"
    ):
        pretrained.encode("  ")
    with pytest.raises(ValueError, match="at most 6 tokens.* but was of 7 tokens"):
        pretrained.encode("the sea the sea the")
    tokens = pretrained.encode("the whale")
    assert tokens.words == ("[CLS]", "the", "[UNK]", "[SEP]")
    assert tokens.special.tolist() == [True, False, False, True]


def test_a_tokenizer_of_another_model_is_refused(tiny):
    tensors = tiny_tensors()
    name = "embeddings.word_embeddings.weight"
    write_tiny(tiny, tensors | {name: tensors[name][:9]}, TINY_HF | {"vocab_size": 9})
    with pytest.raises(ValueError, match="`tokenizer.json` must have at most 9 tokens"):
        load_pretrained(tiny)


@pytest.mark.parametrize("module", ["safetensors", "tokenizers"])
def test_the_extra_is_named(tiny, monkeypatch, module):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf"must have {module}.*tfjax\[pretrained\]"):
        load_pretrained(tiny)


def test_a_name_is_sought_in_the_cache_then_in_the_package(tmp_path, monkeypatch):
    monkeypatch.setenv("TFJAX_CACHE", str(tmp_path / "cache"))
    module = "a_package_that_must_not_be_imported"
    source = WeightsSource("", 1, {}, "", installed=(module, "model"))
    monkeypatch.setitem(WEIGHTS, "minilm", source)
    with pytest.raises(FileNotFoundError, match="run `tfjax fetch-weights minilm`"):
        load_pretrained("minilm")
    monkeypatch.syspath_prepend(tmp_path / "site")
    write_tiny(tmp_path / "site" / module / "model")
    (tmp_path / "site" / module / "__init__.py").write_text("raise RuntimeError")
    assert load_pretrained("minilm").model.config == TINY
    assert module not in sys.modules
    deeper = TINY_HF | {"layer_norm_eps": 1e-6}
    write_tiny(weights_directory("minilm"), config=deeper)
    assert load_pretrained("minilm").model.config.epsilon == 1e-6
