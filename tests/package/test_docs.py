"""Every example in a docstring, in the README and in docs/ runs as printed."""

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import fastshard

ROOT = Path(__file__).parents[2]
MODULES = [fastshard.__name__] + [m.name for m in pkgutil.walk_packages(fastshard.__path__, "fastshard.")]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md"))]


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_run_as_printed(name: str) -> None:
    module = importlib.import_module(name)
    names = {key: getattr(fastshard, key) for key in fastshard.__all__}
    failed, _ = doctest.testmod(module, extraglobs=names)
    assert failed == 0


def test_some_docstrings_have_examples() -> None:
    finder = doctest.DocTestFinder()
    assert sum(bool(test.examples) for name in MODULES for test in finder.find(importlib.import_module(name))) >= 4


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_blocks_of_the_pages_run(page: Path) -> None:
    for block in re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
        exec(compile(block, page.name, "exec"), {"__name__": page.name})
