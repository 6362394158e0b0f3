"""`tfjax sample`: lets a trained model write."""

import argparse
from pathlib import Path
from typing import Any

from ._arguments import add_command, add_seed, integer, number


def add_parser(commands: Any) -> None:
    """Adds the command and its options."""
    parser = add_command(
        commands,
        "sample",
        run,
        "let a language model of `tfjax train` write on from a prompt",
        'tfjax sample --run run --prompt "To be, or not"',
    )
    parser.add_argument(
        "--run",
        type=Path,
        required=True,
        metavar="DIR",
        dest="directory",
        help="the --out of `tfjax train`, finished or not",
    )
    parser.add_argument(
        "--prompt",
        default="\n",
        metavar="TEXT",
        help="what it goes on from, in characters that it knows (default: a new line)",
    )
    parser.add_argument(
        "--length",
        type=integer("--length", 1, 1_000_000),
        default=500,
        help="characters to write (default: 500)",
    )
    parser.add_argument(
        "--temperature",
        type=number("--temperature", "lie in [0, 1000]", lambda t: 0 <= t <= 1000),
        default=0.8,
        help="above 1 more surprising, below 1 less, 0 the likeliest (default: 0.8)",
    )
    parser.add_argument(
        "--top-k",
        type=integer("--top-k", 1),
        metavar="K",
        help="draw from the K likeliest characters (default: from all)",
    )
    add_seed(parser)


def run(arguments: argparse.Namespace) -> int:
    """Prints prompt and continuation."""
    import jax
    import jax.numpy as jnp

    from ..train import load_run, read_metadata, sample
    from ._errors import InputError, must

    directory = arguments.directory
    try:
        config = read_metadata(directory / "checkpoint.npz").get("config") or {}
        double = config.get("training", {}).get("precision") == "float64"
        with jax.enable_x64(double):
            found = load_run(directory)
    except (FileNotFoundError, ValueError) as error:
        raise InputError(str(error)) from error
    except AttributeError as error:
        raise must("--run", "hold a run of `tfjax train`", directory) from error
    if found.alphabet is None:
        raise must("--run", "be of a language model", f"{directory}, a classifier's")
    if not arguments.prompt:
        raise must("--prompt", "have at least one character", "empty")
    places = {character: k for k, character in enumerate(found.alphabet)}
    unknown = sorted({c for c in arguments.prompt if c not in places})
    if unknown:
        rule = "have characters that the model knows"
        raise must("--prompt", rule, f"given {', '.join(map(repr, unknown))}")
    with jax.enable_x64(double):
        drawn = sample(
            found.model,
            jnp.array([places[c] for c in arguments.prompt]),
            arguments.length,
            key=jax.random.key(arguments.seed),
            temperature=arguments.temperature,
            top_k=arguments.top_k,
        )
    print(arguments.prompt + "".join(found.alphabet[k] for k in drawn.tolist()))
    return 0
