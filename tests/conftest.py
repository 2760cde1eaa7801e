"""What holds for every test: one torch thread, no random examples in CI, no silent skip, and an end."""

from __future__ import annotations

import faulthandler
import os
import sys
from collections.abc import Generator

import hypothesis
import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key  # the error stream that no test captures

from atoll.training.determinism import prepare_environment

# Before any test module imports torch: workers get this environment too, and the bits of both must be equal.
prepare_environment()
IN_CI = os.environ.get("CI") == "true"

# A busy machine is not a bug: no deadline per example. In CI a red test must mean a change: the examples are fixed.
hypothesis.settings.register_profile("here", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True)
hypothesis.settings.load_profile("ci" if IN_CI else "here")


@pytest.fixture(autouse=True)
def one_torch_thread() -> None:
    """Small models are many times slower on two threads. Not set for worker processes: they see to it themselves."""
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
    """pytest stops its watch over a test that has failed; but what a test leaves behind may hang, too."""
    limit = float(node.config.getini("faulthandler_timeout") or 0)
    if limit and isinstance(node, pytest.Item):
        faulthandler.dump_traceback_later(limit, exit=True, file=node.config.stash[fault_handler_stderr_fd_key])


def _forbid_in_ci(report: pytest.TestReport | pytest.CollectReport) -> None:
    """In CI a test that does not run proves nothing: the skip becomes a failure that tells its reason."""
    if IN_CI:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"{report.nodeid} was skipped, and in CI no test may skip: {reason}"
