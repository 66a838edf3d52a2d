"""A page in headless Chromium, driven by a script of the test's own."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium")
needs_browser = pytest.mark.skipif(
    CHROMIUM is None, reason="no browser here: apt-get install chromium"
)
OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr")
BUDGETS = (20_000, 200_000, 2_000_000)  # milliseconds of the page's own clock
# After the page's own script; its policy allows scripts that are inside of it.
DRIVE = """<script type="module">
const wait = () => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
let said;
try { said = await (async () => { %s })(); } catch (error) { said = {error: String(error)}; }
document.body.dataset.said = JSON.stringify(said);
</script></body>"""


def drive(page: str, script: str, path: Path, *options: str, width: int = 1100) -> Any:
    """What the script returns, after the page has begun."""
    path.write_text(page.replace("</body>", DRIVE % script), encoding="utf-8")
    # The page's clock does not wait for what the browser does in other threads, as with pictures:
    # on a busy machine it may take more of that time.
    for budget in BUDGETS:
        time = f"--virtual-time-budget={budget}"
        command = [str(CHROMIUM), *OPTIONS, *options, f"--window-size={width},900", time]
        command += ["--dump-dom", path.as_uri()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
        assert "CONSOLE" not in done.stderr, f"the page complains: {done.stderr}"
        (body,) = re.findall(r"<body[^>]*>", done.stdout)
        said = re.findall(r'data-said="([^"]*)"', body)
        if said:
            found = json.loads(unescape(said[0]))
            assert not isinstance(found, dict) or "error" not in found, found
            return found
    raise AssertionError("the page did not answer")
