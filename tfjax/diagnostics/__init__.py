"""Observables of states and trajectories.

- `inner_products(x)`, `cluster_labels(x)`, `count_clusters(x)`: of one state.
- `merge_times(ts, xs)`, `merge_events(ts, xs)`, `label_merges(ts, labels)`: when
  clusters merge along a trajectory.
- `merge_tree(ts, xs)`: all merges as one tree, in scipy's format.
- `cluster_persistence(ts, xs)`: how long each cluster lasts, and each number of them.
- `energy_staircase(ts, energies)`: where an energy rests.
- `energy_along(xs, beta)`: the interaction energy along a trajectory.
- `stability_margins(query, key, value)`: how far weights are from expansion;
  `attention_lipschitz(query, key, value, n)` where all tokens move.
- `order_parameter(theta)`, `mean_phase(theta)`: alignment of angles or points.
"""

from ._clusters import (
    cluster_labels as cluster_labels,
    count_clusters as count_clusters,
    inner_products as inner_products,
)
from ._energy import energy_along as energy_along
from ._merging import (
    Merge as Merge,
    label_merges as label_merges,
    merge_events as merge_events,
    merge_times as merge_times,
)
from ._order import mean_phase as mean_phase, order_parameter as order_parameter
from ._persistence import (
    Lifetime as Lifetime,
    Persistence as Persistence,
    Plateau as Plateau,
    cluster_persistence as cluster_persistence,
    energy_staircase as energy_staircase,
)
from ._stability import (
    StabilityMargins as StabilityMargins,
    attention_lipschitz as attention_lipschitz,
    stability_margins as stability_margins,
)
from ._tree import MergeTree as MergeTree, merge_tree as merge_tree
