"""Repeats rows of AgentDojo, and compares their sums with those recorded in `results/agentdojo`. `.ci/nightly agentdojo` runs it.

The rows are those on which the documents base what they say of attacks: without a defence, lowest first, and provenance, with every
question refused; and the user's tasks under lowest first with the oracle. Times are not compared, nor are tokens, which are estimated
from the texts and change with every word of a prompt or a refusal.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

from flowgate.bench.agentdojo import cli, figures, running

ROOT = Path(__file__).parents[2]
RECORDED = ROOT / "results" / "agentdojo" / "in-process.jsonl"
RUNS = [
    "--version v1.2.2 v1.1.2 --model obedient --defence none",
    "--version v1.2.2 --model capable --defence lowest-first --policies strict typed",
    "--version v1.2.2 --model capable --defence provenance",
    "--version v1.2.2 --model capable --defence lowest-first --policies strict typed --confirm oracle --attack none",
]
KEY = ("version", "attack", "model", "defence", "confirmation")
TOTALS = ("without_attack", "under_attack")
NOT_COMPARED = ("input_tokens", "output_tokens")


def rows(lines):
    """Return the rows of a summary by what identifies them."""
    return {tuple(line[name] for name in KEY): line for line in lines if line["type"] == "row"}


def differences(measured, recorded):
    """Return what differs between the measured rows of a summary and the recorded ones, a line for each sum. What was not measured is left out."""
    known, found = rows(recorded), []
    for key, row in rows(measured).items():
        for total in TOTALS:
            if row[total] is None:
                continue
            name = f"{', '.join(key)}, {total.replace('_', ' ')}"
            other = (known.get(key) or {}).get(total)
            if other is None:
                found.append(f"{name}: measured, but not recorded")
                continue
            sums = sorted({*row[total], *other} - {*NOT_COMPARED})
            changed = (one for one in sums if row[total].get(one) != other.get(one))
            found += [f"{name}: {one} is {row[total].get(one)}, recorded {other.get(one)}" for one in changed]
    return found


def main():
    """Measure the rows; return 0 if their sums are the recorded ones."""
    with tempfile.TemporaryDirectory(prefix="flowgate-rows-") as folder:
        out = Path(folder) / "results.jsonl"
        for arguments in RUNS:
            shared = ["--policy-folder", str(ROOT / "examples" / "agentdojo"), "--processes", str(os.cpu_count() or 1), "--out", str(out)]
            status = cli.main(["run", *arguments.split(), *shared])
            if status:
                return status
        measured = figures.summary(running.read_results(out))
    found = differences(measured, [json.loads(line) for line in RECORDED.read_text(encoding="utf-8").splitlines()])
    for line in found:
        print(line)
    print(f"{len(rows(measured))} rows were repeated; {len(found)} sums differ from {RECORDED.relative_to(ROOT)}")
    if found:
        print("where the change is intended, record all rows again: see results/README.md")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
