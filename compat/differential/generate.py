"""Generates pairs of a policy and a trace, which are the same for the same seed.

Each function called `family_...` writes one kind of policy; its name is the construct that the pair is counted under.
"""

import argparse
import collections
import json
import random

import traces
from render import Block, Choice, Cmp, Either, Let, Many, Not, Rule, policy, variants

VERSION = 1


def some_message(rng, v):
    """Generates a condition on a message with text."""
    return rng.choice((
        Cmp(f'{v}.role == "user"'), Cmp(f'{v}.role != "system"'), Cmp(f'"secret" in {v}.content'),
        Cmp(f'"World" in {v}.content'), Cmp(f"len({v}.content) > 12"), f'match("[A-Z][a-z]+ ", {v}.content)',
        f'any(find("secret|plan", {v}.content))', Cmp(f'{v}.content.lower() == "hello world"'),
        Cmp(f'{v}.role in ["user", "system"]'), Cmp(f'"o" in {v}.content.split(" ")[0]'),
    ))


def some_call(rng, v):
    """Generates a condition on a call."""
    return rng.choice((
        Cmp(f"{v} is tool:send_mail"), Cmp(f"{v} is tool:transfer"), Cmp(f'{v}.function.name == "save"'),
        Cmp(f'{v}.type == "function"'), Cmp(f"len({v}.function.arguments) > 1"), Cmp(f'{v}.function.name in ["run", "http_get"]'),
        Cmp(f'{v} is tool:send_mail({{to: ".*@firm.com"}})'), Cmp(f'"mail" in {v}.function.name'),
        Cmp(f'"to" in {v}.function.arguments'), Cmp(f"{v} is tool:transfer({{amount: 5}})"),
    ))


def some_output(rng, v):
    """Generates a condition on an answer."""
    return rng.choice((
        Cmp(f"{v} is tool:http_get"), Cmp(f'"secret" in {v}.content'), Cmp(f'{v}.role == "tool"'),
        f'any(find("[a-z]+@[a-z.]+", {v}.content))', Cmp(f"len({v}.content) > 20"), f'match(".*IMPORTANT", {v}.content)',
        Cmp(f'{v}.tool_call_id != "call_1_0"'),
    ))


KINDS = {"Message": some_message, "ToolCall": some_call, "ToolOutput": some_output}


def variable(rng, name="x"):
    """Generates a variable over events: its declaration, and a source of conditions on it."""
    kind = rng.choice(tuple(KINDS))
    return f"({name}: {kind})", lambda: KINDS[kind](rng, name)


def text(rng):
    """Generates the text of a finding."""
    return json.dumps(rng.choice(("found it", "do not", "a (strange) thing", "5 % of it")))


def head(rng, *names):
    """Generates the argument of a `raise`: a text, or a violation with arguments."""
    if names and rng.random() < 0.4:
        name = rng.choice(names)
        return rng.choice((f"Violation({text(rng)}, {name})", f"PolicyViolation({text(rng)}, event={name})", f"Violation({text(rng)}, n=3, ok=True)"))
    return text(rng)


def rules(rng, body, *names):
    """Returns one rule with this body."""
    return [Rule(head(rng, *names), tuple(body))]


def family_one_variable(rng):
    declaration, condition = variable(rng)
    return rules(rng, [declaration, *(condition() for _ in range(rng.randint(1, 3)))], "x"), traces.trace(rng)


def family_two_variables(rng):
    (a, on_a), (b, on_b) = variable(rng, "a"), variable(rng, "b")
    return rules(rng, [a, b, on_a(), on_b()], "a", "b"), traces.trace(rng)


def family_three_variables(rng):
    declared = [variable(rng, name) for name in "abc"]
    lines = [line for declaration, condition in declared for line in (declaration, condition())]
    return rules(rng, lines, "a", "c"), traces.trace(rng, most=2)


def family_flow(rng):
    left, right = rng.sample(("Message", "ToolCall", "ToolOutput", "ToolCall"), 2)
    first = rng.choice((f"(a: {left}) -> (b: {right})", f"(a: {left})\n(b: {right})\na -> b"))
    return rules(rng, [first, KINDS[left](rng, "a"), KINDS[right](rng, "b")], "a", "b"), traces.trace(rng)


def family_flow_of_three(rng):
    kinds = [rng.choice(tuple(KINDS)) for _ in range(3)]
    a, b, c = (f"({name}: {kind})" for name, kind in zip("abc", kinds))
    chain = Either("D18", f"{a} -> {b} -> {c}", f"{a} -> {b}\nb -> {c}") if rng.random() < 0.3 else f"{a} -> {b}\nb -> {c}"
    conditions = [KINDS[kind](rng, name) for name, kind in zip("abc", kinds)]
    return rules(rng, [chain, *conditions[: rng.randint(1, 2)]], "c"), traces.trace(rng, least=2, most=2)


def family_right_after(rng):
    left, right = rng.choice((("Message", "ToolCall"), ("ToolCall", "ToolOutput"), ("ToolOutput", "Message"), ("Message", "Message")))
    return rules(rng, [f"(a: {left}) ~> (b: {right})", rng.choice((KINDS[left](rng, "a"), KINDS[right](rng, "b")))], "b"), traces.trace(rng, least=2)


def family_flow_bare_calls(rng):
    kind = rng.choice(("ToolCall", "ToolOutput", "Message"))
    body = [f"(a: ToolCall) {rng.choice(('->', '~>'))} (b: {kind})", rng.choice((some_call(rng, "a"), KINDS[kind](rng, "b")))]
    return rules(rng, body, "b"), traces.trace(rng, bare=True)


PATTERNS = (
    'send_mail({to: "bob@mail.com"})', 'send_mail({to: "[a-z]+@firm.com", subject: *})', 'send_mail({to: "^ann.*"})',
    'send_mail({body: ".*secret.*"})', 'send_mail({subject: "hi|report"})', "transfer({amount: 5})", "transfer({urgent: 1})",
    'transfer({to: "bob", amount: *})', "transfer({amount: 100.0})", 'save({tags: ["red", *]})', 'save({tags: []})',
    'save({tags: ["red|blue"]})', 'save({options: {retries: 1}})', 'save({options: {mode: "fast", dry: *}})', 'save({path: "/etc/.*"})',
    "save({})", "get_inbox({n: 3})", "get_inbox", 'http_get({url: "https://evil"})', 'http_get({url: "https?://[^/]*evil.*"})',
    'run({code: ".*os.system.*", language: "python"})', 'run({code: "import os|eval"})', "save({missing: *})", 'send_mail({to: ""})',
)


def family_tool_pattern(rng):
    kind = rng.choice(("ToolCall", "ToolCall", "ToolOutput"))
    pattern = rng.choice(PATTERNS)
    two, one = f"(x: {kind})\nx is tool:{pattern}", f"(x: {kind}) is tool:{pattern}"
    line = rng.choice((two, Either("D38", one, two))) if rng.random() < 0.2 else two
    tool = pattern.split("(")[0]
    return rules(rng, [line], "x"), traces.trace(rng, tools=[tool, rng.choice(traces.TOOLS)])


def family_regex_for_a_whole_value(rng):
    pattern = rng.choice(('run({code: "import os|eval"})', 'send_mail({subject: "hi|report"})', 'save({tags: ["re|blue"]})', 'transfer({to: "b|ann"})', 'save({options: {mode: "fas|slow"}})', 'http_get({url: "https|http://intranet/"})', 'send_mail({body: ""})'))
    return rules(rng, ["(x: ToolCall)", f"x is tool:{pattern}"], "x"), traces.trace(rng, tools=[pattern.split("(")[0]])


def family_numbers_in_patterns(rng):
    pattern = rng.choice(("transfer({urgent: 1})", "transfer({urgent: 0})", "transfer({amount: 5})", "transfer({amount: 1.0})", "save({options: {retries: 1}})", "save({options: {dry: 0}})", "get_inbox({n: 3})"))
    return rules(rng, ["(x: ToolCall)", f"x is tool:{pattern}"], "x"), traces.trace(rng, tools=[pattern.split("(")[0]])


def family_detectors_asked_twice(rng):
    call = rng.choice(('unicode(x.content, ["Cf", "So"])', "unicode(x)", 'fuzzy_contains(x.content, "secrot", use_semantic=False)', "secrets(x)"))
    name, test = call.split("(")[0], call if call.startswith("fuzzy") else f"any({call})"
    first = Rule('"first"', ("(x: ToolOutput)", test))
    second = Rule('"second"', ("(x: ToolOutput)", test, some_output(rng, "x")))
    return [f"from invariant.detectors import {name}", first, second], traces.trace(rng, pages=[traces.PAGES[7], traces.PAGES[8], traces.PAGES[4]])


def family_not_a_tool(rng):
    body = ["(x: ToolCall)", Not(Cmp(f"x is tool:{rng.choice(PATTERNS)}")), some_call(rng, "x")]
    return rules(rng, body, "x"), traces.trace(rng)


def family_negation(rng):
    declaration, condition = variable(rng)
    return rules(rng, [declaration, Not(condition()), condition()], "x"), traces.trace(rng)


def family_two_operands(rng):
    declaration, condition = variable(rng)
    return rules(rng, [declaration, Many(rng.choice(("and", "or")), (condition(), condition()))], "x"), traces.trace(rng)


def family_many_operands(rng):
    declaration, condition = variable(rng)
    return rules(rng, [declaration, Many(rng.choice(("and", "or")), tuple(condition() for _ in range(rng.randint(3, 4))))], "x"), traces.trace(rng)


def family_mixed_connectives(rng):
    declaration, condition = variable(rng)
    inner = Many(rng.choice(("and", "or")), (condition(), Not(condition()) if rng.random() < 0.4 else condition()))
    items = [condition(), inner]
    rng.shuffle(items)
    return rules(rng, [declaration, Many(rng.choice(("and", "or")), tuple(items))], "x"), traces.trace(rng)


def family_connectives_of_calls(rng):
    calls = ('match("H", x.content)', 'any(find("secret", x.content))', 'match(".*secret", x.content)', "empty(find(\"plan\", x.content))")
    items = [Not(item) if rng.random() < 0.3 else item for item in rng.sample(calls, 3)]
    return rules(rng, ["(x: Message)", 'x.role == "user"', Many(rng.choice(("and", "or")), tuple(items))], "x"), traces.trace(rng)


def family_guard_in_one_line(rng):
    guard = rng.choice((Cmp("x.content is not None"), Cmp("x.content != None"), Cmp('x.role == "user"')))
    return rules(rng, ["(x: Message)", Many("and", (guard, Cmp("len(x.content) > 3")))], "x"), traces.trace(rng, none=True)


def family_guard_in_two_lines(rng):
    guard = rng.choice(("x.content is not None", "x.content != None", 'x.role == "user"'))
    return rules(rng, ["(x: Message)", guard, some_message(rng, "x")], "x"), traces.trace(rng, none=True)


def family_ternary(rng):
    declaration, condition = variable(rng)
    if rng.random() < 0.5:
        return rules(rng, [declaration, Choice(condition(), condition(), condition())], "x"), traces.trace(rng)
    length = Choice("1", Cmp('x.role == "user"'), "len(x.content)")
    return rules(rng, ["(x: Message)", Let("n", length), "n == 1"], "x"), traces.trace(rng)


def family_comprehension(rng):
    body = rng.choice((
        ["(x: Message)", 'words := [w for w in x.content.split(" ") if len(w) > 3]', "len(words) > 1"],
        ["(x: ToolCall)", 'x.function.name == "save"', 'any([t == "red" for t in x.function.arguments.tags])'],
        ["(x: Message)", 'lower := [w.lower() for w in x.content.split(" ")]', '"hello" in lower'],
        ["(x: Message)", 'any(["secret" in c.function.name for c in x.tool_calls])'],
        ["(x: Message)", 'names := [c.function.name for c in x.tool_calls]', '"send_mail" in names'],
        ["(x: ToolCall)", "long := [k for k in x.function.arguments.keys() if len(k) > 4]", "len(long) >= 1"],
    ))
    return rules(rng, body, "x"), traces.trace(rng)


def quantifier(rng, name="c"):
    """Generates a body for a quantifier."""
    kind = rng.choice(tuple(KINDS))
    return (f"({name}: {kind})", KINDS[kind](rng, name))


def family_count(rng):
    bounds = rng.choice(("min=1", "min=2", "max=1", "min=1, max=2", "min=2, max=4", "max=0"))
    return ["from invariant import count", *rules(rng, [Block(f"count({bounds})", quantifier(rng))])], traces.trace(rng)


def family_forall(rng):
    always = (("(c: ToolCall)", 'c.type == "function"'), ("(c: Message)", "c.content != None"), ("(c: ToolOutput)", 'c.role == "tool"'))
    body = rng.choice(always) if rng.random() < 0.5 else quantifier(rng)
    return ["from invariant import forall", *rules(rng, [Block("forall", body)])], traces.trace(rng)


def family_negated_quantifier(rng):
    block = rng.choice((Block("not forall", quantifier(rng)), Block("not count(min=2)", quantifier(rng)), Block("not count(max=0)", quantifier(rng))))
    return ["from invariant import count, forall", *rules(rng, [block])], traces.trace(rng)


def family_quantifier_with_closure(rng):
    body = ("(d: ToolCall)", rng.choice(("x -> d", "d.function.name == x.function.name", "d.id != x.id")), rng.choice((some_call(rng, "d"), 'd.type == "function"')))
    block = Block(rng.choice(("count(min=1)", "count(min=1, max=2)", "forall", "not count(min=1)", "count(max=1)")), body)
    return ["from invariant import count, forall", *rules(rng, ["(x: ToolCall)", rng.choice((some_call(rng, "x"), 'x.type == "function"')), block], "x")], traces.trace(rng)


def family_nested_quantifier(rng):
    inner = Block(rng.choice(("count(min=1)", "not count(min=1)", "count(max=1)")), ("(o: ToolOutput)", "c -> o", some_output(rng, "o")))
    block = Block(rng.choice(("count(min=1)", "forall", "count(min=1, max=3)")), ("(c: ToolCall)", inner))
    return ["from invariant import count, forall", *rules(rng, [block])], traces.trace(rng, most=2)


def family_predicate(rng):
    kind = rng.choice(tuple(KINDS))
    lines = [KINDS[kind](rng, "e") for _ in range(rng.randint(1, 2))]
    body = "\n".join(f"    {line.show(())}" if not isinstance(line, str) else f"    {line}" for line in lines)
    use = rng.choice(("p(x)", Not("p(x)"), Many("and", ("p(x)", KINDS[kind](rng, "x"))), Cmp("p(x) == True")))
    return [f"p(e: {kind}) :=\n{body}", *rules(rng, [f"(x: {kind})", use], "x")], traces.trace(rng)


def family_predicate_with_variables(rng):
    line = rng.choice(('"secret" in m.content', 'm.role == "user"', 'any(find("[A-Z]{4,}", m.content))'))
    body = f"    (m: Message)\n    m -> e\n    {line}"
    return [f"after(e: ToolCall) :=\n{body}", *rules(rng, ["(x: ToolCall)", "after(x)", rng.choice((some_call(rng, "x"), Not(Cmp("x is tool:run"))))], "x")], traces.trace(rng)


def family_predicate_of_two(rng):
    call = Either("D25", "pair(a, other=b)", "pair(a, b)") if rng.random() < 0.3 else "pair(a, b)"
    definition = "pair(one: ToolCall, other: ToolCall) :=\n    one -> other\n    one.function.name == other.function.name"
    return [definition, *rules(rng, ["(a: ToolCall)", "(b: ToolCall)", call], "a", "b")], traces.trace(rng, tools=["send_mail", "send_mail"])


def family_constants(rng):
    names = 'TOOLS := ["send_mail", "transfer"]\nLIMIT := 10\nALL := TOOLS + ["run"]\nWORD := "secret"'
    line = rng.choice(("x.function.name in TOOLS", "x.function.name in ALL", "len(x.id) > LIMIT - 4", "WORD in x.function.arguments.values()", "not empty(TOOLS)"))
    return [names, *rules(rng, ["(x: ToolCall)", line], "x")], traces.trace(rng)


def family_names(rng):
    body = rng.choice((
        ["(x: Message)", "text := x.content", 'size := len(text)', "size > 10", '"e" in text'],
        ["(x: ToolCall)", "name := x.function.name", 'name == "transfer" or name == "save"'],
        ["(x: ToolCall)", "x is tool:transfer", "n := x.function.arguments.amount * 2", "n >= 10"],
        ["(x: ToolOutput)", "c := tool_call(x)", 'c.function.name == "http_get"'],
        ["(x: ToolCall)", "args := x.function.arguments", 'v := args.values()', 'len(args) == 3'],
    ))
    return rules(rng, body, "x"), traces.trace(rng)


def family_variable_in_list(rng):
    body = rng.choice((
        ["(x: ToolCall)", "x is tool:save", "(t: str) in x.function.arguments.tags", 't == "red"'],
        ["(x: ToolCall)", "x is tool:save", "(t: str) in x.function.arguments.tags", "len(t) > 3"],
        ["(x: ToolCall)", "(v: str) in x.function.arguments.values()", '"b" in v'],
        ["(x: ToolCall)", "(v: int) in x.function.arguments.values()", "v > 3"],
        ["(x: ToolCall)", "(v: bool) in x.function.arguments.values()", "v"],
        ["(x: Message)", 'words := x.content.split(" ")', "(w: str) in words", 'w == "secret"'],
        ["(x: Message)", "(c: ToolCall) in x.tool_calls", "c is tool:send_mail"],
        ["(x: ToolCall)", 'lists := [["a", "b"], [x.function.name]]', "(w: str) in lists", "len(w) > 3"],
        ["(x: ToolCall)", "x is tool:save", "(o: dict) in [x.function.arguments.options]", "o.retries >= 1"],
        ["(x: ToolCall)", "x is tool:save", "(v: int) in x.function.arguments.options.values()", "v < 3"],
    ))
    return rules(rng, body, "x"), traces.trace(rng, tools=["save", rng.choice(traces.TOOLS)])


def family_strings(rng):
    line = rng.choice((
        'x.content.lower() == "hello world"', 'x.content.upper() == x.content', '"secret" in x.content.lower()', 'len(x.content.split(" ")) > 3',
        '" ".join(x.content.split("e")) != x.content', 'len(x.content.splitlines()) > 1', 'x.content.strip() == x.content',
        '"{}!".format(x.role) == "user!"', 'x.content.split(" ")[0] == "Hello"', 'x.content.split(" ")[-1] == "World"', 'x.content[0] == "W"',
        'x.content + "!" == "What is new?!"', 'len(x.content * 2) > 60',
    ))
    return rules(rng, ["(x: Message)", rng.choice(('x.role == "user"', "1 == 1")), line], "x"), traces.trace(rng)


def family_dicts(rng):
    line = rng.choice((
        '"to" in x.function.arguments', '"bob" in x.function.arguments.values()', 'x.function.arguments.get("amount", 0) > 4',
        'len(x.function.arguments.keys()) == 3', 'x.function.arguments.get("to", "") == "bob"', '["n", 3] in [[p[0], p[1]] for p in x.function.arguments.items()]',
        '{"a": 1} == {a: 1}', "x.function.arguments == {n: 3}", 'x.function.arguments["n"] == 3', 'x.function.arguments.get("zz") == None',
    ))
    return rules(rng, ["(x: ToolCall)", line], "x"), traces.trace(rng, tools=[rng.choice(("transfer", "get_inbox")), "get_inbox"])


def family_match_and_find(rng):
    pattern = rng.choice((r"secret", r"[A-Z]\\w+", r"(?i)SECRET", r"\\d+", r"^H", r"plan$", r"(a|b)+", r"e", r"[^a-z ]+"))
    pattern = pattern.replace("\\\\", "\\")
    line = rng.choice((f'match(r"{pattern}", x.content)', f'len(find(r"{pattern}", x.content)) > 1', f'any(find("{pattern}", x.content))', f'find(r"{pattern}", x.content)[0] == "secret"'))
    return rules(rng, [f"(x: {rng.choice(('Message', 'ToolOutput'))})", 'x.content != ""', line], "x"), traces.trace(rng)


def family_functions(rng):
    line = rng.choice((
        "len(x.function.arguments) > 1", "min([3, len(x.function.name)]) == 3", "max([1, len(x.function.name)]) > 7", "sum([1, 2, len(x.id)]) > 8",
        "any([x.function.name == t for t in [\"run\", \"save\"]])", "empty(x.function.arguments)", "not empty(x.function.arguments)", "sum([len(k) for k in x.function.arguments.keys()]) > 6",
        "max(1, 2) == 2", "-len(x.id) < -5", "len(x.id) % 2 == 0", "2 ** 3 ** 1 == 8", "7 / 2 == 3.5", "1 + 2 * 3 == 7",
    ))
    return rules(rng, ["(x: ToolCall)", line], "x"), traces.trace(rng)


def family_json(rng):
    line = rng.choice((
        ["data := json_loads(x.content)", "data.n == 3"], ["data := json_loads(x.content)", '"secret" in data.body'],
        ['x.content.title == "news"'], ["any([k == \"n\" for k in json_loads(x.content).keys()])"], ['x.content.lower() != ""'],
    ))
    pages = [traces.PAGES[10]] * 3 + ([traces.PAGES[0]] if rng.random() < 0.4 else []) + (['"text"', "5"] if rng.random() < 0.3 else [])
    return rules(rng, ["(x: ToolOutput)", *line], "x"), traces.trace(rng, pages=pages)


def family_text_of(rng):
    line = rng.choice((
        'any(["secret" in t for t in text(x)])', 'any(["secret" in t for t in text(x.content)])', "len(text(x.content)) > 1", 'any(find("secret", " ".join(text(x))))',
        "len(text([x.content, \"more\"])) > 1", '"secret" in text(x.content)[0]',
    ))
    return rules(rng, [f"(x: {rng.choice(('Message', 'ToolOutput'))})", line], "x"), traces.trace(rng, chunks=True)


def family_chunks(rng):
    body = rng.choice((
        ["(x: Message)", '"secret" in x.content'], ["(x: Message)", '"e" in x.content', 'x.role == "user"'], ["(x: Message)", '"a" in x.content'], ["(x: TextChunk)", '"secret" in x.text'],
        ["(x: Message)", "(t: TextChunk) in x.content", 'len(t.text) > 20'], ["(x: TextChunk)", 'any(find("[A-Z][a-z]+", x.text))'], ["(x: ToolOutput)", '"a" in x.content'],
        ["(x: Message)", "len(x.content) > 1"], ["(x: Message)", 'x.content[0].text == "Hello World"'],
    ))
    return rules(rng, body), traces.trace(rng, chunks=True)


def family_images(rng):
    body = rng.choice((
        ["(x: Image)", '"data:image" in x.image_url.url'], ["(x: Image)", 'x.type == "image_url"'], ["(x: Message)", "len(image(x)) > 0"],
        ["(x: Message)", "(i: Image) in x.content", '"png" in i.image_url.url'], ["(x: Message)", "len(image(x.content)) == 1", 'x.role == "user"'],
    ))
    return rules(rng, body), traces.trace(rng, chunks=True)


def family_bare_calls(rng):
    return rules(rng, ["(x: ToolCall)", some_call(rng, "x")], "x"), traces.trace(rng, bare=True)


def family_bare_calls_with_text(rng):
    events = traces.trace(rng, bare=True)
    for event in events:
        if "role" not in event:
            event["function"]["arguments"] = json.dumps(event["function"]["arguments"])
    return rules(rng, ["(x: ToolCall)", some_call(rng, "x")], "x"), events


def family_offered_tools(rng):
    body = rng.choice((
        ["(t: Tool)", '"IMPORTANT" in t.description'], ["(t: Tool)", 't.name == "send_mail"'], ["(t: Tool)", "len(t.inputSchema) > 1"],
        ["(p: ToolParameter)", 'p.type == "integer"'], ["(t: Tool)", "(p: ToolParameter) in t.inputSchema", 'p.name == "to"', "p.required"],
        ["(t: Tool)", "(c: ToolCall)", "t.name == c.function.name"], ["(t: Tool) -> (c: ToolCall)", "t.name == c.function.name"],
        ["(x: Message)", 'x.role == "user"', '"secret" in x.content'], ["(t: Tool)", "any([p.name == \"n\" for p in t.inputSchema])"],
    ))
    return rules(rng, body), traces.trace(rng, offered=rng.choice(("first", "late")))


def family_server(rng):
    body = rng.choice((
        ["(x: ToolOutput)", 'server(x) == "mail"'], ["(x: Message)", "server(x) == None"], ["(x: ToolOutput)", 'x.metadata.server == "web"'],
        ["(x: Message)", 'x.metadata.get("server", "") == "bank"'], ["(a: ToolOutput)", "(b: ToolOutput)", "a -> b", "server(a) != server(b)"],
        ["(x: ToolOutput)", 'server(x) in ["mail", "web"]', '"secret" in x.content'],
    ))
    return rules(rng, body), traces.trace(rng, server=True)


def family_tool_call_of(rng):
    body = rng.choice((
        ["(x: ToolOutput)", "tool_call(x).function.name == \"http_get\""], ["(x: ToolOutput)", "c := tool_call(x)", "c is tool:send_mail"],
        ["(x: ToolOutput)", "x is tool:http_get", "\"evil\" in tool_call(x).function.arguments.url"], ["(c: ToolCall)", "(o: ToolOutput)", "tool_call(o) == c", some_call(rng, "c")],
    ))
    return rules(rng, body), traces.trace(rng, noid=True)


def family_detectors(rng):
    imports, body = rng.choice((
        ("detectors import secrets", ["(x: ToolOutput)", "any(secrets(x.content))"]), ("detectors import secrets", ["(x: Message)", "any(secrets(x))"]),
        ("detectors import secrets", ["(x: ToolOutput)", '"AWS_ACCESS_KEY" in secrets(x)']), ("detectors import secrets", ["(x: ToolOutput)", "secrets(x.content)"]),
        ("detectors import unicode", ["(x: ToolOutput)", "any(unicode(x))"]), ("detectors import unicode", ["(x: ToolOutput)", 'any(unicode(x.content, ["Cf"]))']),
        ("detectors import unicode", ["(x: ToolOutput)", 'len(unicode(x.content, categories=["So", "Lu"])) > 1']), ("detectors import copyright", ["(x: Message)", "not empty(copyright(x.content))"]),
        ("detectors import fuzzy_contains", ["(x: Message)", 'fuzzy_contains(x.content, "secrot", use_semantic=False)']),
        ("detectors import fuzzy_contains", ["(x: ToolOutput)", 'fuzzy_contains(x.content, "instructons", query_similarity_threshold=0.7, use_semantic=False)']),
        ("parsers import html_code", ["(x: ToolOutput)", "len(html_code(x).links) > 0"]), ("parsers import html_code", ["(x: ToolOutput)", '"hidden order" in html_code(x).alt_texts']),
        ("parsers.html import links", ["(x: ToolOutput)", "len(links(x)) > 1"]), ("detectors import secrets", ["(x: ToolOutput) -> (c: ToolCall)", "any(secrets(x.content))", "c is tool:send_mail"]),
    ))
    events = traces.trace(rng)
    if "copyright" in imports:
        events.append({"role": "user", "content": traces.LICENCE})
    return [f"from invariant.{imports}", *rules(rng, body)], events


def family_python_code(rng):
    body = rng.choice((
        ['"os" in code.imports'], ['"eval" in code.builtins'], ["code.syntax_error"], ['"os.system" in code.function_calls'], ["len(code.imports) > 0", "not code.syntax_error"],
        ['any([b in ["open", "eval"] for b in code.builtins])'],
    ))
    lines = ["(x: ToolCall)", "x is tool:run", "code := python_code(x.function.arguments.code)", *body]
    return ["from invariant.detectors.code import python_code", *rules(rng, lines)], traces.trace(rng, tools=["run", "run"])


def family_parameters(rng):
    body = rng.choice((
        ["(x: ToolCall)", "x.function.name in input.forbidden"], ["(x: Message)", "input.word in x.content"], ["(x: ToolCall)", "len(x.function.arguments) > input.most"],
        ["input.strict", "(x: ToolCall)", some_call(rng, "x")], ["(x: ToolCall)", "x.function.name in input.rules.names"], ["(x: ToolCall)", "x.function.name == input.missing"],
    ))
    given = {"forbidden": ["send_mail", "run"], "word": "secret", "most": rng.randrange(3), "strict": rng.random() < 0.7, "rules": {"names": ["transfer"]}}
    return rules(rng, body), traces.trace(rng), given


def family_in_and_ranges(rng):
    line = rng.choice(('"secret" in x.content', '"e" in x.content', '"." in x.content', '"l.n" in x.content', '"a+b" in x.content', '"ö" in x.content', '"🎉" in x.content', '"a" in x.content', '"o W" in x.content', '"" in x.content'))
    return rules(rng, [f"(x: {rng.choice(('Message', 'ToolOutput'))})", line], "x"), traces.trace(rng)


def family_metacharacters(rng):
    word = rng.choice(("(", "[", "(it)", "[now]", "a+b (in", "*", "?", "(really)", "12.50", "total=19.50", "a?b=1"))
    return rules(rng, [f"(x: {rng.choice(('Message', 'ToolOutput'))})", f'"{word}" in x.content'], "x"), traces.trace(rng)


def family_missing_key(rng):
    line = rng.choice(("x.function.arguments.to == \"bob\"", "x.function.arguments.amount > 10", 'x.function.arguments["to"] != "bob"', "x.function.arguments.zz == None", "x.function.arguments.options.mode == \"fast\"", 'x.function.arguments.tags[0] == "red"'))
    body = ["(x: ToolCall)", line] if rng.random() < 0.7 else ["(x: ToolCall)", "x is tool:transfer", line]
    return rules(rng, body, "x"), traces.trace(rng, tools=[rng.choice(traces.TOOLS), "transfer"])


def family_none(rng):
    line = rng.choice(('x.content.lower() == "i will do that."', "len(x.content) > 3", 'match("I", x.content)', '"will" in x.content', "x.content == None", "x.content is None", "x.content is not None", 'x.content > "A"', 'x.content[0] == "I"'))
    return rules(rng, ["(x: Message)", 'x.role == "assistant"', line], "x"), traces.trace(rng, none=True)


def family_lost_answers(rng):
    body = rng.choice((["(x: ToolOutput)", "x is tool:http_get"], ["(x: ToolOutput)", "tool_call(x).function.name == \"run\""], ["(x: ToolOutput)", '"secret" in x.content'], ["(x: ToolOutput)", Not(Cmp("x is tool:send_mail"))], ["(x: ToolOutput) -> (c: ToolCall)", "x is tool:http_get"]))
    return rules(rng, body, "x"), traces.trace(rng, lost=True)


def family_bad_types(rng):
    body = rng.choice((["(x: ToolCall)", "x.content == \"a\""], ["(x: Message)", "x.function.name == \"a\""], ["(x: ToolCall)", "x is tool:transfer", 'x.function.arguments.amount > "a"'], ["(x: ToolCall)", 'x.function.name + 1 == "a"'], ["(x: Message)", "x.content.encode() == 1"], ["(s: str)", "(x: ToolCall)", "s -> x"], ["(x: ToolCall)", "x.id.zz == 1"], ["(f: Function)", "(x: ToolCall)", "f -> x"]))
    return rules(rng, body), traces.trace(rng)


def family_several_rules(rng):
    parts = []
    for _ in range(rng.randint(2, 4)):
        declaration, condition = variable(rng)
        parts += rules(rng, [declaration, condition(), condition()], "x")
    return parts, traces.trace(rng)


def family_several_rules_with_an_error(rng):
    parts = family_several_rules(rng)[0]
    wrong = rng.choice((["(x: ToolCall)", "x.function.arguments.nowhere == 1"], ["(x: Message)", "x.nothing == 1"], ["(x: ToolCall)", "x.function.name == input.missing"], ["(x: Message)", '"(" in x.content']))
    parts.insert(rng.randrange(len(parts) + 1), Rule('"fails"', tuple(wrong)))
    return parts, traces.trace(rng)


def family_no_boolean(rng):
    line = rng.choice(("x.function.name", "[x.function.name]", "len(x.function.arguments)", "x.function.arguments", "None", "0", '""', "[1]", 'find("mail", x.function.name)', Many("or", (Cmp('"zz" in x.function.name'), "len(x.id)"))))
    return rules(rng, ["(x: ToolCall)", line] + ([some_call(rng, "x")] if rng.random() < 0.5 else []), "x"), traces.trace(rng)


def family_declarations_only(rng):
    lines = rng.sample(("(x: Message)", "(y: ToolCall)", "(z: ToolOutput)"), rng.randint(1, 2))
    body = lines if rng.random() < 0.7 else [*lines, rng.choice(("1 == 1", "True", '(s: str) in ["a", "b"]'))]
    return [Rule(text(rng), tuple(body))], rng.choice(([], traces.trace(rng, most=2)))


def family_unneeded_variable(rng):
    (a, on_a), (b, _) = variable(rng, "a"), variable(rng, "b")
    body = rng.choice(([a, b, on_a()], [a, on_a(), b], [a, on_a(), '(w: str) in ["p", "q"]'], [a, on_a(), "(w: str) in []"]))
    return rules(rng, body, "a"), traces.trace(rng, most=2)


def family_empty_trace(rng):
    parts = rng.choice((family_count, family_forall, family_one_variable, family_flow, family_negated_quantifier))(rng)[0]
    return parts, []


def family_no_variables(rng):
    body = rng.choice((["1 == 1"], ["True"], ["2 > 3"], ['"a" in "abc"'], ["len([1, 2]) == 2"], ['x := "a"', 'x == "a"'], ['match("a", "abc")'], ["input.data != None"]))
    return [Rule(text(rng), tuple(body))], traces.trace(rng, most=1)


def family_scalars(rng):
    body = rng.choice((["(s: str)", '"secret" in s'], ["(s: str)", 's == "user"'], ["(f: Function)", 'f.name == "save"'], ["(s: str)", "len(s) > 40"], ["(f: Function)", '"to" in f.arguments']))
    return rules(rng, body), traces.trace(rng, most=2)


def family_lists(rng):
    line = rng.choice(('["red"] in x.function.arguments.tags', 'x.function.arguments.tags contains_only ["red", "blue", "green"]', '["red"] contains_only x.function.arguments.tags', 'any(["red", "blue"] in x.function.arguments.tags)', 'x.function.arguments.tags == []', '"red" in x.function.arguments.tags', "len(x.function.arguments.tags + [1]) > 2", 'not ("red" in x.function.arguments.tags)'))
    return rules(rng, ["(x: ToolCall)", "x is tool:save", line], "x"), traces.trace(rng, tools=["save", "save"])


def family_raised_values(rng):
    raised, declaration = rng.choice((('Violation("a" + x.role)', "(x: Message)"), ('Violation("call", name=x.function.name)', "(x: ToolCall)"), ("PolicyViolation(x.content)", "(x: ToolOutput)"), ('Violation("n", n=len(x.content), first=True)', "(x: Message)"), ('Violation("event", x)', "(x: ToolCall)"), (Either("D11", 'Violation(f"role {x.role}!")', 'Violation(("role " + x.role) + "!")'), "(x: Message)"), ('Violation("a", "b", 3, 1.5)', "(x: ToolCall)"), ('Violation("list", [1, 2])', "(x: ToolCall)"), ('Violation("map", x.function.arguments)', "(x: ToolCall)")))
    kind = declaration.split(": ")[1].rstrip(")")
    return [Rule(raised, (declaration, KINDS[kind](rng, "x")))], traces.trace(rng)


def family_escapes(rng):
    line = rng.choice((r'"\n" in x.content', r'"one\nline" in x.content', r'len(x.content.split("\n")) > 1', r'match("zero.width\s", x.content)', r'any(find("two:\s\w+", x.content))', r'"say \"no\"" in x.content', r'x.content == "line one\nline two: secret\nline three"', r'any(find("one\nline", x.content))'))
    return rules(rng, ["(x: ToolOutput)", line], "x"), traces.trace(rng, pages=[traces.PAGES[9], traces.PAGES[8], traces.PAGES[0]])


def family_line_in_parentheses(rng):
    declaration, condition = variable(rng)
    first, second = condition(), condition()
    line = Many("and", (Many("or", (first, second)), condition()))
    return rules(rng, [declaration, condition(), line], "x"), traces.trace(rng)


def family_text_arguments(rng):
    return rules(rng, ["(x: ToolCall)", some_call(rng, "x")], "x"), traces.trace(rng, text_arguments=True)


def families():
    """Returns the families by name."""
    return {name.removeprefix("family_"): make for name, make in globals().items() if name.startswith("family_")}


def one(seed, name, index):
    """Returns the `index`-th pair of a family."""
    rng = random.Random(f"{VERSION}/{seed}/{name}/{index}")
    parts, messages, *rest = families()[name](rng)
    return {
        "id": f"{name}/{index}",
        "construct": name,
        "policy": policy(parts),
        "variants": variants(parts),
        "messages": messages,
        "parameters": rest[0] if rest else {},
    }


def pairs(seed, each):
    """Returns all pairs: `each` of every family, without duplicate texts."""
    seen, made = set(), []
    for name in families():
        found, index = 0, 0
        while found < each and index < 4 * each:
            pair = one(seed, name, index)
            index += 1
            key = json.dumps([pair["policy"], pair["messages"], pair["parameters"]])
            if key not in seen:
                seen.add(key)
                made.append(pair)
                found += 1
    return made


def main():
    """Prints the pairs as JSON lines, or their number for each construct."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=1, help="which pairs (default: 1)")
    parser.add_argument("--each", type=int, default=14, help="pairs of each construct (default: 14)")
    parser.add_argument("--count", action="store_true", help="only count them")
    options = parser.parse_args()
    made = pairs(options.seed, options.each)
    if options.count:
        for name, number in collections.Counter(pair["construct"] for pair in made).items():
            print(f"{number:5} {name}")
        print(f"{len(made):5} pairs")
    else:
        for pair in made:
            print(json.dumps(pair))


if __name__ == "__main__":
    main()
