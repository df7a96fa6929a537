"""`python -m fastshard` is the command `fastshard`."""

from fastshard.cli.main import entry_point

if __name__ == "__main__":
    entry_point()
