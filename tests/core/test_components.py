"""Connected components, against scipy and on graphs whose answer is known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.sparse import csgraph

from tfjax._core import connected_components


N = 60
components = jax.jit(connected_components)


def smallest_members(adjacency):
    """The answer by scipy, each component named by its smallest member."""
    _, labels = csgraph.connected_components(adjacency, directed=False)
    _, first = np.unique(labels, return_index=True)
    return first[labels]


@pytest.mark.parametrize("degree", [0.0, 0.5, 1.0, 1.5, 4.0])
def test_random_graphs_agree_with_scipy(degree):
    random = np.random.default_rng(int(10 * degree))
    for _ in range(5):
        adjacency = np.triu(random.random((N, N)) < degree / N)  # one direction only
        np.testing.assert_array_equal(
            components(adjacency), smallest_members(adjacency)
        )


def test_a_long_chain_is_one_component_in_whatever_order():
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(N)
        adjacency = np.zeros((N, N), bool)
        adjacency[order[:-1], order[1:]] = True
        np.testing.assert_array_equal(components(adjacency), np.zeros(N))
        adjacency[order[29], order[30]] = False
        assert len(np.unique(components(adjacency))) == 2


def test_the_whole_and_the_empty_graph():
    np.testing.assert_array_equal(components(np.ones((N, N), bool)), np.zeros(N))
    np.testing.assert_array_equal(components(np.zeros((N, N), bool)), np.arange(N))
    assert connected_components(jnp.zeros((1, 1), bool)).tolist() == [0]


def test_a_batch_gives_what_each_graph_gives():
    graphs = np.random.default_rng(7).random((4, N, N)) < 1.2 / N
    batch = jax.jit(jax.vmap(connected_components))(graphs)
    for labels, graph in zip(batch, graphs, strict=True):
        np.testing.assert_array_equal(labels, components(graph))
