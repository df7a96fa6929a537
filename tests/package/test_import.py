"""What `import fastshard` does, in processes of its own."""

import shutil
import subprocess
import sys
from pathlib import Path

import fastshard

PACKAGE = Path(fastshard.__file__).parent


def run(code: str, path: Path) -> subprocess.CompletedProcess[str]:
    """Runs `code` with the package at `path`, and no editable installation to fill in what is missing there."""
    setup = (
        f"import sys; sys.path.insert(0, {str(path)!r}); "
        "sys.meta_path[:] = [f for f in sys.meta_path if not getattr(f, '__module__', '').startswith('__editable__')]; "
    )
    return subprocess.run(
        [sys.executable, "-c", setup + code],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_an_unbuilt_tree_says_how_to_build_it(tmp_path: Path) -> None:
    shutil.copytree(PACKAGE, tmp_path / "fastshard", ignore=shutil.ignore_patterns("*.so", "*.pyd", "__pycache__"))
    done = run("import fastshard", tmp_path)
    assert done.returncode != 0
    assert "compiled core can't be loaded" in done.stderr.splitlines()[-1]
    assert "pip install -e ." in done.stderr


def test_import_loads_torch_and_numpy_and_nothing_optional() -> None:
    optional = ("sklearn", "tqdm", "psutil", "webdataset", "hypothesis", "pytest")
    done = run(
        "import torch; before = set(sys.modules); import fastshard; new = set(sys.modules) - before; "
        "own = {n.split('.')[0] for n in new} - sys.stdlib_module_names; "
        f"print([name for name in {optional} if name in new], sorted(own))",
        PACKAGE.parent,
    )
    assert done.stdout.strip() == "[] ['fastshard']", done


def test_the_top_level_names_are_the_promised_ones() -> None:
    promised = {"DistributedSampler", "DistributedBatchSampler", "Slice", "orders", "install", "uninstall"}
    assert promised | {"__version__"} <= set(fastshard.__all__)
    assert all(hasattr(fastshard, name) for name in fastshard.__all__)
