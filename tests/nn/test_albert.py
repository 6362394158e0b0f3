"""ALBERT: one layer, applied any number of times, equal to an independent one."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from checkpoints import ALBERT_HF, albert_tensors, write_tiny

from tfjax.nn import AlbertConfig, AlbertEncoder, find_weights, load_pretrained


@pytest.fixture
def tiny(tmp_path):
    return write_tiny(tmp_path / "tiny", albert_tensors(), ALBERT_HF)


def original(tensors, ids, steps):
    """Post-norm ALBERT in numpy, float64, one head at a time."""
    t = {name: np.asarray(value, np.float64) for name, value in tensors.items()}
    layer = "encoder.albert_layer_groups.0.albert_layers.0"

    def affine(x, name):
        return x @ t[f"{name}.weight"].T + t[f"{name}.bias"]

    def norm(x, name):
        x = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-3)
        return x * t[f"{name}.weight"] + t[f"{name}.bias"]

    x = t["embeddings.word_embeddings.weight"][ids]
    x = x + t["embeddings.position_embeddings.weight"][: len(ids)]
    x = norm(
        x + t["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm"
    )
    states = [affine(x, "encoder.embedding_hidden_mapping_in")]
    for _ in range(steps):
        x = states[-1]
        q, k, v = (
            affine(x, f"{layer}.attention.{m}") for m in ("query", "key", "value")
        )
        heads = []
        for part in (slice(0, 4), slice(4, 8)):
            weights = np.exp(q[:, part] @ k[:, part].T / 2.0)
            heads.append(weights / weights.sum(1, keepdims=True) @ v[:, part])
        y = affine(np.concatenate(heads, 1), f"{layer}.attention.dense")
        x = norm(x + y, f"{layer}.attention.LayerNorm")
        z = affine(x, f"{layer}.ffn")
        z = 0.5 * z * (1 + np.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3)))
        y = affine(z, f"{layer}.ffn_output")
        states.append(norm(x + y, f"{layer}.full_layer_layer_norm"))
    return np.stack(states)


def test_tiny_encoder_equals_numpy_at_any_number_of_steps(tiny, tol):
    pretrained = load_pretrained(tiny, dtype=jnp.zeros(()).dtype)
    tokens = pretrained.encode("the oven bread dough")
    expected = original(albert_tensors(), tokens.ids.tolist(), 9)
    for steps, states in ((None, 3), (9, 10)):
        hidden = pretrained.hidden_states(tokens, steps=steps)
        assert hidden.shape == (states, 6, 8)
        np.testing.assert_allclose(
            hidden, expected[:states], rtol=0, atol=tol.composite
        )


def test_jit_equals_eager_vmap_equals_loop_and_the_gradient_is_finite(tiny, tol):
    model = load_pretrained(tiny, dtype=jnp.zeros(()).dtype).model
    ids = jnp.asarray([[2, 4, 5, 7, 8, 3], [4, 4, 9, 4, 4, 4]])
    loop = jnp.stack([model(row) for row in ids])
    mapped = jax.jit(jax.vmap(model))(ids)
    np.testing.assert_allclose(mapped, loop, rtol=0, atol=tol.composite)
    loss = eqx.filter_jit(eqx.filter_grad(lambda m: jnp.sum(m(jnp.arange(6)) ** 3)))
    for path, leaf in jax.tree_util.tree_leaves_with_path(loss(model)):
        assert jnp.all(jnp.isfinite(leaf)), path


def test_absent_tokens_are_not_seen(tiny, tol):
    model = load_pretrained(tiny, dtype=jnp.zeros(()).dtype).model
    mask = jnp.asarray([True, True, True, False, False, False])
    padded = model.hidden_states(jnp.asarray([2, 5, 3, 9, 8, 7]), mask=mask)
    alone = original(albert_tensors(), [2, 5, 3], 2)
    np.testing.assert_allclose(padded[:, :3], alone, rtol=0, atol=tol.composite)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("steps", [0, -1, 2.5, True])
def test_the_number_of_steps_must_be_a_positive_integer(tiny, steps):
    model = load_pretrained(tiny).model
    with pytest.raises(ValueError, match="`steps` must be a positive integer, but was"):
        model.hidden_states(jnp.arange(3), steps=steps)


def test_the_default_sizes_are_those_of_pl_bert():
    model = eqx.filter_eval_shape(AlbertEncoder, AlbertConfig(), key=jax.random.key(0))
    assert sum(leaf.size for leaf in jax.tree.leaves(model)) == 5_701_888
    assert AlbertConfig.from_dict(AlbertConfig().to_dict()) == AlbertConfig()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"hidden_act": "gelu"}, "must have hidden_act = 'gelu_new', but was 'gelu'"),
        ({"num_hidden_groups": 2}, "must have num_hidden_groups = 1, but was 2"),
        ({"inner_group_num": 2}, "must have inner_group_num = 1, but was 2"),
        ({"embedding_size": 0}, "`embedding_width` must be an integer of at least 1"),
    ],
)
def test_other_forms_of_albert_are_refused(tmp_path, change, text):
    write_tiny(tmp_path, albert_tensors(), ALBERT_HF | change)
    with pytest.raises(ValueError, match=text):
        load_pretrained(tmp_path)


def test_a_task_head_is_left_aside(tiny):
    tokens = jnp.arange(4)
    expected = load_pretrained(tiny).model(tokens)
    tensors = {f"albert.{name}": value for name, value in albert_tensors().items()}
    write_tiny(tiny, tensors | {"predictions.bias": np.zeros(3, np.float32)}, ALBERT_HF)
    np.testing.assert_array_equal(load_pretrained(tiny).model(tokens), expected)


# --- the real weights -----------------------------------------------------------------


@pytest.fixture(scope="module")
def albert():
    try:
        find_weights("albert")
    except FileNotFoundError as error:
        pytest.skip(str(error))
    return load_pretrained("albert")


SENTENCE = (
    "ðə ɹˈAn hæd stˈɑpt ˌOvəɹ ðə hˈɑɹbəɹ, ænd ðə fˈɪʃəɹmən wɜɹ mˈɛndɪŋ ðɛɹ nˈɛts "
    "bəsˈId ðə bˈOts."
)


def cosines(x):
    x = np.asarray(x, float)
    x = x / np.linalg.norm(x, axis=1, keepdims=True)
    return (x @ x.T)[np.triu_indices(len(x), 1)]


@pytest.mark.pretrained
def test_phonemes_are_read_one_by_one(albert):
    tokens = albert.encode("ə bˈOt.")
    assert tokens.words == ("[PAD]", "ə", " ", "b", "ˈ", "O", "t", ".", "[PAD]")
    assert tokens.ids.tolist() == [0, 83, 16, 44, 156, 31, 62, 4, 0]
    assert np.flatnonzero(tokens.special).tolist() == [0, 8]
    with pytest.raises(ValueError, match="`text` must hold symbols that the model"):
        albert.encode("ə 7")


@pytest.mark.pretrained
def test_the_layers_have_the_cosines_of_the_original(albert):
    # Of the same sentence in the int8 original, run by onnxruntime 1.32. Activations
    # are int8 there too, hence the tolerance.
    expected = [0.129, 0.425, 0.401, 0.364, 0.352, 0.347, 0.343]
    expected += [0.354, 0.354, 0.343, 0.370, 0.382, 0.571]
    hidden = albert.hidden_states(albert.encode(SENTENCE))
    found = [cosines(x).mean() for x in hidden]
    np.testing.assert_allclose(found, expected, rtol=0, atol=0.015)


@pytest.mark.pretrained
def test_albert_with_feed_forward_and_biases_iterated_400_times_does_not_collapse(
    albert,
):
    # Attention alone with V = I gathers all tokens of d >= n in one point. The shared
    # layer has a feed-forward part, biases and general matrices, and does not.
    hidden = albert.hidden_states(albert.encode(SENTENCE), steps=400)
    x = np.asarray(hidden, float)
    assert cosines(x[-1]).mean() < 0.9
    step = np.linalg.norm(np.diff(x, axis=0), axis=(1, 2))
    assert np.min(step / np.linalg.norm(x[:-1], axis=(1, 2))) > 0.1
    directions = x[-1] / np.linalg.norm(x[-1], axis=1, keepdims=True)
    share = np.linalg.svd(directions, compute_uv=False) ** 2 / len(directions)
    assert np.exp(-np.sum(share * np.log(share))) > 3
