"""Observables of states and trajectories."""

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
