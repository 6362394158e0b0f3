"""Pictures of trajectories: each function returns the numbers shown and the figure."""

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
from ._trajectory import plot_trajectory as plot_trajectory
