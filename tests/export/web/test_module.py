"""Exported JavaScript answers as the runtime does, for every operation and random networks."""

from __future__ import annotations

from pathlib import Path

import pytest

from asterism.export.c.library import functions as in_c
from asterism.export.web.module import functions as in_javascript
from asterism.export.web.module import module
from support.exported import assert_close, of_examples, of_random
from support.in_node import needs_node, run


@needs_node
@pytest.mark.parametrize("make", [of_examples, of_random])
def test_javascript_answers_as_the_runtime_does(make, tmp_path: Path) -> None:
    networks = make()
    modules = {name: module(each[0], "")[0] for name, each in networks.items()}
    found = run(modules, {name: each[1] for name, each in networks.items()}, tmp_path)
    for name, (_, _, truth) in networks.items():
        assert_close(found[name], truth, name, 1e-4)


def test_both_languages_have_the_same_functions() -> None:
    helpers = {"next", "number", "add_tap", "combined", "places", "numbers", "each", "erf"}
    of_floats = {name for name in in_c() if not name.endswith("_8") and name != "rescaled"}
    assert of_floats - helpers == in_javascript().keys() - helpers
