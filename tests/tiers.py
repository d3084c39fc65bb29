"""Tiers of the suite, by what each test costs: ``--tier fast``, ``--tier usual`` or ``--tier all``.

``durations.json`` holds processor seconds of the tests and of fixtures that a whole file shares, as written by
``pytest --record-durations`` (``make durations``). A test is in a tier when neither it nor a fixture that it uses costs
more than the tier's limit. A test that is not listed is in every tier; ``@pytest.mark.every_run`` keeps a dear one in
the usual tier.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

FILE = Path(__file__).with_name("durations.json")
LIMITS = {"fast": 0.12, "usual": 0.5}  # processor seconds of one test
LEAST = 0.1  # seconds below which a test is not listed


def pytest_addoption(parser):
    parser.addoption("--tier", choices=("fast", "usual", "all"), default="all", help="which tests, by their cost")
    parser.addoption("--record-durations", action="store_true", help="write tests/durations.json")


def pytest_configure(config):
    config.addinivalue_line("markers", "every_run: part of the usual tier, whatever it costs")
    if config.getoption("--record-durations"):
        config.pluginmanager.register(Recorder(config), "durations-recorder")


def pytest_collection_modifyitems(config, items):
    limit = LIMITS.get(config.getoption("--tier"))
    if limit is None or not FILE.exists():
        return
    known = json.loads(FILE.read_text())
    tests, fixtures = known["tests"], known["fixtures"]

    def belongs(item):
        if limit == LIMITS["usual"] and item.get_closest_marker("every_run"):
            return True
        file = item.nodeid.split("::")[0]
        used = (f"{file}::{name}" for name in getattr(item, "fixturenames", ()))
        return max(tests.get(item.nodeid, 0.0), *(fixtures.get(name, 0.0) for name in used), 0.0) <= limit

    kept = [item for item in items if belongs(item)]
    config.hook.pytest_deselected(items=[item for item in items if not belongs(item)])
    items[:] = kept


def processor_seconds() -> float:
    """Of this process and of children that have ended."""
    return sum(os.times()[:4])


class Recorder:
    """Measures tests and shared fixtures in the workers, and writes what they report."""

    def __init__(self, config):
        self.config = config
        self.shared = {}  # what fixtures of a whole file cost, until a report carries it away
        self.tests, self.fixtures = {}, {}

    @pytest.hookimpl(hookwrapper=True)
    def pytest_fixture_setup(self, fixturedef, request):
        began = processor_seconds()
        yield
        if fixturedef.scope != "function":
            self.shared[f"{request.node.nodeid.split('::')[0]}::{fixturedef.argname}"] = processor_seconds() - began

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_setup(self, item):
        self.began = processor_seconds()
        yield

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(self, item):
        yield
        own = processor_seconds() - self.began - sum(self.shared.values())
        item.user_properties.append(("cost", [own, self.shared]))
        self.shared = {}

    def pytest_runtest_logreport(self, report):
        for name, value in report.user_properties:
            if name == "cost" and report.when == "call":
                self.tests[report.nodeid] = value[0]
                self.fixtures.update(value[1])

    def pytest_sessionfinish(self):
        if hasattr(self.config, "workerinput"):
            return
        listed = {
            "tests": {k: round(v, 2) for k, v in sorted(self.tests.items()) if v > LEAST},
            "fixtures": {k: round(v, 2) for k, v in sorted(self.fixtures.items()) if v > LEAST},
        }
        FILE.write_text(json.dumps(listed, indent=0) + "\n")
