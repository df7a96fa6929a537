"""Lets `import bench` find the repository's benchmarks, which are no installed package."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
