"""What all tests share: Hypothesis without clocks or chance, and warnings of the machine that no test is about."""

import pytest
from hypothesis import settings

# The same examples in every run, and no verdict that depends on how busy the machine is.
settings.register_profile("steady", derandomize=True, deadline=None, database=None, max_examples=200)
# A long run with fresh examples: --hypothesis-profile=fuzz.
settings.register_profile("fuzz", deadline=None, max_examples=2_000, print_blob=True)
settings.load_profile("steady")


def pytest_configure(config: pytest.Config) -> None:
    for expected in (
        # torch counts the cores; loaders with two workers are tested on one core too.
        "ignore:This DataLoader will create:UserWarning",
        # torch, of a call that torchdata makes.
        "ignore:'set_vital' is deprecated:UserWarning",
        # Python 3.12 and later, of every fork in a process with threads; loaders that fork are what users have.
        "ignore:This process .* is multi-threaded:DeprecationWarning",
    ):
        config.addinivalue_line("filterwarnings", expected)
