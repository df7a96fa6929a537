"""Loaders: batches to a training loop, and where they stop."""

from fastshard.loader.data_loader import DataLoader

__all__ = ["DataLoader"]
