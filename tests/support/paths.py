"""Where things are in a checkout."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
SMALL = str(ROOT / "tests" / "support" / "small.py")
