"""Checkpoints: bit for bit, whole or not at all, and never the wrong one."""

import os

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tfjax.train import load_checkpoint, read_metadata, save_checkpoint


def tree(scale=1.0):
    return {
        "weights": scale
        * jnp.asarray(np.random.default_rng(0).standard_normal((3, 2))),
        "half": jnp.full((2,), 1 / 3, jnp.bfloat16),
        "counts": (jnp.arange(4), jnp.asarray(True)),
        "key": jax.random.key(5),
        "rate": 0.1,
        "function": jnp.tanh,
    }


def same(a, b):
    bits = lambda x: (
        jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x
    )
    arrays = lambda t: [bits(x) for x in jax.tree.leaves(eqx.filter(t, eqx.is_array))]
    pairs = list(zip(arrays(a), arrays(b), strict=True))
    return all(x.dtype == y.dtype and np.array_equal(x, y) for x, y in pairs)


def test_what_is_saved_comes_back_bit_for_bit(tmp_path):
    file = tmp_path / "state.npz"
    save_checkpoint(file, tree(), metadata={"step": 3, "config": {"layers": 2}})
    found, metadata = load_checkpoint(file, tree(scale=0.0) | {"rate": 7.0})
    assert same(found, tree())
    assert found["rate"] == 0.1
    assert found["function"] is jnp.tanh
    assert metadata == read_metadata(file) == {"step": 3, "config": {"layers": 2}}
    draw = jax.random.normal(found["key"], (2,))
    np.testing.assert_array_equal(draw, jax.random.normal(jax.random.key(5), (2,)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"weights": jnp.zeros((2, 2))},
            r"leaf `\['weights'\]` must be .* \(2, 2\), but",
        ),
        ({"half": jnp.zeros(2, jnp.float16)}, r"leaf `\['half'\]` must be float16 of"),
        (
            {"more": jnp.zeros(1)},
            r"leaf `\['more'\]` must be in the file, but was miss",
        ),
        ({"rate": jnp.zeros(())}, r"leaf `\['rate'\]` must be .* but was Python float"),
        ({"counts": (jnp.arange(4),)}, r"leaf `\['counts'\]\[1\]` must be in the tree"),
    ],
)
def test_another_tree_is_refused_by_file_and_leaf(tmp_path, change, message):
    file = tmp_path / "state.npz"
    save_checkpoint(file, tree())
    with pytest.raises(ValueError, match=message) as error:
        load_checkpoint(file, tree() | change)
    assert str(file) in str(error.value)


@pytest.mark.parametrize("where", [0.1, 0.5, 0.9])
def test_a_damaged_file_is_told(tmp_path, where):
    file = tmp_path / "state.npz"
    save_checkpoint(file, {"w": jnp.arange(5000.0)})
    content = bytearray(file.read_bytes())
    content[int(where * len(content))] ^= 0xFF
    file.write_bytes(content)
    with pytest.raises(ValueError, match=r"state.npz is no whole checkpoint: "):
        load_checkpoint(file, {"w": jnp.arange(5000.0)})


@pytest.mark.parametrize("share", [0.0, 0.3, 0.99])
def test_a_file_that_was_cut_is_told(tmp_path, share):
    file = tmp_path / "state.npz"
    save_checkpoint(file, tree())
    content = file.read_bytes()
    file.write_bytes(content[: int(share * len(content))])
    with pytest.raises(ValueError, match=r"state.npz is no whole checkpoint: "):
        load_checkpoint(file, tree())


def test_a_missing_file_is_told(tmp_path):
    with pytest.raises(FileNotFoundError, match="There is no checkpoint .*none.npz"):
        load_checkpoint(tmp_path / "none.npz", tree())


@pytest.mark.parametrize("moment", ["savez", "fsync"])
def test_a_failure_on_the_way_leaves_the_old_file(tmp_path, monkeypatch, moment):
    """As a full disk or a kill would: before all is on disk nothing is replaced."""
    file = tmp_path / "state.npz"
    save_checkpoint(file, tree(), metadata={"step": 1})

    def fail(*args, **kwargs):
        raise OSError(28, "No space left on device")

    owner = np if moment == "savez" else os
    monkeypatch.setattr(owner, moment, fail)
    with pytest.raises(OSError, match="No space left"):
        save_checkpoint(file, tree(2.0), metadata={"step": 2})
    monkeypatch.undo()
    found, metadata = load_checkpoint(file, tree(0.0))
    assert metadata == {"step": 1}
    assert same(found, tree())
    assert [p.name for p in tmp_path.iterdir()] == ["state.npz"]


def test_what_cannot_be_kept_is_named(tmp_path):
    file = tmp_path / "state.npz"
    with pytest.raises(ValueError, match="`metadata` must be what JSON can hold"):
        save_checkpoint(file, tree(), metadata={"loss": float("nan")})
    with pytest.raises(ValueError, match="`metadata` must be what JSON can hold"):
        save_checkpoint(file, tree(), metadata={"model": object()})
    assert not file.exists()


def test_any_flipped_bit_is_told_by_file(tmp_path):
    file = tmp_path / "state.npz"
    save_checkpoint(file, tree(), metadata={"step": 1})
    content = file.read_bytes()
    rng = np.random.default_rng(0)
    told = []
    for bit in rng.choice(8 * len(content), 400, replace=False):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << (bit % 8)
        file.write_bytes(damaged)
        try:
            found, metadata = load_checkpoint(file, tree(0.0))
        except ValueError as error:
            told.append(str(error))
        else:  # a bit that carries nothing, such as a date
            assert same(found, tree())
            assert metadata == {"step": 1}
    assert len(told) > 200
    assert all(str(file) in text and "allow_pickle" not in text for text in told)


def test_leaves_in_one_anothers_place_are_told(tmp_path):
    file = tmp_path / "state.npz"
    save_checkpoint(file, {"a": jnp.arange(3), "b": jnp.arange(3) + 1})
    with np.load(file) as archive:
        arrays = dict(archive)
    arrays["['a']"], arrays["['b']"] = arrays["['b']"], arrays["['a']"]
    np.savez(file, **arrays)
    with pytest.raises(ValueError, match=r"leaf `\['a'\]` has another checksum"):
        load_checkpoint(file, {"a": jnp.arange(3), "b": jnp.arange(3)})


@pytest.mark.parametrize("header", ["[]", "{}", '{"format": 2}', "5", "rubbish"])
def test_a_header_of_another_kind_is_told(tmp_path, header):
    file = tmp_path / "state.npz"
    np.savez(file, __header__=np.frombuffer(header.encode(), np.uint8))
    with pytest.raises(
        ValueError, match=r"state.npz is no whole checkpoint: leaf `__h"
    ):
        load_checkpoint(file, tree())
