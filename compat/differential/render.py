"""Policies as trees, from which a policy is written in the usual form or with each ambiguity resolved.

`fixes` is a set of numbers of DEFECTS.md whose repair is another way to write the same policy: explicit parentheses
(D1, D2, D17), no f-strings (D11), no chains of arrows (D18), positional arguments (D25), no line that begins with a
parenthesis or a bracket (D34), declarations on lines of their own (D38).
"""

from dataclasses import dataclass
from itertools import chain, combinations

TEXT_FIXES = ("D1", "D2", "D11", "D17", "D18", "D25", "D34", "D38")


@dataclass(frozen=True)
class Cmp:
    """A comparison, or another expression with a lower precedence than a call."""

    text: str

    def show(self, fixes):
        return self.text


@dataclass(frozen=True)
class Many:
    """Operands joined by `and` or by `or`."""

    word: str
    items: tuple

    def show(self, fixes):
        if "D1" not in fixes:
            return f" {self.word} ".join(self.bare(item, fixes) for item in self.items)
        first, *rest = [wrap(item, fixes) for item in self.items]
        text = first
        for index, item in enumerate(rest):
            text = f"({text}) {self.word} {item}" if index else f"{text} {self.word} {item}"
        return text

    def bare(self, item, fixes):
        """Returns an operand, with parentheses only where every parser needs them."""
        looser = isinstance(item, Choice) or (isinstance(item, Many) and self.word == "and" and item.word == "or")
        return f"({show(item, fixes)})" if looser else show(item, fixes)


@dataclass(frozen=True)
class Not:
    """A negation."""

    item: object

    def show(self, fixes):
        bare = isinstance(self.item, (str, Cmp)) and not ("D2" in fixes and isinstance(self.item, Cmp))
        return f"not {show(self.item, fixes)}" if bare else f"not ({show(self.item, fixes)})"


@dataclass(frozen=True)
class Choice:
    """`a if c else b`."""

    then: object
    condition: object
    other: object

    def show(self, fixes):
        parts = [show(part, fixes) for part in (self.then, self.condition, self.other)]
        then, condition, other = (f"({part})" if "D17" in fixes else part for part in parts)
        return f"{then} if {condition} else {other}"


@dataclass(frozen=True)
class Let:
    """`name := value`."""

    name: str
    value: object

    def show(self, fixes):
        return f"{self.name} := {show(self.value, fixes)}"


@dataclass(frozen=True)
class Either:
    """A text with a second form under a fix."""

    fix: str
    plain: str
    fixed: str

    def show(self, fixes):
        return self.fixed if self.fix in fixes else self.plain


@dataclass(frozen=True)
class Block:
    """A quantifier with its lines."""

    head: str
    lines: tuple


@dataclass(frozen=True)
class Rule:
    """`raise HEAD if:` with its lines."""

    head: object
    lines: tuple


def wrap(item, fixes):
    """Returns an expression in parentheses, unless it needs none."""
    return f"({show(item, fixes)})" if not isinstance(item, str) else item


def show(item, fixes):
    """Returns an expression as text."""
    return item if isinstance(item, str) else item.show(fixes)


def lines_of(line, fixes, indent):
    """Returns one line of a body, which may consist of several lines of text."""
    if isinstance(line, Block):
        inner = [text for item in line.lines for text in lines_of(item, fixes, indent + "    ")]
        return [f"{indent}{line.head}:", *inner]
    text = show(line, fixes)
    is_expression = not isinstance(line, (str, Either))
    if is_expression and text.startswith("(") and fixes & {"D1", "D17", "D34"} or text.startswith("[") and "D34" in fixes:
        text = f"True and ({text})"
    return [indent + part for part in text.split("\n")]


def policy(parts, fixes=frozenset()):
    """A whole policy; parts are rules, or literal texts."""
    shown = []
    for part in parts:
        if isinstance(part, Rule):
            body = [text for line in part.lines for text in lines_of(line, fixes, "    ")]
            shown.append("\n".join([f"raise {show(part.head, fixes)} if:", *body]))
        else:
            shown.append(show(part, fixes))
    return "\n".join(shown) + "\n"


def variants(parts):
    """Returns all forms of a policy that differ from the plain one, by their fixes joined with `+`."""
    plain = policy(parts)
    matter = [fix for fix in TEXT_FIXES if policy(parts, frozenset({fix})) != plain]
    sets = chain.from_iterable(combinations(matter, size) for size in range(1, len(matter) + 1))
    return {"+".join(chosen): policy(parts, frozenset(chosen)) for chosen in sets}
