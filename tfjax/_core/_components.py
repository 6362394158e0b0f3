"""Connected components of a graph, jit-able and vmap-able."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int


@jax.jit  # or a loop outside jit is compiled anew by every call
def connected_components(adjacency: Bool[Array, "n n"]) -> Int[Array, " n"]:
    """Labels each vertex with the smallest index in its connected component.

    **Arguments:**

    - `adjacency`: whether an edge joins i and j; it is made symmetric here.

    **Returns:**

    The labels, of shape (n,). Vertices i and j are connected iff their labels agree.
    """
    n = adjacency.shape[0]
    linked = adjacency | adjacency.T | jnp.eye(n, dtype=bool)
    start = jnp.arange(n)

    def step(state):
        labels, _ = state
        neighbours = jnp.broadcast_to(labels[None, :], (n, n))
        new = jnp.min(jnp.where(linked, neighbours, n), axis=1)
        # A label is itself a vertex of the same component: jumping to its label
        # makes the number of rounds logarithmic in the length of a chain.
        new = new[new]
        return new, jnp.any(new != labels)

    labels, _ = jax.lax.while_loop(lambda s: s[1], step, (start, jnp.array(True)))
    return labels
