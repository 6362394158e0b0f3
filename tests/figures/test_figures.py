"""Plots: the numbers that they return, and axes that a person can read."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tfjax import figures
from tfjax.figures._trajectory import sphere_view
from tfjax.geometry import Sphere


TS = np.array([0.0, 1.0, 3.0, 10.0])


def gathering(d: int) -> np.ndarray:
    """Five tokens: 0 and 1 join at t = 1, 2 and 3 at t = 3, all but 4 at t = 10."""
    far = np.asarray(Sphere(d).random(jax.random.key(3), (5,)))
    xs = np.stack([far] * 4)
    xs[1:, 1] = xs[1:, 0]
    xs[2:, 3] = xs[2:, 2]
    xs[3:, 2:4] = xs[3, 0]
    return xs


def all_axes(figure):
    return figure.axes  # those of parts of a figure are among them


def check(plot: figures.Plot, titled: bool = True) -> None:
    """Finite data, and on every visible pair of axes names and a title."""
    for name, values in plot.data.items():
        assert isinstance(values, np.ndarray), name
        assert np.all(np.isfinite(values)), name
    shown = [axes for axes in all_axes(plot.figure) if axes.axison]
    for axes in shown:
        assert axes.get_xlabel()
        assert axes.get_ylabel()
    if titled:
        assert all(axes.get_title() for axes in all_axes(plot.figure))
    plot.figure.canvas.draw()


# --- Projection -----------------------------------------------------------------------


def test_pca_finds_the_axes_of_an_ellipse():
    rng = np.random.default_rng(0)
    turn = np.linalg.qr(rng.normal(size=(5, 5)))[0]
    scales = np.array([5.0, 2.0, 0.0, 0.0, 0.0])
    xs = rng.normal(size=(7, 40, 5)) * scales @ turn + 3.0
    found = figures.pca(xs, 2)
    assert found.points.shape == (7, 40, 2)
    np.testing.assert_allclose(found.axes @ found.axes.T, np.eye(2), atol=1e-12)
    back = found.points @ found.axes + found.mean
    np.testing.assert_allclose(back, xs, atol=1e-12)
    np.testing.assert_allclose(found.explained.sum(), 1.0)
    flat = found.points.reshape(-1, 2)
    np.testing.assert_allclose(flat.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(
        flat.T @ flat, np.diag(np.diag(flat.T @ flat)), atol=1e-9
    )
    assert np.all(found.axes[[0, 1], np.abs(found.axes).argmax(axis=1)] > 0)


def test_pca_of_a_single_point_is_the_origin():
    found = figures.pca(np.ones((1, 3)), 2)
    assert found.points.tolist() == [[0.0, 0.0]]
    assert found.explained.tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("xs", "k", "message"),
    [
        (np.ones(3), 1, "`xs` must have shape (..., d), but was of shape (3,)."),
        (np.ones((2, 3)), 4, "`k` must be an integer in 1..3, but was 4."),
        (np.full((2, 3), np.nan), 1, "`xs` must be finite"),
    ],
)
def test_pca_refuses(xs, k, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        figures.pca(xs, k)


# --- Trajectories ---------------------------------------------------------------------


@pytest.mark.parametrize("d", [2, 3, 6])
def test_trajectory(d):
    plot = figures.plot_trajectory(TS, gathering(d))
    check(plot)
    assert plot.data["points"].shape == (4, 5, 2)
    assert plot.data["labels"].tolist() == [0, 0, 0, 0, 4]
    assert plot.figure.axes[0].get_title() == f"5 tokens, d = {d}"


def test_trajectory_colours_by_an_earlier_time():
    plot = figures.plot_trajectory(TS, gathering(3), at=3.0)
    assert plot.data["labels"].tolist() == [0, 0, 2, 2, 4]


def test_trajectory_that_collapses_is_coloured_by_a_telling_time():
    a, b = np.eye(3)[0], np.eye(3)[1]
    xs = np.stack([np.stack([a] * 3 + [b] * 3), np.stack([a] * 6)])
    plot = figures.plot_trajectory([0.0, 1.0], xs)
    assert plot.data["labels"].tolist() == [0, 0, 0, 3, 3, 3]


def test_circle_runs_outwards_in_log_time():
    points = figures.plot_trajectory(TS, gathering(2)).data["points"]
    radius = np.linalg.norm(points[:, 4], axis=1)
    middle = 0.35 + 0.65 * np.log(3) / np.log(10)
    np.testing.assert_allclose(radius, [0.35, 0.35, middle, 1.0], atol=1e-6)


def test_sphere_is_seen_from_where_its_clusters_show():
    x = np.asarray(Sphere(3).random(jax.random.key(5), (3,)))
    view = sphere_view(x, np.arange(3))
    np.testing.assert_allclose(view @ view.T, np.eye(3), atol=1e-12)
    assert np.linalg.det(view) > 0
    assert np.all(x @ view[2] > 0)  # three points always lie in one hemisphere


def test_sphere_is_drawn_in_that_view():
    xs = gathering(3)
    plot = figures.plot_trajectory(TS, xs)
    view = sphere_view(xs[-1], plot.data["labels"])
    np.testing.assert_allclose(plot.data["points"], (xs @ view.T)[..., :2], atol=1e-6)


@pytest.mark.parametrize(
    ("ts", "xs", "message"),
    [
        (TS, np.ones((4, 5)), "`xs` must have shape (t, n, d) with t = 4"),
        (TS, np.ones((3, 5, 2)), "`xs` must have shape (t, n, d) with t = 4"),
        (TS, np.ones((4, 5, 1)), "d at least 2, but was of shape (4, 5, 1)."),
        (TS, np.full((4, 5, 2), np.inf), "`xs` must be finite, but was not"),
        (TS[::-1], np.ones((4, 5, 2)), "`ts` must be finite and increasing"),
        ([0.0], np.ones((1, 5, 2)), "`ts` must end at a positive time"),
    ],
)
def test_trajectory_refuses(ts, xs, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        figures.plot_trajectory(ts, xs)


# --- Curves ---------------------------------------------------------------------------


def test_clusters_of_an_ensemble():
    counts = [[5, 4, 3, 2], [5, 2, 1, 2], [-1, -1, -1, -1]]
    plot = figures.plot_clusters(TS, counts)
    check(plot)
    assert plot.data["mean"].tolist() == [5.0, 3.0, 2.0, 2.0]
    np.testing.assert_allclose(plot.data["low"], [5.0, 2.1, 1.1, 2.0])
    np.testing.assert_allclose(plot.data["high"], [5.0, 3.9, 2.9, 2.0])


def test_clusters_of_one_run():
    plot = figures.plot_clusters(TS, [5, 4, 3, 1])
    check(plot)
    assert plot.data["mean"].tolist() == [5.0, 4.0, 3.0, 1.0]
    assert plot.figure.axes[0].get_xscale() == "log"


def test_energy():
    failed = np.full(4, np.nan)
    plot = figures.plot_energy(TS, [[0.1, 0.2, 0.3, 0.4], failed], label="E")
    check(plot)
    np.testing.assert_allclose(plot.data["mean"], [0.1, 0.2, 0.3, 0.4])
    assert plot.figure.axes[0].get_ylabel() == "E"


def test_a_single_positive_time():
    check(figures.plot_clusters([0.0, 2.0], [5, 1]))


def test_curves_refuse():
    with pytest.raises(
        ValueError, match=r"`counts` must have shape \(t,\) or \(b, t\)"
    ):
        figures.plot_clusters(TS, [1, 2, 3])
    with pytest.raises(ValueError, match="`energies` must have a member without NaN"):
        figures.plot_energy(TS, [np.nan] * 4)


# --- Merges ---------------------------------------------------------------------------


def test_merges():
    plot = figures.plot_merges(TS, gathering(3), list("abcde"))
    check(plot)
    assert plot.data["times"].tolist() == [1.0, 3.0, 10.0]
    assert plot.data["sizes"].tolist() == [2, 2, 4]
    assert plot.data["order"].tolist() == [0, 1, 2, 3, 4]
    names = [tick.get_text() for tick in plot.figure.axes[0].get_yticklabels()]
    assert names == list("abcde")


def test_merges_of_a_cluster_that_falls_apart_and_returns():
    xs = gathering(3)
    xs[2, 1] = -xs[2, 0]  # token 1 leaves at t = 3
    plot = figures.plot_merges(TS, xs, list("abcde"))
    assert plot.data["times"].tolist() == [1.0, 3.0, 10.0]
    assert plot.data["sizes"].tolist() == [2, 2, 4]


def test_merges_from_the_start_and_of_one_token():
    xs = np.ones((4, 3, 2)) / np.sqrt(2.0)
    assert figures.plot_merges(TS, xs, list("abc")).data["times"].tolist() == [0.0]
    plot = figures.plot_merges(TS, xs[:, :1], ["a"])
    assert plot.data["times"].shape == (0,)


def test_merges_refuse_another_number_of_names():
    message = "`labels` must be 5 names, one for each token, but was 4."
    with pytest.raises(ValueError, match=message):
        figures.plot_merges(TS, gathering(3), list("abcd"))


def test_telling_state():
    labels = [[0, 1, 2, 3, 4, 5], [0, 0, 0, 3, 3, 3], [0, 0, 0, 3, 3, 3], [0] * 6]
    assert figures.telling_state(labels) == 2
    with pytest.raises(ValueError, match=r"`labels` must have shape \(t, n\)"):
        figures.telling_state([0, 1])


# --- Panels ---------------------------------------------------------------------------


def test_overview():
    xs = gathering(3)
    plot = figures.plot_overview(TS, xs, [5, 4, 3, 2], [0.1, 0.2, 0.3, 0.4], title="A")
    check(plot)
    assert plot.data["counts"].tolist() == [5.0, 4.0, 3.0, 2.0]


def test_time_scales():
    ts = np.array([0.0, 1.0, 5.0, 200.0])
    plot = figures.plot_time_scales(ts, gathering(3), [[5, 4, 3, 2], [5, 4, 3, 1]])
    check(plot, titled=False)
    assert plot.data["shown"].tolist() == [0.0, 5.0, 200.0]
    titles = [axes.get_title() for axes in all_axes(plot.figure)]
    assert titles[:3] == ["t = 0", "t = 5", "t = 200"]
    with pytest.raises(ValueError, match=r"`xs` must have shape \(t, n, 3\)"):
        figures.plot_time_scales(ts, gathering(2), [5, 4, 3, 2])


def test_metastable():
    plot = figures.plot_metastable(
        TS, gathering(2), [0.2, 0.4, 0.5, 0.8], exit_time=6.0, plateaus=[0.5]
    )
    check(plot)
    assert plot.data["labels"].tolist() == [0, 0, 2, 2, 4]


# --- Saving ---------------------------------------------------------------------------


def test_only_save_figure_writes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plot = figures.plot_energy(TS, [0.1, 0.2, 0.3, 0.4])
    assert list(tmp_path.iterdir()) == []
    figures.save_figure(plot.figure, tmp_path / "energy.png", dpi=50)
    assert (tmp_path / "energy.png").read_bytes()[:4] == b"\x89PNG"
    assert [file.name for file in tmp_path.iterdir()] == ["energy.png"]


def test_figures_stay_out_of_pyplot():
    from matplotlib import pyplot

    figures.plot_energy(TS, [0.1, 0.2, 0.3, 0.4])
    assert pyplot.get_fignums() == []


def test_jax_arrays_are_welcome():
    xs = jnp.asarray(gathering(3))
    plot = figures.plot_trajectory(jnp.asarray(TS), xs)
    assert plot.data["points"].shape == (4, 5, 2)
