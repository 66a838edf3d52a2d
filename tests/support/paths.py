"""Where things are in a checkout."""

import os
from pathlib import Path

ROOT = Path(__file__).parents[2]
SMALL = str(ROOT / "tests" / "support" / "small.py")


def environment(**more: str) -> dict[str, str]:
    """In which a program that a test starts can import `support`."""
    return {**os.environ, "PYTHONPATH": str(ROOT / "tests"), **more}
