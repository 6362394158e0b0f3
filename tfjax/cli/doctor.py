"""`tfjax doctor`: what is installed here, and whether it computes rightly."""

import argparse
from typing import Any

from ._arguments import add_command


_EXTRAS = {
    "viz": ("matplotlib",),
    "pretrained": ("safetensors", "tokenizers", "onnx"),
    "progress": ("tqdm",),
}


def add_parser(commands: Any) -> None:
    """Adds the command; it has no options."""
    add_command(
        commands,
        "doctor",
        run,
        "show versions, devices and extras, and check that jax computes rightly",
        "tfjax doctor",
    )


def run(arguments: argparse.Namespace) -> int:
    """Prints the table; 1 if a check fails."""
    import jax

    from .._core._canary import self_check

    print("Installation")
    for name, value in installation():
        print(f"  {name:<12} {value}")
    print("\nDevices")
    print(f"  {'backend':<12} {jax.default_backend()}")
    for device in jax.devices():
        print(f"  {device!s:<12} {device.device_kind}")
    precision = jax.dtypes.canonicalize_dtype(float).name
    switch = "on" if precision == "float64" else "off"
    print(f"  {'precision':<12} {precision} (jax_enable_x64 is {switch})")
    print("\nSelf-check", flush=True)
    checks = self_check()
    for check in checks:
        mark = "ok  " if check.passed else "FAIL"
        print(f"  {mark} {check.name}: {check.found:.4g} (expected {check.expected:g})")
    failed = sum(not check.passed for check in checks)
    if failed:
        print(f"\n{failed} of {len(checks)} checks failed: this jax computes wrongly.")
        print(
            "Install another release of jax and jaxlib, then run `tfjax doctor` again."
        )
        return 1
    print(f"\nAll {len(checks)} checks passed.")
    return 0


def installation() -> list[tuple[str, str]]:
    """Names and versions of what is installed, extras and weights included."""
    import platform

    from ._versions import PACKAGES, installed

    rows = [("python", f"{platform.python_version()} on {platform.platform()}")]
    rows += [(name, installed(name) or "not installed") for name in PACKAGES]
    for extra, packages in _EXTRAS.items():
        parts = [f"{name} {installed(name) or 'missing'}" for name in packages]
        if any(installed(name) is None for name in packages):
            parts.append(f'(pip install "tfjax[{extra}]")')
        rows.append((f"[{extra}]", ", ".join(parts)))
    return [*rows, ("weights", _weights())]


def _weights() -> str:
    from ..nn import load_pretrained, weights_directory

    try:
        load_pretrained("minilm")
    except FileNotFoundError:
        return "MiniLM missing (tfjax fetch-weights)"
    except (ImportError, ValueError, OSError) as error:
        return f"MiniLM cannot be read: {error}"
    return f"MiniLM readable (looked for in {weights_directory('minilm')} first)"
