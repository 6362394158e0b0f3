"""Libraries of the extra `pretrained`, imported where they are needed."""

import importlib
from typing import Any


def extra(module: str, caller: str) -> Any:
    """The library `module`; **Raises** `ImportError` that names the extra."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"`{caller}` must have {module}, but it was not found: "
            f'install the extra, `pip install "tfjax[pretrained]"`.'
        ) from error
