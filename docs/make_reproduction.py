"""Writes docs/reproduction.md from the summaries in docs/reproduction.

tfjax reproduce --all --out docs/reproduction --force
python docs/make_reproduction.py
"""

from pathlib import Path

from tfjax.cli._page import page, summaries


DOCS = Path(__file__).parent


def reproduction() -> str:
    """The page, with links into the directory of results."""
    return page(summaries(DOCS / "reproduction"), "reproduction/")


if __name__ == "__main__":
    (DOCS / "reproduction.md").write_text(reproduction(), encoding="utf-8")
