"""Benchmarks: one file a question, all measured by one runner, each against its peers in the same run."""
