"""Rules for every test: one torch thread, no random examples in CI, no skip in CI, and a time limit."""

from __future__ import annotations

import faulthandler
import os
import sys
from collections.abc import Generator

import hypothesis
import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key  # the error stream that is not captured

from atoll.training.determinism import prepare_environment

# Before any test module imports torch: workers get the same environment, and their bits must be equal.
prepare_environment()
IN_CI = os.environ.get("CI") == "true"

# No deadline per example, because the machine may be busy. In CI the examples are fixed, so that failures are
# reproducible.
hypothesis.settings.register_profile("here", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True)
hypothesis.settings.load_profile("ci" if IN_CI else "here")


@pytest.fixture(autouse=True)
def one_torch_thread() -> None:
    """Small models are many times slower on two threads. Worker processes set this themselves."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    # An expected failure is reported as "skipped" too, but it did run.
    if report.skipped and not hasattr(report, "wasxfail"):
        _forbid_in_ci(report)
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if report.skipped:
        _forbid_in_ci(report)
    return report


@pytest.hookimpl(trylast=True)
def pytest_exception_interact(node: pytest.Item | pytest.Collector) -> None:
    """pytest cancels its timeout when a test fails, but the teardown may hang, too: start the timeout again."""
    limit = float(node.config.getini("faulthandler_timeout") or 0)
    if limit and isinstance(node, pytest.Item):
        faulthandler.dump_traceback_later(limit, exit=True, file=node.config.stash[fault_handler_stderr_fd_key])


def _forbid_in_ci(report: pytest.TestReport | pytest.CollectReport) -> None:
    """In CI every test must run: report a skip as a failure with its reason."""
    if IN_CI:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"{report.nodeid} was skipped, and in CI no test may skip: {reason}"
