"""Compares Flowgate with invariant-ai on generated pairs of a policy and a trace, and explains every difference.

A set of defects of the original (DEFECTS.md) explains a difference if the original with exactly these defects repaired
agrees with Flowgate; the smallest such set counts. A defect in the parsing of policies is repaired by writing the policy
without the ambiguity; Flowgate must then interpret both forms equally. Differences without an explanation are printed,
and the program exits with 1.
"""

import argparse
import collections
import contextlib
import hashlib
import inspect
import itertools
import json
import os
import re
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import generate
import original as runner
import outcome as sides
from original import Pool
from render import TEXT_FIXES
from repairs import REPAIRS, version

HERE = Path(__file__).resolve().parent
RUNNER = inspect.getsource(runner)


def ask_server(url, policy, pair, seconds=60):
    """Returns our outcome for one pair."""
    body = {"messages": pair["messages"], "policy": policy, "parameters": pair["parameters"]}
    request = urllib.request.Request(
        f"{url}/api/v1/policy/check", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=seconds) as response:
            return ours(json.load(response))
    except urllib.error.HTTPError as error:
        text = error.read().decode(errors="replace")
        with contextlib.suppress(ValueError):
            text = json.loads(text).get("detail", text)
        return {"errors": [], "refused": {"phase": "server", "class": str(error.code), "text": str(text)[:300]}}


def ours(answer):
    """Converts an answer of our server to an outcome; findings that only report a failed rule are counted separately."""
    errors = [error for error in answer["errors"] if not str(error.get("key")).startswith("failure:")]
    failures = answer.get("failures") or []
    return {"errors": errors, "refused": None, "failures": len(failures), "said": failures}


class Original:
    """The original's outcomes, cached in a file between runs."""

    def __init__(self, pool, path):
        self.pool = pool
        self.path = path
        self.known = json.loads(path.read_text()) if path and path.exists() else {}

    def ask(self, policy, pair, repairs=()):
        """Returns the outcome for a policy on a pair's trace, with some defects repaired."""
        request = {
            "policy": policy,
            "messages": pair["messages"],
            "parameters": pair["parameters"],
            "repairs": sorted(repairs),
        }
        made_by = version(tuple(request["repairs"])) if repairs else ""
        key = hashlib.sha256(json.dumps([request, made_by, RUNNER], sort_keys=True).encode()).hexdigest()
        if key not in self.known:
            self.known[key] = self.pool.ask(request)
            if len(self.known) % 500 == 0:
                self.save()
        return self.known[key]

    def save(self):
        """Saves the cache."""
        if self.path:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            written_anew = self.path.with_suffix(f".{threading.get_ident()}")
            written_anew.write_text(json.dumps(dict(self.known)))
            written_anew.replace(self.path)


def written(pair, fixes):
    """Returns the pair's policy with some ambiguities resolved."""
    matter = [fix for fix in TEXT_FIXES if fix in fixes and fix in pair["variants"]]
    return pair["variants"].get("+".join(matter), pair["policy"])


def repaired(original, pair, fixes):
    """Returns the original's outcome with some defects repaired."""
    found = original.ask(written(pair, fixes), pair, set(fixes) & set(REPAIRS))
    return sides.with_moved_places(found, pair["messages"]) if "D13" in fixes else found


def agrees(found, our, fixes, told):
    """Whether the repaired original agrees with our outcome, including the aspects in `told`: `places`, `keys`."""
    if "keys" in told and not found["refused"] and not sides.same_keys(found, our):
        return False
    if "D9" in fixes:
        found, our = sides.without_doubtful_places(found, our)
    return sides.same(found, our, "places" in told)


def candidates(original, pair):
    """Returns the defects that occur on this pair: those whose repair changed something."""
    shown = {fix for fix in TEXT_FIXES if fix in pair["variants"]}
    fired = shown | set(original.ask(written(pair, shown), pair, REPAIRS).get("fired", []))
    found = repaired(original, pair, fired)
    # One repair can hide another; in particular, an error that is isolated is not an error that is repaired.
    for others in ({"D3", "D30"}, {"D5", "D23", "D40"}, {"D3", "D5", "D23", "D30", "D40"}):
        fired |= set(original.ask(written(pair, shown), pair, set(REPAIRS) - others).get("fired", []))
    if found["errors"] or any("tools" in message for message in pair["messages"]):
        fired |= {"D13"} if sides.event_places(pair["messages"]) != [str(i) for i in range(len(pair["messages"]))] else set()
        # A finding that D33 drops may be doubtful as well, and ours may have a place for a value that a line names.
        kept = repaired(original, pair, fired - {"D33"})
        fired |= {"D9"} if any(error.get("doubtful") for error in found["errors"] + kept["errors"]) else set()
    # If a line that begins with a parenthesis is the only cause, it is reported first.
    return sorted(fired, key=lambda fix: (fix != "D34", int(fix[1:])))


def reads_alike(server, pair, our, fixes):
    """Whether we interpret the policy with its ambiguities resolved as we interpret it without."""
    text = written(pair, set(fixes))
    return text == pair["policy"] or sides.same(server(text, pair), our)


def explain(original, server, pair, our, told, most=3):
    """Returns a smallest set of defects that explains a difference, or None; one of more than three may not be the smallest."""
    shown = candidates(original, pair)

    def fits(fixes):
        return agrees(repaired(original, pair, fixes), our, fixes, told) and reads_alike(server, pair, our, fixes)

    for fixes in itertools.combinations(shown, 1):
        if fits(fixes):
            return fixes
    if fits(shown):
        needed = list(shown)
        for fix in shown:
            fewer = [other for other in needed if other != fix]
            needed = fewer if fits(fewer) else needed
        if len(needed) <= 2:
            return tuple(needed)
        most, shown = min(most, len(needed) - 1), shown if len(shown) < 8 else needed
    else:
        needed = None
    for size in range(2, min(most, len(shown)) + 1):
        for fixes in itertools.combinations(shown, size):
            if fits(fixes):
                return fixes
    return needed and tuple(needed)


def judge(original, server, pair, told):
    """Returns the result for one pair: the verdict, the defects, and both outcomes."""
    found, our = original.ask(pair["policy"], pair), server(pair["policy"], pair)
    if found["refused"] and found["refused"]["phase"] == "time":
        return "late", (), found, our
    if agrees(found, our, (), told):
        return "agreed", (), found, our
    fixes = explain(original, server, pair, our, told)
    if fixes is not None:
        return "explained", fixes, found, our
    for verdict in sorted(told):
        if agrees(found, our, (), told - {verdict}) or explain(original, server, pair, our, told - {verdict}):
            return verdict, (), found, our
    return "unexplained", (), found, our


def show(pair, found, our):
    """Prints a pair without an explanation."""
    strip = lambda outcome: {name: value for name, value in outcome.items() if name not in ("fired",) and value}
    print(f"\n---- {pair['id']}\n{pair['policy']}")
    print(f"messages:   {json.dumps(pair['messages'], ensure_ascii=False)}")
    if pair["parameters"]:
        print(f"parameters: {json.dumps(pair['parameters'])}")
    print(f"original:   {json.dumps(strip(found), ensure_ascii=False)}")
    print(f"ours:       {json.dumps(strip(our), ensure_ascii=False)}")


def titles():
    """Returns the headings of the defects in DEFECTS.md, by number."""
    heads = re.findall(r"^## (D\d+) (.*)$", (HERE / "DEFECTS.md").read_text(), re.MULTILINE)
    return dict(heads)


def table(results, unexplained):
    """Prints the counts."""
    counts = collections.Counter(verdict for _, verdict, _, _, _ in results)
    print(f"{len(results):6}  pairs of a policy and a trace")
    print(f"{counts['agreed']:6}  agreed")
    print(f"{counts['explained']:6}  differ by defects of the original:")
    by_defect = collections.Counter(fix for _, _, fixes, _, _ in results for fix in fixes)
    alone = collections.Counter(fixes[0] for _, _, fixes, _, _ in results if len(fixes) == 1)
    names = titles()
    for fix in sorted(by_defect, key=lambda fix: int(fix[1:])):
        print(f"{by_defect[fix]:14}  {fix:4} {names.get(fix, '')} (alone: {alone[fix]})")
    if counts["late"]:
        print(f"{counts['late']:6}  left out: the original took too long")
    for verdict, words in (("keys", "keys"), ("places", "places")):
        if counts[verdict]:
            print(f"{counts[verdict]:6}  UNEXPLAINED, only in their {words}")
    print(f"{counts['unexplained']:6}  UNEXPLAINED")
    kinds = collections.Counter(pair["construct"] for pair, verdict, *_ in results if verdict in unexplained)
    if kinds:
        print("        by construct: " + ", ".join(f"{name} {number}" for name, number in kinds.most_common()))


@contextlib.contextmanager
def started(command):
    """Starts our server, and waits for the first line of output with its address."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        for line in process.stdout:
            found = re.search(r"(?:http://)?((?:127\.0\.0\.1|localhost|\[::1\]):[1-9]\d*)", line)
            if found:
                break
        else:
            sys.exit(f"the server ended: {' '.join(command)}")
        with ThreadPoolExecutor(1) as drain:
            drain.submit(lambda: collections.deque(process.stdout, maxlen=0))
            try:
                yield f"http://{found[1]}"
            finally:
                process.terminate()
    finally:
        process.kill()
        process.wait()


def parse_arguments():
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=1, help="which pairs are made (default: 1)")
    parser.add_argument("--each", type=int, default=14, help="pairs of each construct (default: 14)")
    parser.add_argument("--only", default="", help="only pairs whose id begins with this")
    parser.add_argument("--server", help="address of a running server; without it, --binary is started")
    parser.add_argument("--binary", default="target/release/flowgate", help="the flowgate program (default: %(default)s)")
    parser.add_argument("--compat", action="store_true", help="start the server with --compat, and compare keys")
    parser.add_argument("--places", choices=("check", "ignore"), default="check", help="whether places must agree (default: check)")
    parser.add_argument("--cache", type=Path, help="folder for the original's outcomes")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes that run the original")
    parser.add_argument("--seconds", type=float, default=20.0, help="longest time of the original for a pair (default: 20)")
    parser.add_argument("--show", type=int, default=20, help="how many unexplained pairs are printed (default: 20)")
    parser.add_argument("--report", type=Path, help="file for one line of JSON a pair")
    return parser.parse_args()


def write_report(path, results):
    """Reads pairs, one line of JSON each."""
    with path.open("w") as file:
        for pair, verdict, fixes, found, our in results:
            line = {"id": pair["id"], "verdict": verdict, "defects": fixes, "pair": pair, "original": found, "ours": our}
            file.write(json.dumps(line) + "\n")


def main():
    """Compares all pairs, prints the table, and exits with 1 if a difference is unexplained."""
    options = parse_arguments()
    made = [pair for pair in generate.pairs(options.seed, options.each) if pair["id"].startswith(options.only)]
    command = [options.binary, "serve", *(["--compat"] if options.compat else []), "--listen", "127.0.0.1:0"]
    serving = contextlib.nullcontext(options.server) if options.server else started(command)
    cache = options.cache and options.cache / f"outcomes-{options.seed}-{generate.VERSION}.json"
    told = {"keys"} if options.compat else set()
    told |= {"places"} if options.places == "check" else set()
    with serving as url, Pool(options.workers, options.seconds) as pool, ThreadPoolExecutor(options.workers) as threads:
        original = Original(pool, cache)
        server = lambda policy, pair: ask_server(url.rstrip("/"), policy, pair)
        verdicts = threads.map(lambda pair: judge(original, server, pair, told), made)
        results = [(pair, *verdict) for pair, verdict in zip(made, verdicts)]
        original.save()
    unexplained = {"unexplained", "places", "keys"}
    left = [(pair, found, our) for pair, verdict, _, found, our in results if verdict in unexplained]
    for pair, found, our in left[: options.show]:
        show(pair, found, our)
    table(results, unexplained)
    if options.report:
        write_report(options.report, results)
    late = sum(verdict == "late" for _, verdict, *_ in results)
    explained = sum(verdict == "explained" for _, verdict, *_ in results)
    compared = len(results) - late
    print(f"differential: {compared} pairs, {compared - explained - len(left)} agreed, {explained} explained, {len(left)} unexplained")
    sys.exit(1 if left or not compared else 0)


if __name__ == "__main__":
    main()
