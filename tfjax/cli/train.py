"""`tfjax train`: trains a Transformer as a file says."""

import argparse
from typing import Any

from ._arguments import add_command, add_output, integer


FILES = (
    "checkpoint.npz",
    "log.jsonl",
    "config.json",
    "model.safetensors",
    "sample.txt",
    "summary.json",
    "training.png",
)


def add_parser(commands: Any) -> None:
    """Adds the command and its options."""
    parser = add_command(
        commands,
        "train",
        run,
        "train a Transformer on text, images or time series",
        "tfjax train --config shakespeare-char --out run\n"
        "  tfjax train --resume --out run",
    )
    parser.add_argument(
        "--config",
        metavar="FILE.toml|NAME",
        help="what to train, for how long: a file, or a ready one of --list",
    )
    parser.add_argument(
        "--list", action="store_true", help="print the ready configurations, and end"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="change a value of the file, such as training.steps=500; may be repeated",
    )
    parser.add_argument(
        "--seed",
        type=integer("--seed", 0, 2**32 - 1),
        help="of everything random (default: that of the file)",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="a fiftieth of the steps and no baselines, to try out",
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="go on from the checkpoint in --out, to the same result",
    )
    add_output(
        parser,
        "training",
        "a checkpoint, the log, config.json, summary.json, training.png and "
        "model.safetensors; for a text, sample.txt too",
    )
    parser.epilog = f"""{parser.epilog}

Ctrl-C stops after the step under way, with a checkpoint; --resume goes on, and comes to
the same parameters, bit for bit. A run is killed at any moment without harm to the
checkpoint before. log.jsonl has a line for each step: loss, norm of the gradient,
throughput, and validation where it was measured.
Exit code: 0 if it worked, 1 if the run failed, 2 for bad input, 130 after Ctrl-C."""


def run(arguments: argparse.Namespace) -> int:
    """Checks, trains, prints and writes."""
    from ._output import claim
    from ._training import configuration, listed, train

    if arguments.list:
        print(listed())
        return 0
    config = configuration(arguments)
    if not arguments.resume:
        claim(arguments.out, force=arguments.force, known=FILES)
    return train(config, arguments)
