"""Libraries of the extras, imported where they are needed."""

import importlib
from typing import Any


def extra(module: str, caller: str, name: str = "pretrained") -> Any:
    """The library `module`; **Raises** `ImportError` that tells the extra's `name`."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"`{caller}` must have {module}, but it was not found: "
            f'install the extra, `pip install "tfjax[{name}]"`.'
        ) from error
