"""Files of other formats: read exactly, never trusted."""

import collections
import io
import json
import os
import pickle
import sys
import types
import zipfile

import numpy as np
import pytest
from checkpoints import albert_tensors

from tfjax.nn import find_weights, load_pretrained
from tfjax.nn._convert import (
    _MATRICES,
    _tokenizer,
    albert_tensors as read_albert,
    convert_antiberty,
)
from tfjax.nn._torch_file import read_torch


# --- checkpoints of PyTorch -----------------------------------------------------------


class Storage:
    def __init__(self, key):
        self.key = key


class Tensor:
    def __init__(self, key, offset, shape, strides):
        self.fields = (Storage(key), offset, shape, strides)


@pytest.fixture
def torch(monkeypatch):
    """Modules with the names that a checkpoint refers to, and nothing in them."""
    modules = {name: types.ModuleType(name) for name in ("torch", "torch._utils")}
    rebuild = types.FunctionType((lambda: None).__code__, {}, "_rebuild_tensor_v2")
    rebuild.__module__, rebuild.__qualname__ = "torch._utils", "_rebuild_tensor_v2"
    storage = type("FloatStorage", (), {"__module__": "torch"})
    modules["torch"].FloatStorage = storage
    modules["torch._utils"]._rebuild_tensor_v2 = rebuild
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    return rebuild, storage


def save(file, value, storages, torch=(None, None)):
    """As `torch.save` does it: a pickle, and a file for each storage."""
    rebuild, storage = torch

    class Pickler(pickle.Pickler):
        def persistent_id(self, each):
            if isinstance(each, Storage):
                size = storages[each.key].size
                return ("storage", storage, each.key, "cpu", size)
            return None

        def reducer_override(self, each):
            if isinstance(each, Tensor):
                return rebuild, (*each.fields, False, collections.OrderedDict())
            return NotImplemented

    stream = io.BytesIO()
    Pickler(stream, protocol=2).dump(value)
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", stream.getvalue())
        for key, content in storages.items():
            archive.writestr(f"archive/data/{key}", content.tobytes())
    return file


def test_tensors_are_read_with_their_offsets_and_strides(tmp_path, torch):
    numbers = np.arange(12, dtype="<f4")
    state = collections.OrderedDict(
        plain=Tensor("0", 0, (3, 4), (4, 1)),
        turned=Tensor("0", 0, (4, 3), (1, 4)),
        tail=Tensor("0", 10, (2,), (1,)),
        scalar=Tensor("0", 5, (), ()),
        empty=Tensor("0", 0, (0, 4), (4, 1)),
    )
    state._metadata = {"": {"version": 1}}  # as state dicts have
    found = read_torch(save(tmp_path / "a.bin", state, {"0": numbers}, torch))
    np.testing.assert_array_equal(found["plain"], numbers.reshape(3, 4))
    np.testing.assert_array_equal(found["turned"], numbers.reshape(3, 4).T)
    np.testing.assert_array_equal(found["tail"], [10, 11])
    assert found["scalar"] == 5
    assert found["empty"].shape == (0, 4)


class Call:
    """Unpickled by a reader that trusts it, this calls any function."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (os.system, f"{os.system.__module__}.system"),
        (eval, "builtins.eval|__builtin__.eval"),
        (getattr, "builtins.getattr|__builtin__.getattr"),
        (os.remove, f"{os.remove.__module__}.remove"),
    ],
)
def test_a_pickle_that_names_a_function_is_refused_by_name(tmp_path, function, name):
    victim = tmp_path / "victim"
    victim.touch()
    code = {
        os.system: (f"rm {victim}",),
        eval: (f"__import__('os').remove({str(victim)!r})",),
        getattr: (victim, "unlink"),
        os.remove: (str(victim),),
    }
    file = save(tmp_path / "a.bin", {"x": Call(function, *code[function])}, {})
    with pytest.raises(
        ValueError, match=f"must name tensors only, but was naming {name}"
    ):
        read_torch(file)
    assert victim.exists()


def test_an_attribute_of_an_allowed_name_is_refused(tmp_path):
    # Protocol 4 can name attributes: OrderedDict.fromkeys is not OrderedDict.
    pickled = pickle.dumps(Call(collections.OrderedDict.fromkeys, "ab"), protocol=4)
    with zipfile.ZipFile(tmp_path / "a.bin", "w") as archive:
        archive.writestr("archive/data.pkl", pickled)
    with pytest.raises(ValueError, match="must name tensors only, but was naming"):
        read_torch(tmp_path / "a.bin")


@pytest.mark.parametrize(
    "fields",
    [
        (0, (3, 5), (5, 1)),
        (11, (2,), (1,)),
        (-1, (2,), (1,)),
        (0, (2,), (-1,)),
        (0, (4, 4), (0, 0)),
    ],
)
def test_tensors_outside_their_storage_are_refused(tmp_path, torch, fields):
    state = {"x": Tensor("0", *fields)}
    numbers = {"0": np.arange(12, dtype="<f4")}
    file = save(tmp_path / "a.bin", state, numbers, torch)
    with pytest.raises(ValueError, match="must have tensors that lie inside their sto"):
        read_torch(file)


def test_damaged_archives_and_other_contents_are_refused(tmp_path, torch):
    numbers = {"0": np.arange(4, dtype="<f4")}
    state = {"x": Tensor("0", 0, (4,), (1,))}
    file = save(tmp_path / "a.bin", state, numbers, torch)
    content = file.read_bytes()
    (tmp_path / "half.bin").write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match="`half.bin` must be a whole archive of PyT"):
        read_torch(tmp_path / "half.bin")
    with pytest.raises(ValueError, match="must refer to storages only, but was"):
        read_torch(save(tmp_path / "b.bin", {"x": Storage("0")}, numbers, (None, 3)))
    with zipfile.ZipFile(file) as archive:
        pickled = archive.read("archive/data.pkl")
    with zipfile.ZipFile(tmp_path / "d.bin", "w") as archive:
        archive.writestr("archive/data.pkl", pickled)
    with pytest.raises(ValueError, match="whole archive of PyTorch, but was KeyError"):
        read_torch(tmp_path / "d.bin")
    for value, text in (
        ([1], "hold a dictionary of tensors, but was list"),
        ({"x": 1}, "hold tensors only, but was with a int at 'x'"),
    ):
        with pytest.raises(ValueError, match=text):
            read_torch(save(tmp_path / "c.bin", value, {}))


# --- tokenizers -----------------------------------------------------------------------


def test_a_token_is_a_character_and_lines_are_joined():
    pytest.importorskip("tokenizers")
    symbols = {"[PAD]": 0, "a": 1, " ": 2, "\u0303": 3}
    phonemes = _tokenizer(symbols, "[PAD]", "[PAD]")
    # A combining mark is a symbol of its own.
    assert phonemes.encode("a\u0303 a\r\na").ids == [0, 1, 3, 2, 1, 1, 0]
    with pytest.raises(Exception, match="WordLevel error: Missing"):
        phonemes.encode("ab")
    residues = _tokenizer({"[UNK]": 0, "[CLS]": 1, "A": 2}, "[CLS]", "[CLS]", "[UNK]")
    assert residues.encode("ABA").ids == [1, 2, 0, 2, 1]


# --- AntiBERTy ------------------------------------------------------------------------


def test_a_decoder_of_its_own_is_refused(tmp_path, torch):
    state = {
        "bert.embeddings.word_embeddings.weight": Tensor("0", 0, (2, 2), (2, 1)),
        "cls.predictions.bias": Tensor("0", 0, (2,), (1,)),
        "cls.predictions.decoder.weight": Tensor("0", 4, (2, 2), (2, 1)),
    }
    numbers = {"0": np.arange(8, dtype="<f4")}
    save(tmp_path / "pytorch_model.bin", state, numbers, torch)
    with pytest.raises(
        ValueError, match="have cls.predictions.decoder.weight equal to"
    ):
        convert_antiberty(tmp_path, tmp_path)


ANTIBODY = (
    "EVQLVQSGPEVKKPGTSVKVSCKASGFTFMSSAVQWVRQARGQRLEWIGWIVIGSGNTNYAQKFQERVTITRDMSTST"
    "AYMELSSLRSEDTAVYYCAAPYCSSISCNDGFDIWGQGTMVTVS"
)


@pytest.fixture(scope="module")
def antiberty():
    try:
        find_weights("antiberty")
    except FileNotFoundError as error:
        pytest.skip(str(error))
    return load_pretrained("antiberty")


@pytest.mark.pretrained
def test_residues_are_read_one_by_one(antiberty):
    tokens = antiberty.encode("EV\n[MASK]J")
    assert tokens.words == ("[CLS]", "E", "V", "[MASK]", "[UNK]", "[SEP]")
    assert tokens.ids.tolist() == [2, 8, 22, 4, 1, 3]
    assert np.flatnonzero(tokens.special).tolist() == [0, 5]


@pytest.mark.pretrained
def test_masked_residues_are_recovered(antiberty):
    # 27 of 31 by another reader of the same file; a wrong layer or head finds few.
    places = range(0, len(ANTIBODY), 4)
    masked = "".join("[MASK]" if i in places else c for i, c in enumerate(ANTIBODY))
    logits = np.array(antiberty.logits(antiberty.encode(masked)))
    truth = antiberty.encode(ANTIBODY).ids
    found = logits[:, 5:].argmax(axis=1) + 5
    assert sum(int(found[i + 1]) == int(truth[i + 1]) for i in places) == 27


@pytest.mark.pretrained
def test_the_layers_have_the_cosines_that_another_reader_found(antiberty):
    expected = [0.022, 0.078, 0.095, 0.108, 0.129, 0.176, 0.246, 0.276, 0.354]
    x = np.asarray(antiberty.hidden_states(antiberty.encode(ANTIBODY)), float)
    x = x / np.linalg.norm(x, axis=2, keepdims=True)
    pairs = np.triu_indices(x.shape[1], 1)
    found = [(each @ each.T)[pairs].mean() for each in x]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-3)


# --- ALBERT ---------------------------------------------------------------------------


def quantised(tensors, zero):
    """An ONNX file of the tensors in int8, as the published one is laid out."""
    onnx = pytest.importorskip("onnx")
    stored, nodes = {"zero": np.int8(zero), "zero of tables": np.int8(0)}, []
    exact = {}
    onnx_names = {name: number for number, name in _MATRICES.items()}
    for name, tensor in tensors.items():
        base = name.removesuffix(".weight")
        if "_embeddings." in name:
            q = np.round(20 * tensor).astype(np.int8)
            scale, key = np.float32(0.05), f"encoder.bert.{name}"
            exact[name] = q * scale
            nodes.append(
                onnx.helper.make_node("Gather", [f"{key}_quantized", "i"], [f"{key}:g"])
            )
            inputs = [f"{key}:g", f"{key}_scale", "zero of tables"]
            nodes.append(
                onnx.helper.make_node("DequantizeLinear", inputs, [f"{key}:out"])
            )
        elif name.endswith(".weight") and base in onnx_names:
            q = np.round(20 * tensor.T).astype(np.int8)
            scale = np.linspace(0.01, 0.02, q.shape[1], dtype=np.float32)
            key = onnx_names[base]
            exact[name] = ((q.astype(np.float32) - zero) * scale).T
            inputs = ["x", f"{key}_quantized", "x zero", "zero"]
            nodes.append(onnx.helper.make_node("MatMulInteger", inputs, [f"{key}:out"]))
        else:
            stored[f"encoder.bert.{name}"] = exact[name] = tensor
            continue
        stored |= {f"{key}_quantized": q, f"{key}_scale": scale}
    initialisers = [
        onnx.numpy_helper.from_array(np.asarray(value), name)
        for name, value in stored.items()
    ]
    graph = onnx.helper.make_graph(nodes, "voice", [], [], initialisers)
    return onnx.helper.make_model(graph).SerializeToString(), exact


@pytest.mark.parametrize("zero", [0, 3])
def test_int8_weights_are_dequantised_exactly(zero):
    content, exact = quantised(albert_tensors(), zero)
    found = read_albert(content)
    assert set(found) == set(exact)
    for name, tensor in exact.items():
        assert found[name].dtype == np.float32
        np.testing.assert_allclose(found[name], tensor, rtol=1e-6, atol=0, err_msg=name)


def test_a_file_without_the_encoder_is_refused():
    tensors = albert_tensors()
    missing = next(name for name in tensors if name.endswith(".ffn.bias"))
    del tensors[missing]
    content, _ = quantised(tensors, 0)
    with pytest.raises(
        ValueError, match=f"must hold encoder.bert.{missing}, but was w"
    ):
        read_albert(content)


@pytest.mark.pretrained
def test_the_licences_of_what_was_converted_are_kept():
    try:
        directory = find_weights("albert")
    except FileNotFoundError as error:
        pytest.skip(str(error))
    assert "hexgrad" in (directory / "NOTICE").read_text("utf-8")
    assert "Apache License" in (directory / "LICENSE").read_text("utf-8")
    assert "dequantised" in (directory / "NOTICE.txt").read_text("utf-8")
    assert json.loads((directory / "config.json").read_text())["model_type"] == "albert"
