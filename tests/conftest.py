"""The order of the test files, and the size of the tests that compare with a judge (``pytest --full``)."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

# Projects to lint, and none of them is a test of ours, though some bring tests of their own.
collect_ignore = ["fixtures"]

# Most tests ask what is found, notes among it; those of the view that people get take this away.
os.environ["DSLINT_MIN_SEVERITY"] = "info"

# How fast a machine is tells nothing about a property. The test command draws the same examples every time, so that
# it says the same of the same commit; `--full` draws new ones, and what it finds becomes an example of its own.
settings.register_profile("search", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("tests", settings.get_profile("search"), derandomize=True)

# The files that take longest come first, so that no worker of ``--dist loadfile`` ends alone with one of them.
# ``--durations`` says what belongs here; the order changes no result.
LONGEST = (
    "probe/test_probe_library.py",
    "differential/test_agreement.py",
    "house/test_quality.py",
    "editors/test_vscode_extension.py",
    "probe/test_probe_cluster.py",
    "probe/test_probe_incidents.py",
    "house/test_wheel.py",
    "house/test_site.py",
    "oracle/test_divergence_oracle.py",
    "probe/test_probe_processes.py",
    "launchers/test_launchers_started.py",
    "runner/test_started_jobs.py",
    "runner/test_run_command.py",
    "launchers/test_hosts_meet.py",
    "model/shell/test_shell_against_bash.py",
    "integrations/test_pre_commit.py",
    "engine/test_bad_input.py",
    "engine/test_examples.py",
    "rules/test_index.py",
    "integrations/test_flake8.py",
    "launchers/test_parsers_against_launchers.py",
    "differential/test_silent_effects.py",
    "differential/test_accelerate_files_against_accelerate.py",
)


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("search" if config.getoption("--full") else "tests")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {f"tests/{name}": place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.nodeid.partition("::")[0], len(places)))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="tests against a judge: all cases, all releases (an hour)")


@pytest.fixture(scope="session")
def full(request: pytest.FixtureRequest) -> bool:
    """All cases, and not only those that fit the test command."""
    return bool(request.config.getoption("--full")) or os.environ.get("DSLINT_DIFFERENTIAL") == "full"
