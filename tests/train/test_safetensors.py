"""Models as safetensors: bit for bit, readable elsewhere, whole or not at all."""

import dataclasses
import json
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tfjax.nn import Transformer, TransformerConfig
from tfjax.train import export_safetensors, import_safetensors


library = pytest.importorskip("safetensors.numpy")
CONFIG = TransformerConfig(vocabulary=7, layers=2, heads=2, head_dim=8, context=6)


def model_of(dtype=jnp.float32, **changes):
    config = dataclasses.replace(CONFIG, **changes)
    return Transformer(config, key=jax.random.key(1), dtype=dtype)


def same(a, b):
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return all(x.dtype == y.dtype and np.array_equal(x, y) for x, y in pairs)


@pytest.fixture
def file(tmp_path):
    return tmp_path / "model.safetensors"


@pytest.mark.parametrize(
    "changes",
    [
        {"positions": "learned", "tied": False, "norm": "peri"},
        {"scan": True},
        {"norm": "ngpt", "dtype": jnp.bfloat16},
        {"vocabulary": None, "features": 3, "classes": 4, "block": "leapfrog"},
    ],
    ids=str,
)
def test_a_model_comes_back_bit_for_bit(file, changes):
    model = model_of(**changes)
    export_safetensors(file, model)
    found = import_safetensors(file)
    assert found.config == model.config
    assert jax.tree.structure(found) == jax.tree.structure(model)
    assert same(found, model)
    assert [each.name for each in file.parent.iterdir()] == [file.name]


def test_names_are_paths_and_memory_is_in_order(file):
    model = model_of()
    # One whose memory is not in the order of its indices.
    turned = np.asfortranarray(np.asarray(model.embedding))
    export_safetensors(file, eqx.tree_at(lambda m: m.embedding, model, turned))
    tensors = library.load_file(file)
    np.testing.assert_array_equal(tensors["embedding"], model.embedding)
    leaves = jax.tree_util.tree_flatten_with_path(model)[0]
    names = {jax.tree_util.keystr(p, simple=True, separator=".") for p, _ in leaves}
    assert set(tensors) == names
    assert any(name.startswith("layers.1.attention.") for name in names)


def test_others_read_the_file_and_its_metadata(file):
    torch = pytest.importorskip("torch")
    from safetensors import safe_open
    from safetensors.torch import load_file

    model = model_of(dtype=jnp.bfloat16)
    export_safetensors(file, model, metadata={"alphabet": "ab\n"})
    tensors = load_file(file)
    assert tensors["embedding"].dtype == torch.bfloat16
    found = tensors["embedding"].float().numpy()
    np.testing.assert_array_equal(found, model.embedding.astype(jnp.float32))
    with safe_open(file, framework="pt") as opened:
        words = opened.metadata()
    assert words["alphabet"] == "ab\n"
    assert json.loads(words["transformer_config"]) == CONFIG.to_dict()


def test_an_interruption_leaves_the_old_file(file, monkeypatch):
    export_safetensors(file, model_of())
    before = file.read_bytes()

    def full(descriptor):
        raise OSError("no space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="no space left"):
        export_safetensors(file, model_of(layers=1))
    assert file.read_bytes() == before
    assert [each.name for each in file.parent.iterdir()] == [file.name]


# --- What is refused ------------------------------------------------------------------


def rewritten(file, change, words=None):
    """The file with other tensors, or other metadata."""
    export_safetensors(file, model_of())
    tensors = library.load_file(file)
    change(tensors)
    config = {"transformer_config": json.dumps(CONFIG.to_dict())}
    library.save_file(tensors, file, config if words is None else words)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda t: t.pop("embedding"),
            "leaf `embedding` must be in the file, but was m",
        ),
        (
            lambda t: t.update(more=np.zeros(1, np.float32)),
            "leaf `more` must be of the model, but was in the file only",
        ),
        (
            lambda t: t.update(embedding=np.zeros((2, 16), np.float32)),
            r"leaf `embedding` must have shape \(7, 16\), but was of shape \(2, 16\)",
        ),
        (
            lambda t: t.update(embedding=np.zeros((7, 16), np.int32)),
            "leaf `embedding` must have floats, but was of dtype int32",
        ),
    ],
)
def test_another_tree_is_refused_with_file_and_leaf(file, change, message):
    rewritten(file, change)
    with pytest.raises(ValueError, match=rf"model\.safetensors: {message}"):
        import_safetensors(file)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({}, r"`.*model\.safetensors` must have 'transformer_config' in its metadata"),
        ({"transformer_config": "{"}, r"safetensors has no configuration of a Transf"),
        ({"transformer_config": '{"depth": 3}'}, r"configuration .* given \['depth'\]"),
    ],
)
def test_a_file_of_others_is_refused(file, words, message):
    rewritten(file, lambda tensors: None, words)
    with pytest.raises(ValueError, match=message):
        import_safetensors(file)


def test_what_cannot_be_read_is_told(file):
    with pytest.raises(FileNotFoundError, match="There is no file .*model.safetensors"):
        import_safetensors(file)
    export_safetensors(file, model_of())
    file.write_bytes(file.read_bytes()[:-4])
    with pytest.raises(ValueError, match="safetensors is no whole safetensors file: "):
        import_safetensors(file)


@pytest.mark.skipif(jax.config.jax_enable_x64, reason="x64 reads 64 bits")
def test_64_bits_are_not_narrowed_in_silence(file):
    wide = lambda t: t.update(embedding=np.zeros((7, 16)))
    rewritten(file, wide)
    with pytest.raises(ValueError, match="at most 32 bits wide where x64 is off, but"):
        import_safetensors(file)


def test_what_the_format_cannot_hold_is_refused(file, unchecked):
    for words in ({"step": 3}, {"transformer_config": "{}"}):
        with pytest.raises(
            ValueError, match="`metadata` must have strings as keys and"
        ):
            export_safetensors(file, model_of(), metadata=words)
    broken = eqx.tree_at(lambda m: m.embedding, model_of(), jnp.zeros((7, 16), int))
    with pytest.raises(
        ValueError, match="arrays of floats, at embedding too, but was i"
    ):
        export_safetensors(file, broken)
    with pytest.raises(
        ValueError, match="`model` must be a Transformer, but was a dic"
    ):
        export_safetensors(file, {"embedding": jnp.zeros(2)})
    assert not file.exists()


def test_without_the_library_the_extra_is_named(file, monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors", None)
    monkeypatch.setitem(sys.modules, "safetensors.numpy", None)
    with pytest.raises(
        ImportError, match=r"`export_safetensors` .*tfjax\[pretrained\]"
    ):
        export_safetensors(file, model_of())
    with pytest.raises(
        ImportError, match=r"`import_safetensors` must have safetensors"
    ):
        import_safetensors(file)
