"""Precision and recall of our detectors, detect-secrets and presidio on one corpus, in one run.

Usage: compare.py PATH-OF-THE-EXAMPLE `detect`. A finding is a hit if it touches a labelled place; for personal data its
kind must be the label's, for secrets any kind will do, since the tools name them differently.
"""

import inspect
import json
import logging
import pathlib
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections import Counter

import presidio_analyzer.predefined_recognizers as recognizers
import spacy
from detect_secrets import SecretsCollection
from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class
from detect_secrets.settings import transient_settings
from presidio_analyzer import AnalyzerEngine, LocalRecognizer, PatternRecognizer, RecognizerRegistry
from presidio_analyzer.nlp_engine import SpacyNlpEngine
from spacy.language import Language

# It downloads a list of domains if it can, and otherwise uses its own.
logging.getLogger("tldextract").setLevel(logging.CRITICAL)

CORPUS = pathlib.Path(__file__).parents[2] / "crates/flowgate-detect/tests/corpus"


def rows(name):
    return [json.loads(line) for line in (CORPUS / name).read_text().splitlines()]


def ours(example, texts, detector):
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    out = subprocess.run([example], input=lines, capture_output=True, text=True, check=True).stdout
    return [
        [(f["kind"], f["start"], f["end"]) for f in json.loads(line) if f["detector"] == detector]
        for line in out.splitlines()
    ]


def of_detect_secrets(texts):
    """Runs all plugins with the default filters, on a file for each text, as the tool is normally used."""
    plugins = [{"name": plugin.__name__} for plugin in get_mapping_from_secret_type_to_class().values()]
    found = []
    with transient_settings({"plugins_used": plugins}), tempfile.TemporaryDirectory() as folder:
        for number, text in enumerate(texts):
            path = pathlib.Path(folder) / f"{number}.txt"
            path.write_text(text)
            secrets = SecretsCollection()
            secrets.scan_file(str(path))
            lines = text.splitlines(keepends=True)
            spans = []
            for secret in secrets[str(path)]:
                start = sum(map(len, lines[: secret.line_number - 1]))
                at = text.find(secret.secret_value, start)
                if at >= 0:
                    spans.append((secret.type, at, at + len(secret.secret_value)))
            found.append(spans)
    return found


@Language.component("lower_case_lemmas")
def lower_case_lemmas(doc):
    """Replaces a model's lemmas with the words, for presidio's context words."""
    for token in doc:
        token.lemma_ = token.lower_
    return doc


class BlankEngine(SpacyNlpEngine):
    """Tokenises without a model."""

    def load(self):
        self.nlp = {"en": spacy.blank("en")}
        self.nlp["en"].add_pipe("lower_case_lemmas")


def presidio(kinds):
    """Returns the pattern recognisers for the kinds of the corpus, without a model for names."""
    registry = RecognizerRegistry(recognizers=[], supported_languages=["en"])
    known = set()
    for name, recognizer in inspect.getmembers(recognizers, inspect.isclass):
        patterns = issubclass(recognizer, PatternRecognizer) or name == "PhoneRecognizer"
        if patterns and issubclass(recognizer, LocalRecognizer):
            instance = recognizer(supported_language="en")
            if kinds & set(instance.supported_entities):
                registry.add_recognizer(instance)
                known |= set(instance.supported_entities)
    engine = BlankEngine()
    engine.load()
    return AnalyzerEngine(registry=registry, nlp_engine=engine, supported_languages=["en"]), known


def measure(corpus, findings, same_kind, kinds):
    """Counts hits and misses by labelled kind, and false alarms by found kind."""
    hits, misses, alarms = Counter(), Counter(), Counter()
    for row, found in zip(corpus, findings, strict=True):
        touched = set()
        for kind, part in row["gold"]:
            start = row["text"].index(part)
            end = start + len(part)
            hit = [f for f in found if f[1] < end and start < f[2] and (not same_kind or f[0] == kind)]
            touched.update(hit)
            (hits if hit else misses)[kind] += 1
        for finding in set(found) - touched:
            if not same_kind or finding[0] in kinds:
                alarms[finding[0]] += 1
    return hits, misses, alarms


def ratio(part, rest):
    return f"{part / (part + rest):.2f}" if part + rest else "–"


def table(title, measures, same_kind, known):
    kinds = sorted({kind for hits, misses, _ in measures.values() for kind in hits | misses})
    print(f"\n### {title}\n\n| kind | labels | " + " | ".join(f"{name}" for name in measures) + " |")
    print("|---|--:|" + "--:|" * len(measures))
    for kind in kinds:
        cells = []
        for name, (hits, misses, alarms) in measures.items():
            if kind not in known.get(name, kinds):
                cells.append("–")
            elif same_kind:
                cells.append(f"{ratio(hits[kind], alarms[kind])} / {ratio(hits[kind], misses[kind])}")
            else:
                cells.append(ratio(hits[kind], misses[kind]))
        labels = max(hits[kind] + misses[kind] for hits, misses, _ in measures.values())
        print(f"| {kind} | {labels} | " + " | ".join(cells) + " |")
    cells, labels = [], 0
    for name, (hits, misses, alarms) in measures.items():
        counted = [kind for kind in kinds if kind in known.get(name, kinds)]
        hit, miss = (sum(counter[kind] for kind in counted) for counter in (hits, misses))
        labels = max(labels, hit + miss)
        cells.append(f"{ratio(hit, sum(alarms.values()))} / {ratio(hit, miss)}")
    print(f"| **all its kinds, precision / recall** | {labels} | " + " | ".join(cells) + " |")


def main(example):
    corpus = rows("secrets.jsonl")
    texts = [row["text"] for row in corpus]
    found = {"ours": ours(example, texts, "secrets"), "detect-secrets": of_detect_secrets(texts)}
    measures = {name: measure(corpus, findings, False, set()) for name, findings in found.items()}
    table("Secrets: recall by kind", measures, False, {})

    corpus = rows("personal.jsonl")
    texts = [row["text"] for row in corpus]
    kinds = {kind for row in corpus for kind, _ in row["gold"]}
    analyzer, known = presidio(kinds)
    # The threshold that the original uses.
    results = [
        [(r.entity_type, r.start, r.end) for r in analyzer.analyze(text, language="en") if r.score > 0.5] for text in texts
    ]
    found = {"ours": ours(example, texts, "personal"), "presidio (patterns)": results}
    measures = {name: measure(corpus, findings, True, kinds) for name, findings in found.items()}
    table("Personal data: precision / recall by kind", measures, True, {"presidio (patterns)": known})

    # Independent text in which nearly every finding is false: the sources of Python's standard library.
    library = pathlib.Path(sysconfig.get_paths()["stdlib"])
    files = [p for p in sorted(library.rglob("*.py")) if not {"site-packages", "test", "tests", "idlelib"} & set(p.parts)]
    texts = [text for p in files if (text := p.read_text(errors="replace"))]
    size = sum(map(len, texts)) / 1e6
    print(f"\n### False secrets in Python's standard library ({len(texts)} files, {size:.1f} million characters)\n")
    print("| | findings | seconds | kinds |\n|---|--:|--:|---|")
    for name, find in (("ours", lambda: ours(example, texts, "secrets")), ("detect-secrets", lambda: of_detect_secrets(texts))):
        begun = time.perf_counter()
        count = Counter(kind for findings in find() for kind, _, _ in findings)
        spent = time.perf_counter() - begun
        kinds = ", ".join(f"{kind} {n}" for kind, n in count.most_common())
        print(f"| {name} | {sum(count.values())} | {spent:.1f} | {kinds} |")
    print("\nOurs runs all its detectors in that time, not only this one.")


if __name__ == "__main__":
    main(sys.argv[1])
