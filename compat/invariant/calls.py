"""Fails a test that sent no request to the server: a policy test without requests does not test Flowgate.

A pytest plugin. It reads the server's count of requests before and after each test.
"""

import os
import re
import urllib.request

import pytest

REQUESTS = re.compile(r'^flowgate_requests_total\{route="/api/v1/policy/[^"]*",status="\d+"\} (\d+)$', re.MULTILINE)
# The server is on this machine, so proxies from the environment are ignored.
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def requests() -> int:
    with OPENER.open(os.environ["INVARIANT_API_ENDPOINT"] + "/metrics", timeout=10) as answer:
        return sum(int(count) for count in REQUESTS.findall(answer.read().decode()))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    item.requests_before = requests()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.skipped:
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped; it is on the list because it can run"
    elif call.when == "call" and report.passed and requests() == item.requests_before:
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} did not ask the server"
    return report
