"""Finds the addresses in rendered pages that were not permitted."""

import json
import subprocess
import sys
import unicodedata
from html.parser import HTMLParser

import cmarkgfm
import mistune
import pycmarkgfm
from cmarkgfm.cmark import Options

# Attributes that a browser follows or fetches.
LEADING = {
    "href", "src", "srcset", "action", "formaction", "data", "cite", "poster", "background", "ping", "style", "xlink:href",
    "content", "manifest", "longdesc", "usemap", "profile", "code", "codebase", "archive", "classid", "srcdoc",
}
# Elements that Markdown renderers produce.
EXPECTED = set(
    "p a img em strong del code pre h1 h2 h3 h4 h5 h6 ul ol li hr br blockquote table thead tbody tr th td input sup sub s mark ins "
    "section div span abbr dl dt dd ruby rt rp u summary details figure figcaption aside".split()
)


class Page(HTMLParser):
    """The addresses, the elements and the texts of a page."""

    def __init__(self, html):
        super().__init__(convert_charrefs=True)
        self.addresses, self.others, self.text = [], [], []
        self.links = 0
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attributes):
        if tag not in EXPECTED:
            self.others.append(tag)
        for name, value in attributes:
            if name in LEADING and not (name == "style" and (value or "").startswith("text-align")):
                self.addresses.append(value or "")
            if name.startswith("on"):
                self.others.append(name)
        self.links += tag == "a"
        self.text.append("\n")

    def handle_endtag(self, tag):
        self.links -= tag == "a"
        self.text.append("\n")

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        self.handle_endtag(tag)

    def handle_comment(self, data):
        self.others.append("a comment")

    def handle_decl(self, decl):
        self.others.append("a declaration")

    def handle_pi(self, data):
        self.others.append("an instruction")

    def handle_data(self, data):
        # The text of a link leads to the target of the link.
        if not self.links:
            self.text.append(data)


EXTENSIONS = ["table", "autolink", "tagfilter", "strikethrough", "tasklist"]
UNSAFE = Options.CMARK_OPT_UNSAFE | Options.CMARK_OPT_FOOTNOTES
mistune_all = mistune.create_markdown(
    escape=False,
    plugins=[
        "strikethrough", "footnotes", "table", "url", "task_lists", "def_list", "abbr", "mark", "insert", "superscript",
        "subscript", "math", "ruby", "spoiler",
    ],
)
PYTHON = {
    "cmark-gfm": lambda text: cmarkgfm.markdown_to_html_with_extensions(text, options=UNSAFE, extensions=EXTENSIONS[:2] + EXTENSIONS[3:]),
    "pycmarkgfm": lambda text: pycmarkgfm.gfm_to_html(text, options=pycmarkgfm.options.unsafe | pycmarkgfm.options.footnotes),
    "mistune": lambda text: mistune_all(text),
}


class Node:
    """markdown-it, in a separate process."""

    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")

    def __call__(self, text):
        self.process.stdin.write(json.dumps(text) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


def is_local(address):
    """Whether an address is an anchor that renderers create for footnotes."""
    return address.startswith(("#fn", "#user-content-fn"))


def normal(text):
    """Returns the text as a client sees it that normalises it and removes format characters and combining marks."""
    text = unicodedata.normalize("NFKC", text)
    return "".join(c for c in text if unicodedata.category(c) not in ("Cf", "Mn"))


def problems(name, html, permitted, linkified):
    page = Page(html)
    found = [address for address in page.addresses if not is_local(address)]
    found += linkified("".join(page.text))
    leads = [address for address in found if address not in permitted]
    return leads, page.others, sum(address in permitted for address in found)


def main():
    path, *command = sys.argv[1:]
    node = Node(command)
    linkified = lambda text: node(text)[1]
    renderers = {**PYTHON, "markdown-it": lambda text: node(text)[0]}
    failures, cases = [], 0
    counts = {name: [0, 0] for name in renderers}
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            case = json.loads(line)
            cases += 1
            permitted = set(case["permitted"])
            for name, render in renderers.items():
                for text in (case["cleaned"], normal(case["cleaned"])):
                    leads, others, kept = problems(name, render(text), permitted, linkified)
                    if leads or others:
                        failures.append((case["seed"], name, leads, others, case["text"], text))
                counts[name][0] += kept > 0
                leads, others, _ = problems(name, render(case["text"]), permitted, linkified)
                counts[name][1] += bool(leads or others)
    for seed, name, leads, others, text, cleaned in failures[:20]:
        print(f"seed {seed}, {name}: leads to {leads}, has {others}\n  {text!r}\n  {cleaned!r}")
    for name, (kept, hostile) in counts.items():
        print(f"{name}: {cases} texts, {hostile} lead astray as they were, {kept} keep a permitted address")
    weak = [name for name, (kept, hostile) in counts.items() if kept * 10 < cases or hostile * 10 < cases * 4]
    if weak:
        print(f"these find too little to test anything: {', '.join(weak)}")
    print(f"{len(failures)} failures")
    return 1 if failures or weak or not cases else 0


sys.exit(main())
