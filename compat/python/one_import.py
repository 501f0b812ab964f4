"""A pytest plugin that gives Invariant's own tests the classes of `flowgate.invariant` in place of Invariant's.

It does to the tests what changing one import does, and makes sure that nothing of the original evaluates a policy: its rules and its
requests raise. A test that analyzed nothing fails.
"""

import importlib

import pytest

from flowgate import invariant as ours

REPLACED = {
    "invariant.analyzer": ["LocalPolicy", "Policy", "Monitor", "PolicyLoadingError", "UnhandledError", "PolicyViolation"],
    "invariant.analyzer.policy": ["LocalPolicy", "Policy", "PolicyLoadingError", "UnhandledError", "analyze_trace"],
    "invariant.analyzer.monitor": ["Monitor", "Policy"],
    "invariant.analyzer.stdlib.invariant": ["AnalysisResult", "ErrorInformation", "UnhandledError"],
    "invariant.analyzer.stdlib.invariant.errors": ["AnalysisResult", "ErrorInformation", "UnhandledError", "PolicyLoadingError"],
    "invariant.analyzer.runtime.runtime_errors": [
        "ExcessivePolicyError",
        "InvariantAttributeError",
        "InvariantInputValidationError",
        "MissingPolicyParameter",
        "PolicyExecutionError",
    ],
}
USES = []


def refuse(*_, **__):
    raise AssertionError("Invariant's own analyzer was called")


def counted(function):
    def call(*args, **kwargs):
        USES.append(function.__name__)
        return function(*args, **kwargs)

    return call


def pytest_configure(config):
    del config
    from invariant.analyzer.remote_policy import RemotePolicy
    from invariant.analyzer.runtime.rule import RuleSet

    RuleSet.apply = refuse
    RemotePolicy.a_analyze = refuse
    RemotePolicy.a_preload = refuse
    for module, names in REPLACED.items():
        loaded = importlib.import_module(module)
        for name in names:
            assert hasattr(loaded, name), f"{module} has no {name}"
            setattr(loaded, name, getattr(ours, name))
    ours._Policy = counted(ours._Policy)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    item.uses_before = len(USES)
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.skipped:
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped; it is on the list because it can run"
    elif call.when == "call" and report.passed and len(USES) == item.uses_before:
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} did not compile a policy with Flowgate"
    return report
