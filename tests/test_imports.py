"""What `import tfjax` costs and what it leaves alone."""

import json
import os
import subprocess
import sys

import pytest


def run(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def cpu_seconds(*arguments: str, repeats: int = 3) -> float:
    """The least CPU time of several runs: noise on a busy machine only adds to it."""
    times = []
    for _ in range(repeats):
        process = subprocess.Popen(
            [sys.executable, *arguments], stdout=subprocess.DEVNULL
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        times.append(usage.ru_utime + usage.ru_stime)
    return min(times)


def test_costs_no_more_than_jax():
    assert cpu_seconds("-c", "import tfjax") <= 1.10 * cpu_seconds("-c", "import jax")


def test_loads_no_library():
    script = """
import sys, json
import tfjax
dir(tfjax)
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""
    loaded = set(json.loads(run("-c", script)))
    assert "tfjax" in loaded
    heavy = {"jax", "jaxlib", "numpy", "scipy", "equinox", "diffrax", "optax"}
    assert loaded & (heavy | {"matplotlib", "tqdm", "tokenizers"}) == set()


def test_help_is_quick():
    assert "usage" in run("-m", "tfjax.cli", "--help").lower()
    assert cpu_seconds("-m", "tfjax.cli", "--help") < 1.0


def test_leaves_the_global_configuration_alone():
    script = """
import importlib, pkgutil
import jax, diffrax, equinox, optax
before = dict(jax.config.values)
import tfjax
count = 0
for module in pkgutil.walk_packages(tfjax.__path__, "tfjax."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
        count += 1
after = jax.config.values
print(count, sorted(key for key, old in before.items() if after[key] != old))
"""
    count, changed = run("-c", script).split(maxsplit=1)
    assert int(count) > 5
    assert changed.strip() == "[]"


def test_every_lazy_name_is_there():
    import tfjax

    for name in dir(tfjax):
        assert getattr(tfjax, name) is not None
    assert tfjax.solve is tfjax.integrate.solve
    assert tfjax.__version__.count(".") == 2


def test_an_unknown_name_is_an_attribute_error():
    import tfjax

    assert not hasattr(tfjax, "no_such_name")
    with pytest.raises(AttributeError, match="'tfjax' has no attribute 'no_such_name'"):
        _ = tfjax.no_such_name
