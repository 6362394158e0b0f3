"""Which releases of which packages are here."""

import platform
from importlib.metadata import PackageNotFoundError, version


PACKAGES = ("tfjax", "jax", "jaxlib", "diffrax", "equinox", "optax", "numpy")


def installed(package: str) -> str | None:
    """The version of a package, None if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def versions() -> dict[str, str | None]:
    """Of Python and of the packages that decide the numbers, for `summary.json`."""
    return {"python": platform.python_version()} | {p: installed(p) for p in PACKAGES}
