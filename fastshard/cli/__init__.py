"""The `fastshard` command. `main` is all of it; docs/tar_index.md shows `fastshard index`."""

from fastshard.cli.main import main

__all__ = ["main"]
