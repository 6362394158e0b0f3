"""`tfjax simulate`: integrates tokens and tells how they cluster."""

import argparse
from pathlib import Path
from typing import Any

from ._arguments import (
    add_command,
    add_output,
    add_seed,
    choice,
    integer,
    number,
    positive,
)


FILES = (
    "trajectory.npz",
    "summary.json",
    "trajectory.png",
    "merge_tree.png",
    "words.png",
    "trajectory.gif",
)


def add_parser(commands: Any) -> None:
    """Adds the command and its options."""
    parser = add_command(
        commands,
        "simulate",
        run,
        "integrate tokens under self-attention on the sphere and follow their clusters",
        "tfjax simulate --n 32 --d 3 --beta 9 --ensemble 16 --out simulation\n"
        "  tfjax simulate --text my.txt --out words",
    )
    tokens = parser.add_argument_group("tokens")
    tokens.add_argument(
        "--n", type=integer("--n", 1), help="number of tokens (default: 32)"
    )
    tokens.add_argument(
        "--d", type=integer("--d", 2), help="dimension of a token (default: 3)"
    )
    tokens.add_argument(
        "--init",
        default="uniform",
        metavar="uniform|FILE.npy",
        help="start at random on the sphere, or at the rows of an array (n, d)",
    )
    tokens.add_argument(
        "--text",
        type=Path,
        metavar="FILE",
        help="start at the tokens of a text in UTF-8 (at most 512 of them), as vectors "
        "of the pretrained MiniLM put on the sphere",
    )
    tokens.add_argument(
        "--layer",
        type=integer("--layer", 0),
        metavar="K",
        help="with --text: the layer to take, 0 is the embedding (default: the last)",
    )
    tokens.add_argument(
        "--no-special",
        action="store_true",
        help="with --text: drop [CLS] and [SEP], which take part otherwise",
    )
    model = parser.add_argument_group("dynamics")
    model.add_argument(
        "--beta",
        type=number("--beta"),
        help="inverse temperature (default: 9, with --text 13)",
    )
    model.add_argument(
        "--field",
        type=choice("--field", "self_attention", "unnormalized_self_attention"),
        default="self_attention",
        metavar="NAME",
        help="self_attention (default) or unnormalized_self_attention",
    )
    model.add_argument(
        "--weights",
        type=Path,
        metavar="FILE.npz",
        help="arrays Q and K, of shape (d_k, d) or (heads, d_k, d), and V, of shape "
        "(d, d) or (heads, d, d); the identity for what is not there",
    )
    model.add_argument(
        "--mask",
        type=choice("--mask", "none", "causal"),
        default="none",
        metavar="NAME",
        help="none (default), or causal: token i attends to tokens up to i",
    )
    time = parser.add_argument_group("integration")
    time.add_argument("--t1", type=positive("--t1"), help="end time (default: 200)")
    time.add_argument(
        "--saves",
        type=integer("--saves", 2),
        help="how many states to save: at 0, then evenly in log time (default: 101)",
    )
    time.add_argument(
        "--ensemble",
        type=integer("--ensemble", 1),
        metavar="M",
        help="integrate M random starts (default: one)",
    )
    time.add_argument(
        "--rtol",
        type=positive("--rtol"),
        default=1e-6,
        help="error allowed per step, relative and absolute (default: 1e-6)",
    )
    time.add_argument(
        "--max-steps",
        type=integer("--max-steps", 1),
        default=16384,
        help="a run that needs more steps has failed (default: 16384)",
    )
    time.add_argument("--x64", action="store_true", help="compute in float64")
    time.add_argument(
        "--threshold",
        type=number("--threshold", "lie between -1 and 1", lambda c: -1 < c < 1),
        default=0.99,
        help="tokens are joined where <x, x'> exceeds this (default: 0.99)",
    )
    time.add_argument(
        "--quick",
        action="store_true",
        help="smaller defaults, to try out: 16 tokens, t1 = 20, 41 saves",
    )
    add_seed(time)
    add_output(
        parser,
        "simulation",
        "trajectory.npz, summary.json, trajectory.png and, for a single run, "
        "merge_tree.png (for a text, words.png instead)",
    )
    parser.add_argument(
        "--animate",
        action="store_true",
        help="write trajectory.gif too: the tokens (of the first run) as they move, "
        "coloured by their last clusters",
    )
    add_command_notes(parser)


def add_command_notes(parser: argparse.ArgumentParser) -> None:
    """What the files hold and where the limits are, at the end of the help."""
    parser.epilog = f"""{parser.epilog}

trajectory.npz holds ts (t,), xs (t, n, d), clusters (t,), labels (t, n), energy (t,)
and order (t,), with a leading axis of members if --ensemble is given; beta, and Q, K,
V, words where there are any. Failed members are NaN there, -1 in clusters and labels.
energy is log(1/n^2 sum_ij exp(beta <Q x_i, K x_j>)) / (2 beta), the mean over heads.

A run whose n x n kernels and saved states would take more than 4 GiB is refused.
Exit code: 0 if it worked, 1 if the run or a member failed, 2 for bad input."""


def run(arguments: argparse.Namespace) -> int:
    """Checks, integrates, prints and writes."""
    from ._output import claim
    from ._simulation import simulate

    claim(arguments.out, force=arguments.force, known=FILES)
    return simulate(arguments)
