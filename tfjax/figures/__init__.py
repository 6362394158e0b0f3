"""Pictures of trajectories: each function returns the numbers shown and the figure.

- `plot_trajectory(ts, xs)`: tokens on the circle, the sphere, or by PCA.
- `plot_clusters(ts, counts)`, `plot_energy(ts, energies)`: against log time.
- `plot_merges(ts, xs, labels)`: which tokens join, and when.
- `plot_merge_tree(ts, tree)`: all merges as a tree, for many tokens.
- `animate_trajectory(ts, xs, path)`: a trajectory as an animated GIF.
- `plot_overview`, `plot_time_scales`, `plot_metastable`: pictures of several panels.
- `plot_training(records)`: a run of training.
- `pca(xs)`: principal components; `save_figure(plot.figure, path)`: to a file.
"""

from ._animation import animate_trajectory as animate_trajectory
from ._base import (
    Plot as Plot,
    save_figure as save_figure,
    telling_state as telling_state,
)
from ._curves import plot_clusters as plot_clusters, plot_energy as plot_energy
from ._merges import plot_merges as plot_merges
from ._panels import (
    plot_metastable as plot_metastable,
    plot_overview as plot_overview,
    plot_time_scales as plot_time_scales,
)
from ._projection import Principal as Principal, pca as pca
from ._training import plot_training as plot_training
from ._trajectory import plot_trajectory as plot_trajectory
from ._tree import plot_merge_tree as plot_merge_tree
