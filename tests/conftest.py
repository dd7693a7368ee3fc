"""The size of the tests that compare with a judge: ``pytest --full``, or an environment variable."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

# How fast a machine is tells nothing about a property.
settings.register_profile("tests", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tests")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="tests against a judge: all cases, all releases (an hour)")


@pytest.fixture(scope="session")
def full(request: pytest.FixtureRequest) -> bool:
    """All cases, and not only those that fit the test command."""
    return bool(request.config.getoption("--full")) or os.environ.get("DSLINT_DIFFERENTIAL") == "full"
