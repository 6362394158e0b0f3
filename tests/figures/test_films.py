"""The animation of a trajectory, and the picture of its merge tree."""

import re

import numpy as np
import pytest
from figures.test_figures import TS, check, gathering
from PIL import Image

from tfjax import figures
from tfjax.diagnostics import merge_tree
from tfjax.figures._base import PALETTE


# --- The animation --------------------------------------------------------------------


def pictures(path):
    with Image.open(path) as film:
        assert film.format == "GIF"
        shots = []
        for k in range(film.n_frames):
            film.seek(k)
            shots.append(np.asarray(film.convert("RGB"), int))
        return shots, film.info["duration"]


def holds_colour(shot, name):
    """Whether some pixels have this colour, up to what a palette of 256 leaves."""
    wanted = np.array([int(name[i : i + 2], 16) for i in (1, 3, 5)])
    return (np.abs(shot - wanted).max(axis=-1) < 12).sum() > 20


@pytest.mark.parametrize("d", [2, 3, 6])
def test_every_saved_state_is_a_frame_in_the_colours_of_the_clusters(d, tmp_path):
    seen = []
    path = tmp_path / "tokens.gif"
    progress = lambda done, total: seen.append((done, total))
    plot = figures.animate_trajectory(TS, gathering(d), path, fps=10, progress=progress)
    assert plot.data["times"].tolist() == TS.tolist()
    assert plot.data["clusters"].tolist() == [5, 4, 3, 2]
    assert plot.data["labels"].tolist() == [0, 0, 0, 0, 4]
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]
    shots, duration = pictures(path)
    assert (len(shots), duration) == (4, 100)
    for shot, following in zip(shots, shots[1:], strict=False):
        assert (shot != following).any()
    # Behind the sphere, which turns, tokens are faint.
    coloured = [holds_colour(shot, PALETTE[0]) for shot in shots]
    assert any(coloured) if d == 3 else all(coloured)
    assert [p.name for p in tmp_path.iterdir()] == ["tokens.gif"]
    check(plot, titled=False)
    assert plot.figure.axes[0].get_title() == "t = 10,  2 clusters"


def test_tokens_are_drawn_where_they_are_on_the_circle(tmp_path):
    angles = np.array([[0.3, 2.0], [1.0, 2.0]])
    xs = np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    plot = figures.animate_trajectory([1.0, 2.0], xs, tmp_path / "a.gif")
    discs = plot.figure.axes[0].collections[0]
    np.testing.assert_allclose(discs.get_offsets(), xs[-1])


def test_frames_are_even_in_log_time_and_none_is_shown_twice(tmp_path):
    ts = np.concatenate([[0.0], np.linspace(0.1, 10.0, 100)])
    xs = np.broadcast_to(np.eye(2), (101, 2, 2))
    film = lambda **kw: figures.animate_trajectory(ts, xs, tmp_path / "a.gif", **kw)
    shown = film(frames=5).data["times"]
    np.testing.assert_allclose(shown, [0, 0.3, 1.0, 3.2, 10.0], atol=0.051)
    times = film(times=[0.0, 0.01, 9.99, 5.0]).data["times"]
    np.testing.assert_allclose(times, [0.0, 5.0, 10.0])


def test_an_interrupted_film_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "tokens.gif"
    path.write_text("old")

    def interrupt(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        figures.animate_trajectory(TS, gathering(2), path, progress=interrupt)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["tokens.gif"]


def test_the_animation_refuses_by_name(tmp_path):
    film = lambda path="a.gif", **kw: figures.animate_trajectory(
        TS, gathering(2), tmp_path / path, **kw
    )
    with pytest.raises(ValueError, match="^`path` must end in .gif, but was"):
        film("a.mp4")
    with pytest.raises(ValueError, match="^`frames` must be a positive integer"):
        film(frames=0)
    with pytest.raises(ValueError, match="^`fps` must be a positive integer"):
        film(fps=0)
    with pytest.raises(ValueError, match=re.escape("`times` must be finite and of sh")):
        film(times=[np.nan])
    with pytest.raises(FileNotFoundError):
        film("nowhere/a.gif")
    assert not list(tmp_path.iterdir())


# --- The merge tree -------------------------------------------------------------------


def test_the_tree_is_drawn_with_its_merges_and_its_open_ends():
    plot = figures.plot_merge_tree(TS, merge_tree(TS, gathering(3)))
    check(plot)
    assert plot.data["times"].tolist() == [1.0, 3.0, 10.0]
    assert plot.data["labels"].tolist() == [0, 0, 0, 0, 4]
    # Pairs stand together, and the token that never merges stands outside.
    assert plot.data["order"].tolist() == [0, 1, 2, 3, 4]
    lines = [line.get_xydata() for line in plot.figure.axes[0].lines]
    upright = [line for line in lines if line[0, 0] == line[1, 0]]
    joins = sorted(line[0, 0] for line in upright if line[0, 1] != line[1, 1])
    assert joins == [1.0, 3.0, 10.0]  # of 4 and the rest there is none
    right = [line[1, 1] for line in lines if line[0, 0] < line[1, 0] == 10.0]
    assert 4.0 in right  # its line runs to the edge


def test_a_tree_that_ends_in_one_cluster_is_coloured_before_the_last_merge():
    labels = np.array([[0, 1, 2, 3], [0, 0, 2, 2], [0, 0, 0, 0]])
    plot = figures.plot_merge_tree(TS[:3], merge_tree(TS[:3], labels))
    assert plot.data["labels"].tolist() == [0, 0, 2, 2]
    check(plot)


@pytest.mark.parametrize("labels", [np.zeros((2, 1), int), np.zeros((2, 3), int)])
def test_a_tree_without_a_later_merge_is_drawn(labels):
    plot = figures.plot_merge_tree(TS[:2], merge_tree(TS[:2], labels))
    check(plot)
    assert (plot.data["times"] == 0).all()


@pytest.mark.usefixtures("unchecked")
def test_the_tree_refuses_by_name():
    with pytest.raises(ValueError, match="^`tree` must be a MergeTree"):
        figures.plot_merge_tree(TS, np.zeros((3, 4)))
