"""Options of the statistical battery: the long run with fresh seeds."""

import secrets

import pytest


def pytest_addoption(parser):
    parser.addoption("--exhaustive", action="store_true", help="the battery's long run: more samples, fresh seeds")
    parser.addoption("--battery-seed", type=int, help="the seed of an earlier long run, to repeat it")


def pytest_report_header(config):
    if config.getoption("--exhaustive", default=False):
        return f"battery: long run, repeat it with --battery-seed={_seed(config)}"
    return None


def _seed(config):
    if config.getoption("--battery-seed") is None:
        config.option.battery_seed = secrets.randbelow(2**62)
    return config.getoption("--battery-seed")


@pytest.fixture(scope="session")
def battery_seed(request):
    return _seed(request.config)
