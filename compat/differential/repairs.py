"""The defects of the original, each as a repair that can be switched on while the original runs.

A repair is a wrapper around one function of invariant-ai that changes nothing unless the defect shows; when it shows,
the repair notes its number in `fired`. A difference between the original and Flowgate is put down to a set of defects
only if the original with exactly these repairs gives what Flowgate gives.
"""

import ast as syntax
import asyncio
import contextvars
import functools
import hashlib
import inspect
import json
import re
import types

import regex
from invariant.analyzer.language import ast
from invariant.analyzer.runtime import evaluation, function_cache, nodes, patterns, rule
from invariant.analyzer.runtime import input as runtime_input
from invariant.analyzer.runtime.evaluation import NOP, Interpreter, Unknown
from invariant.analyzer.runtime.evaluation_context import PolicyParameters
from invariant.analyzer.runtime.runtime_errors import ExcessivePolicyError, InvariantAttributeError
from invariant.analyzer.runtime.utils.secrets import SecretsAnalyzer
from invariant.analyzer.stdlib.invariant.parsers.html import HiddenDataParser

METHODS = {"strip", "lower", "upper", "splitlines", "split", "format", "join"}
NOTHING = (TypeError, AttributeError, KeyError, IndexError)


def marks(interpreter):
    """What an interpreter and those around it have noted so far."""
    counts = []
    while interpreter is not None:
        counts.append((interpreter, len(interpreter.ranges)))
        interpreter = interpreter.parent
    return counts


def forget(counts):
    """Drops what the innermost interpreter noted since `marks`, here and around it; says whether there was anything."""
    inner, length = counts[0]
    dropped = inner.ranges[length:]
    for interpreter, _ in counts:
        for noted in dropped:
            for index in range(len(interpreter.ranges) - 1, -1, -1):
                if interpreter.ranges[index] == noted:
                    del interpreter.ranges[index]
                    break
    return bool(dropped)


def declared(node, found=None):
    """The variables that a body declares, outside of the quantifiers in it."""
    found = [] if found is None else found
    if isinstance(node, (list, tuple)):
        for item in node:
            declared(item, found)
    elif isinstance(node, ast.TypedIdentifier):
        found.append(node.id)
    elif isinstance(node, ast.Node) and not isinstance(node, ast.Quantifier):
        for name, value in vars(node).items():
            if name not in ("id", "location", "scope", "parent", "type"):
                declared(value, found)
    return found


def mentioned(node, found=None):
    """The variables that are used outside of their declarations."""
    found = set() if found is None else found
    if isinstance(node, (list, tuple)):
        for item in node:
            mentioned(item, found)
    elif isinstance(node, ast.BinaryExpr) and node.op in ("->", "~>"):
        found.update(side.id for side in (node.left, node.right))
    elif isinstance(node, ast.TypedIdentifier):
        pass
    elif isinstance(node, ast.Identifier):
        found.add(node.id)
    elif isinstance(node, ast.Node):
        for name, value in vars(node).items():
            if name not in ("id", "location", "scope", "parent", "type"):
                mentioned(value, found)
    return found


class Repairs:
    """Switches repairs on around one analysis."""

    def __init__(self, numbers):
        self.numbers = set(numbers)
        self.fired = set()
        self.failures = 0
        self._undo = []

    def __enter__(self):
        for number in sorted(self.numbers & set(REPAIRS)):
            REPAIRS[number](self, number)
        return self

    def __exit__(self, *_):
        for owner, name, old in reversed(self._undo):
            setattr(owner, name, old)

    def note(self, number):
        """The defect showed."""
        self.fired.add(number)

    def put(self, owner, name, value):
        """Replaces an attribute until the analysis is over."""
        self._undo.append((owner, name, owner.__dict__[name]))
        setattr(owner, name, value)


def rule_errors_stay_apart(repairs, number):
    """D3: a rule that fails loses the findings of the others."""
    apply = rule.Rule.apply

    async def isolated(self, input_data, evaluation_context=None):
        try:
            return await apply(self, input_data, evaluation_context)
        except Exception:
            repairs.failures += 1
            repairs.note(number)
            return rule.RuleApplication(self, [])

    repairs.put(rule.Rule, "apply", isolated)


def assignment_errors_stay_apart(repairs, number):
    """D30: an error for one assignment loses the matches of all others of the same rule."""
    evaluate, apply = Interpreter.eval, rule.Rule.apply
    bodies = set()

    async def applied(self, *args, **kwargs):
        bodies.add(id(self.condition))
        return await apply(self, *args, **kwargs)

    async def isolated(*args, **kwargs):
        try:
            return await evaluate(*args, **kwargs)
        except Exception:
            if not kwargs.get("return_ranges") or id(args[0]) not in bodies:
                raise
            repairs.failures += 1
            repairs.note(number)
            return False, {}, []

    repairs.put(rule.Rule, "apply", applied)
    repairs.put(Interpreter, "eval", staticmethod(isolated))


def text_in_text_is_literal(repairs, number):
    """D4: the left side of `in` is run as a regular expression over the right side."""

    def finditer(left, right):
        literal = list(re.finditer(re.escape(left), right))
        try:
            same = [m.span() for m in re.finditer(left, right)] == [m.span() for m in literal]
        except re.error:
            same = False
        if not same:
            repairs.note(number)
        return literal

    repairs.put(evaluation, "re", types.SimpleNamespace(finditer=finditer))


def absent(obj, key):
    """Whether `obj` is a map, or a text that is a map in JSON, and lacks `key`."""
    if isinstance(obj, str):
        try:
            obj = json.loads(obj)
        except ValueError:
            return False
        return not isinstance(obj, dict) or key not in obj
    return isinstance(obj, dict) and key not in obj


def missing_keys_are_none(repairs, number):
    """D5: asking for a key that is not there ends the analysis."""
    member, index = Interpreter.visit_MemberAccess, Interpreter.visit_KeyAccess

    async def visit_member(self, node):
        try:
            return await member(self, node)
        except Exception:
            if not absent(await self.visit(node.expr), node.member):
                raise
            repairs.note(number)
            return None

    async def visit_index(self, node):
        try:
            return await index(self, node)
        except Exception:
            obj, key = await self.visit(node.expr), await self.visit(node.key)
            past = isinstance(obj, (str, list, nodes.Contents)) and isinstance(key, int)
            if not past and not absent(obj, key):
                raise
            repairs.note(number)
            return None

    repairs.put(Interpreter, "visit_MemberAccess", visit_member)
    repairs.put(Interpreter, "visit_KeyAccess", visit_index)


def all_variables_are_bound(repairs, number):
    """D6: a body that is true before its variables have values fires without them."""
    assignments = Interpreter.assignments

    def bound(expr_or_list, input_data, globals, verbose=False, extra_check=None, evaluation_context=None):
        names = declared(expr_or_list)

        async def check(values, context):
            enough = extra_check is None or await extra_check(values, context)
            if enough and any(name not in values and name not in globals for name in names):
                repairs.note(number)
                return False
            return enough

        return assignments(expr_or_list, input_data, globals, verbose, check, evaluation_context)

    repairs.put(Interpreter, "assignments", staticmethod(bound))


def bodies_are_judged_by_truth(repairs, number):
    """D7: a line that gives something other than True or False keeps its rule from ever firing."""

    async def conjunction(self, exprs):
        results = []
        for expr in exprs:
            result = await self.visit(expr)
            if result is not NOP and result is not Unknown and not isinstance(result, bool):
                repairs.note(number)
                result = bool(result)
            results.append(result)
            if result is False:
                break
        return results

    repairs.put(Interpreter, "visit_ShortCircuitedConjunction", conjunction)


def unneeded_variables_do_not_multiply(repairs, number):
    """D8: a variable that no condition uses multiplies the findings."""
    apply = rule.Rule.apply

    async def once(self, input_data, evaluation_context=None):
        result = await apply(self, input_data, evaluation_context)
        needed = mentioned(self.condition) | mentioned(self.action.exception_or_constructor)
        kept = {}
        for model in result.models:
            key = tuple(sorted((k.name, id(v)) for k, v in model.variable_assignments.items() if k in needed))
            kept.setdefault(key, model)
        if len(kept) < len(result.models):
            repairs.note(number)
        result.models = list(kept.values())
        return result

    repairs.put(rule.Rule, "apply", once)


def patterns_match_the_whole_value(repairs, number):
    """D10: `$` is pasted behind a pattern, so alternatives are half anchored and a last newline passes."""

    def match(pattern, text, flags=0):
        given = re.match(pattern, text, flags)
        whole = re.fullmatch(pattern[:-1], text, flags)
        if bool(given) != bool(whole):
            repairs.note(number)
        return whole

    repairs.put(patterns, "re", types.SimpleNamespace(match=match, DOTALL=re.DOTALL))


def unescaped(node):
    """The value of a literal with its escapes read, as far as a regular expression would not read them the same."""
    if node.modifier is not None:
        return node.value
    return re.sub(r"\\([nrt\\])", lambda found: {"n": "\n", "r": "\r", "t": "\t", "\\": "\\"}[found.group(1)], node.value)


def escapes_are_read(repairs, number):
    """D12: escapes in a text stay as they are written."""

    def noted(node):
        value = unescaped(node)
        if value != node.value:
            repairs.note(number)
        return value

    async def visit(self, node):
        return noted(node)

    def constant(self, node):
        return patterns.ConstantMatcher(noted(node))

    repairs.put(Interpreter, "visit_StringLiteral", visit)
    repairs.put(patterns.MatcherFactory, "visit_StringLiteral", constant)


def numbers_are_not_booleans(repairs, number):
    """D14: the constant 1 in a pattern matches True, and 0 matches False."""
    match = patterns.ConstantMatcher.match

    async def strict(self, value):
        result = await match(self, value)
        if result and isinstance(value, bool) is not isinstance(self.value, bool):
            repairs.note(number)
            return False
        return result

    repairs.put(patterns.ConstantMatcher, "match", strict)


def connectives_stop_early(repairs, number):
    """D15: `and` and `or` evaluate both sides, so the right one fails though the left one has decided."""
    binary = Interpreter.visit_BinaryExpr

    async def lazy(self, node):
        if node.op not in ("and", "or"):
            return await binary(self, node)
        left = await self.visit(node.left)
        if left is Unknown or bool(left) is (node.op == "and"):
            return await binary(self, node)
        before = marks(self)
        try:
            await self.visit(node.right)
            if forget(before):
                repairs.note(number)
        except Exception:
            forget(before)
            repairs.note(number)
        return left

    repairs.put(Interpreter, "visit_BinaryExpr", lazy)


def answers_without_a_call(repairs, number):
    """D16: an answer whose call is unknown ends the analysis when a rule asks for its tool."""
    match, call = patterns.ToolCallMatcher.match, rule.InputEvaluationContext.acall_function

    async def tolerant(self, value):
        try:
            return await match(self, value)
        except AttributeError:
            repairs.note(number)
            return False

    async def called(self, func, *args, **kwargs):
        try:
            return await call(self, func, *args, **kwargs)
        except AttributeError:
            if getattr(func, "__name__", "") != "tool_call":
                raise
            repairs.note(number)
            return None

    repairs.put(patterns.ToolCallMatcher, "match", tolerant)
    repairs.put(rule.InputEvaluationContext, "acall_function", called)


def flow_of_other_values(repairs, number):
    """D19: `->` and `~>` between things that are no events end the analysis."""
    for name in ("has_flow", "is_parent"):
        ask = runtime_input.Input.__dict__[name]

        def answered(self, a, b, ask=ask):
            try:
                return ask(self, a, b)
            except KeyError:
                repairs.note(number)
                return False

        repairs.put(runtime_input.Input, name, answered)


def bad_json_is_none(repairs, number):
    """D20: `json_loads` of a text that is not JSON ends the analysis, with a NameError."""
    call = rule.InputEvaluationContext.acall_function

    async def called(self, func, *args, **kwargs):
        try:
            return await call(self, func, *args, **kwargs)
        except NameError:
            repairs.note(number)
            return None

    repairs.put(rule.InputEvaluationContext, "acall_function", called)


def methods_of_json_texts(repairs, number):
    """D21: a text that happens to be JSON has no methods: `.lower()` is looked up as a key."""
    member = Interpreter.visit_MemberAccess

    async def visit(self, node):
        if node.member in METHODS:
            obj = await self.visit(node.expr)
            if isinstance(obj, str) and absent(obj, node.member):
                repairs.note(number)
                return getattr(obj, node.member)
        return await member(self, node)

    repairs.put(Interpreter, "visit_MemberAccess", visit)


def none_has_no_parts(repairs, number):
    """D23: a member, an index, a call or a comparison of None ends the analysis."""

    def tolerant(name, operands, fallback):
        visit = getattr(Interpreter, name)

        async def visited(self, node):
            try:
                return await visit(self, node)
            except NOTHING:
                values = [await self.visit(operand) for operand in operands(node)]
                if None not in values:
                    raise
                repairs.note(number)
                return fallback(node)

        repairs.put(Interpreter, name, visited)

    ordered = {"<", ">", "<=", ">="}
    tolerant("visit_MemberAccess", lambda node: [node.expr], lambda node: None)
    tolerant("visit_KeyAccess", lambda node: [node.expr], lambda node: None)
    tolerant("visit_FunctionCall", lambda node: [node.name, *node.args], lambda node: None)
    tolerant("visit_BinaryExpr", lambda node: [node.left, node.right], lambda node: False if node.op in ordered else None)


def nothing_is_a_member(repairs, number):
    """D53: None is in no list, and so a rule that needs a value which is missing does not fire."""
    visit = Interpreter.visit_BinaryExpr

    async def visited(self, node):
        if node.op in ("in", "not in") and await self.visit(node.left) is None:
            repairs.note(number)
            raise TypeError("there is no value to look for")
        return await visit(self, node)

    repairs.put(Interpreter, "visit_BinaryExpr", visited)


def marks_stay_with_their_match(repairs, number):
    """D24: what `find` marks for one match is reported for another, because all of them share one stack."""
    current = contextvars.ContextVar("stack", default=())
    running, shared = [], []
    mark = Interpreter.mark

    class Stack:
        """A stack for every task; the original has one list for all."""

        def get(self):
            return self

        def __len__(self):
            return len(current.get())

        def __getitem__(self, index):
            if shared and shared[-1] is not current.get()[-1]:
                repairs.note(number)
            return current.get()[index]

        def append(self, item):
            current.set((*current.get(), item))
            running.append(asyncio.current_task())
            shared.append(item)

        def pop(self):
            current.set(current.get()[:-1])
            running.remove(asyncio.current_task())
            shared.pop()

    def marked(self, *args, **kwargs):
        if len({id(task) for task in running}) > 1:
            repairs.note(number)
        mark(self, *args, **kwargs)

    repairs.put(evaluation, "INTERPRETER_STACK", Stack())
    repairs.put(Interpreter, "mark", marked)


def spans(ranges):
    """Those of some ranges that are parts of texts, for comparison."""
    return sorted((r.object_id, r.start, r.end) for r in ranges if r.start is not None)


def failed_attempts_leave_no_marks(repairs, number):
    """D26: what a predicate or a quantifier marked for assignments that do not satisfy it is reported with the match."""
    quantify = Interpreter.visit_Quantifier

    async def quantified(self, node):
        before = marks(self)
        result = await quantify(self, node)
        if result is False and forget(before):
            repairs.note(number)
        return result

    async def predicate(self, node, args, **kwargs):
        before = marks(self)
        given = {p.name.id: value for p, value in zip(node.name.params, args)} | kwargs
        globals, found = {**self.globals, **given}, None
        source = self.evaluation_context.get_input()
        async for model in Interpreter.assignments(node.value, source, globals, evaluation_context=self.evaluation_context):
            found = found or (model if model.result is True else None)
        noted = spans(before[0][0].ranges[before[0][1] :])
        wanted = [r for r in found.ranges if r.start is not None] if found else []
        if set(noted) != set(spans(wanted)):
            repairs.note(number)
        forget(before)
        for interpreter, _ in before:
            interpreter.ranges.extend(wanted)
        return found is not None

    repairs.put(Interpreter, "visit_Quantifier", quantified)
    repairs.put(Interpreter, "visit_PredicateCall", predicate)


def caching_keeps_marks(repairs, number):
    """D28: a cached function marks nothing the second time."""

    async def uncached(self, function, *args, **kwargs):
        if hasattr(function, "__invariant_cache__"):
            key = self.call_key(function, args, kwargs)
            if await self.get(key) is not None:
                repairs.note(number)
            await self.set(key, True)
        return await function_cache.call_either_way(function, *args, **kwargs)

    repairs.put(function_cache.FunctionCache, "acall", uncached)


def bare_calls_may_have_text(repairs, number):
    """D29: a tool call that is an event of its own must not have its arguments as text."""
    parse = runtime_input.Input.parse_input

    def parsed(self, events):
        changed = []
        for event in events:
            function = event.get("function") if isinstance(event, dict) and "role" not in event else None
            if function and isinstance(function.get("arguments"), str):
                repairs.note(number)
                event = {**event, "function": {**function, "arguments": json.loads(function["arguments"])}}
            changed.append(event)
        return parse(self, changed)

    repairs.put(runtime_input.Input, "parse_input", parsed)


def chunks_have_places(repairs, number):
    """D31: a text found in a chunk of a content has no place."""
    binary = Interpreter.visit_BinaryExpr

    async def visit(self, node):
        result = await binary(self, node)
        if node.op == "in" and result is True and not isinstance(node.left, ast.TypedIdentifier):
            left, right = await self.visit(node.left), await self.visit(node.right)
            if isinstance(right, nodes.Contents) and isinstance(left, str):
                repairs.note(number)
                for text in right.text():
                    for found in re.finditer(re.escape(left), text) if left else ():
                        self.mark(text, found.start(), found.end())
        return result

    repairs.put(Interpreter, "visit_BinaryExpr", visit)


def unbound_lines_wait(repairs, number):
    """D32: a line is evaluated before the variables above it have values, and may fail where nothing matches."""
    conjunction = Interpreter.visit_ShortCircuitedConjunction

    async def waiting(self, exprs):
        names = declared(exprs)
        try:
            return await conjunction(self, exprs)
        except Exception:
            known = {**self.variable_store, **dict(self.globals.items())}
            if all(name in known for name in names) or not self.variable_domains:
                raise
            repairs.note(number)
            return [Unknown]

    repairs.put(Interpreter, "visit_ShortCircuitedConjunction", waiting)


def derived_values_have_no_place(repairs, number):
    """D33: a value that `:=` names is looked for in the whole trace, as if it were an event."""
    assignments = Interpreter.assignments

    async def without(*args, **kwargs):
        names = set(declared(args[0]))
        async for model in assignments(*args, **kwargs):
            derived = {str(id(v)) for k, v in model.variable_assignments.items() if k not in names}
            kept = [r for r in model.ranges if r.start is not None or r.object_id not in derived]
            if len(kept) < len(model.ranges):
                repairs.note(number)
            model.ranges[:] = kept
            yield model

    repairs.put(Interpreter, "assignments", staticmethod(without))


def contains_only_looks_the_right_way(repairs, number):
    """D35: `a contains_only b` asks whether all of b is in a, not whether all of a is in b."""
    binary = Interpreter.visit_BinaryExpr

    async def visit(self, node):
        result = await binary(self, node)
        if node.op != "contains_only" or result is Unknown:
            return result
        left, right = await self.visit(node.left), await self.visit(node.right)
        turned = all(item in right for item in left)
        if turned != result:
            repairs.note(number)
        return turned

    repairs.put(Interpreter, "visit_BinaryExpr", visit)


class Answers(list):
    """Answers to one question about several things."""

    def __bool__(self):
        return any(self)


def lists_are_items(repairs, number):
    """D36: `[..] in list` gives a list of answers, one for each item, though the list itself may be an item."""
    binary = Interpreter.visit_BinaryExpr

    async def visit(self, node):
        result = await binary(self, node)
        if node.op == "in" and isinstance(result, list):
            repairs.note(number)
            return await self.visit(node.left) in await self.visit(node.right) or Answers(result)
        return result

    repairs.put(Interpreter, "visit_BinaryExpr", visit)


def count_counts_everything(repairs, number):
    """D22: `count` stops as soon as its answer is clear, so that later matches have no places."""
    call = Interpreter.visit_FunctionCall

    def counting(quantifier):
        async def evaluated(input_data, body, globals, evaluation_context):
            matches, interpreter = 0, Interpreter.current()
            async for model in Interpreter.assignments(body, input_data, globals, evaluation_context=evaluation_context):
                if model.result:
                    matches += 1
                    interpreter.ranges.extend(model.ranges)
            least, most = quantifier.min, quantifier.max
            if matches > (most if most is not None else (least or matches)):
                repairs.note(number)
            return (least is None or matches >= least) and (most is None or matches <= most)

        return evaluated

    async def visit(self, node):
        result = await call(self, node)
        if type(result).__name__ == "count":
            result.eval = counting(result)
        return result

    repairs.put(Interpreter, "visit_FunctionCall", visit)


def numbers_are_equal_by_value(repairs, number):
    """D27: the constant 100.0 in a pattern does not match 100, nor 100 the value 100.0."""
    match = patterns.ConstantMatcher.match

    async def by_value(self, value):
        result = await match(self, value)
        numbers = all(isinstance(side, (int, float)) and not isinstance(side, bool) for side in (value, self.value))
        if numbers and result != (value == self.value):
            repairs.note(number)
            return value == self.value
        return result

    repairs.put(patterns.ConstantMatcher, "match", by_value)


def findings_may_say_anything(repairs, number):
    """D37: a list or None as an argument of a finding ends the analysis, and a map loses all that is in it."""
    call = rule.InputEvaluationContext.acall_function

    def shown(arg):
        if arg is None:
            return "None"
        return json.dumps(arg, ensure_ascii=False, separators=(",", ":")) if isinstance(arg, (list, dict)) else arg

    async def called(self, func, *args, **kwargs):
        if getattr(func, "__name__", "") not in ("Violation", "PolicyViolation"):
            return await call(self, func, *args, **kwargs)
        if any(shown(arg) is not arg for arg in (*args, *kwargs.values())):
            repairs.note(number)
        return await call(self, func, *map(shown, args), **{name: shown(arg) for name, arg in kwargs.items()})

    repairs.put(rule.InputEvaluationContext, "acall_function", called)


def lists_wait_for_their_items(repairs, number):
    """D39: a list with something in it that has no value yet counts as known, and has no items of any type."""
    binary = Interpreter.visit_BinaryExpr

    async def visit(self, node):
        if node.op == "in" and type(node.left) is ast.TypedIdentifier and self._is_unknown(await self.visit(node.right)):
            repairs.note(number)
            return True
        return await binary(self, node)

    repairs.put(Interpreter, "visit_BinaryExpr", visit)


def unknown_members_are_none(repairs, number):
    """D40: a member that a value cannot have ends the analysis."""
    member = Interpreter.visit_MemberAccess

    async def visit(self, node):
        try:
            return await member(self, node)
        except (*NOTHING, ExcessivePolicyError, InvariantAttributeError):
            obj = await self.visit(node.expr)
            if obj is None or absent(obj, node.member) or type(obj) is PolicyParameters or node.member in METHODS:
                raise
            repairs.note(number)
            return None

    repairs.put(Interpreter, "visit_MemberAccess", visit)


def forall_speaks_of_something(repairs, number):
    """D41: `forall` holds where no event matches it."""
    quantify = Interpreter.visit_Quantifier

    async def visit(self, node):
        result = await quantify(self, node)
        if result is True and await universal(self, node):
            names = declared(node.body)
            if not any(all(name in model.variable_assignments for name in names) for model in await models(self, node)):
                repairs.note(number)
                return False
        return result

    repairs.put(Interpreter, "visit_Quantifier", visit)


async def universal(interpreter, node):
    """Whether a quantifier is `forall`."""
    quantifier = await interpreter.visit(node.quantifier_call)
    return (quantifier if isinstance(quantifier, type) else type(quantifier)).__name__ == "forall"


async def models(interpreter, node):
    """All assignments of a quantifier's body."""
    globals = {**interpreter.globals, **interpreter.variable_store}
    context = interpreter.evaluation_context
    return [m async for m in Interpreter.assignments(node.body, context.get_input(), globals, evaluation_context=context)]


def variables_reach_into_calls(repairs, number):
    """D42: a variable over texts, numbers, lists or maps does not range over what calls say."""
    select = runtime_input.Selectable.select

    def selected(self, selector, data="<root>"):
        if type(data) is nodes.Function and self.type_name(selector) != "Function":
            found = select(self, selector, data.arguments)
            if found:
                repairs.note(number)
            return found
        return select(self, selector, data)

    repairs.put(runtime_input.Selectable, "select", selected)


def comprehensions_clean_up(repairs, number):
    """D43: the variable of a comprehension stays, so that its last value is reported as if it were one of the rule's."""
    comprehension = Interpreter.visit_ListComprehension

    async def visit(self, node):
        store = self.variable_store
        self.variable_store = copy = dict(store)
        try:
            return await comprehension(self, node)
        finally:
            self.variable_store = store
            if len(copy) > len(store):
                repairs.note(number)

    repairs.put(Interpreter, "visit_ListComprehension", visit)


def items_have_places(repairs, number):
    """D44: a text found among the items of a list has no place."""
    binary = Interpreter.visit_BinaryExpr

    async def visit(self, node):
        result = await binary(self, node)
        if node.op == "in" and result is True and not isinstance(node.left, ast.TypedIdentifier):
            left, right = await self.visit(node.left), await self.visit(node.right)
            if isinstance(left, str) and left and isinstance(right, (list, type({}.values()))):
                for item in right:
                    if item == left:
                        repairs.note(number)
                        self.mark(item, 0, len(item))
        return result

    repairs.put(Interpreter, "visit_BinaryExpr", visit)


def derived_texts_have_no_place(repairs, number):
    """D45: what a method makes of a text has the text's places if it happens to be all of it."""
    call = Interpreter.visit_FunctionCall

    async def visit(self, node):
        result = await call(self, node)
        if not isinstance(node.name, ast.MemberAccess) or node.name.member not in METHODS or result is Unknown:
            return result
        values = [await self.visit(node.name.expr), *[await self.visit(arg) for arg in node.args]]
        texts = {id(text) for value in values for text in (value if isinstance(value, list) else [value])}

        def fresh(text):
            if id(text) not in texts or not isinstance(text, str) or len(text) < 2:
                return text
            repairs.note(number)
            return (text + " ")[:-1]

        return [fresh(text) for text in result] if isinstance(result, list) else fresh(result)

    repairs.put(Interpreter, "visit_FunctionCall", visit)


def the_empty_text_has_no_place(repairs, number):
    """D46: the empty text is found, and marked, before every character."""
    search = evaluation.re

    def finditer(left, right):
        if left:
            return search.finditer(left, right)
        repairs.note(number)
        return []

    repairs.put(evaluation, "re", types.SimpleNamespace(finditer=finditer))


LICENCE = re.compile(r"copyright \(c\)|GNU AFFERO GENERAL PUBLIC LICENSE|all rights reserved", re.IGNORECASE)


def unsafe_calls(code):
    """Where some code calls what runs other code."""
    try:
        tree = syntax.parse(code)
    except (SyntaxError, ValueError):
        return
    for node in syntax.walk(tree):
        if isinstance(node, syntax.Call) and syntax.unparse(node.func) in ("eval", "exec", "os.system"):
            found = syntax.get_source_segment(code, node)
            yield code.find(found), code.find(found) + len(found)


def detected(name, text):
    """Where a detector that marks nothing finds something in a text."""
    if name == "secrets":
        return [(found.start, found.end) for found in SecretsAnalyzer().detect_all(text)]
    if name == "copyright":
        return [found.span() for found in LICENCE.finditer(text)]
    if name == "links":
        links = HiddenDataParser.get_links_regex(text)
        return [found.span() for link in links for found in re.finditer(re.escape(link), text)]
    return list(unsafe_calls(text))


def detectors_mark(repairs, number):
    """D47: `secrets`, `copyright`, `links` and `python_code` do not mark what they find."""
    call = rule.InputEvaluationContext.acall_function

    async def called(self, func, *args, **kwargs):
        result = await call(self, func, *args, **kwargs)
        name = getattr(func, "__name__", "")
        if name in ("secrets", "copyright", "links", "python_code"):
            for text in nodes.text(args[0]):
                for start, end in detected(name, text):
                    repairs.note(number)
                    Interpreter.current().mark(text, start, end)
        return result

    repairs.put(rule.InputEvaluationContext, "acall_function", called)


def any_character_is_no_find(repairs, number):
    """D48: `unicode` without categories marks every character."""
    call = rule.InputEvaluationContext.acall_function

    async def called(self, func, *args, **kwargs):
        if getattr(func, "__name__", "") != "unicode" or len(args) > 1 or kwargs:
            return await call(self, func, *args, **kwargs)
        before = marks(Interpreter.current())
        result = await call(self, func, *args, **kwargs)
        if forget(before):
            repairs.note(number)
        return result

    repairs.put(rule.InputEvaluationContext, "acall_function", called)


def inner_counts_have_places(repairs, number):
    """D49: what a `count` inside a `forall` counts has no place."""
    quantify = Interpreter.visit_Quantifier

    async def visit(self, node):
        result = await quantify(self, node)
        if result is True and await universal(self, node):
            for model in await models(self, node):
                own = {str(id(value)) for value in model.variable_assignments.values()}
                inner = [r for r in model.ranges if r.start is None and r.object_id not in own]
                if inner:
                    repairs.note(number)
                    self.ranges.extend(inner)
        return result

    repairs.put(Interpreter, "visit_Quantifier", visit)


def parameters_are_given_by_the_caller(repairs, number):
    """D50: `input.data` is there though nobody gave it."""
    has = rule.InputEvaluationContext.has_policy_parameter

    def has_parameter(self, name):
        if name == "data" and has(self, name):
            repairs.note(number)
            return False
        return has(self, name)

    repairs.put(rule.InputEvaluationContext, "has_policy_parameter", has_parameter)


def one_block_is_its_text(repairs, number):
    """D51: the length of content that is one block of text is 1."""
    call = rule.InputEvaluationContext.acall_function

    async def called(self, func, *args, **kwargs):
        if getattr(func, "__name__", "") == "len" and len(args) == 1 and type(args[0]).__name__ == "Contents":
            text = args[0].text()
            if len(args[0]) == len(text) == 1:
                repairs.note(number)
                return len(text[0])
        return await call(self, func, *args, **kwargs)

    repairs.put(rule.InputEvaluationContext, "acall_function", called)


def nearest(compiled, pattern, changes, text):
    """The match with the fewest changes that ends first, and of these the shortest; of as many as `changes`."""
    for fewest in range(changes + 1):
        near = compiled(f"{pattern}{{e<={fewest}}}")
        for end in range(len(text) + 1):
            for start in range(end, -1, -1):
                found = near.fullmatch(text, start, end)
                if found:
                    return found
    return None


def the_nearest_match_is_marked(repairs, number):
    """D52: `fuzzy_contains` marks the first match, with all changes that are allowed, and not the nearest."""
    compiled = regex.compile

    def compile_near(pattern, *args, **kwargs):
        limited = re.fullmatch(r"(\(\?:.*\))\{e<=(\d+)\}", pattern, re.DOTALL) if isinstance(pattern, str) else None
        given = compiled(pattern, *args, **kwargs)
        if not limited:
            return given

        def search(text):
            first = given.search(text)
            best = first and nearest(compiled, limited[1], int(limited[2]), text)
            if best and best.span() != first.span():
                repairs.note(number)
            return best

        return types.SimpleNamespace(search=search)

    repairs.put(regex, "compile", compile_near)


REPAIRS = {
    "D3": rule_errors_stay_apart,
    "D4": text_in_text_is_literal,
    "D5": missing_keys_are_none,
    "D6": all_variables_are_bound,
    "D7": bodies_are_judged_by_truth,
    "D8": unneeded_variables_do_not_multiply,
    "D10": patterns_match_the_whole_value,
    "D12": escapes_are_read,
    "D14": numbers_are_not_booleans,
    "D15": connectives_stop_early,
    "D16": answers_without_a_call,
    "D19": flow_of_other_values,
    "D20": bad_json_is_none,
    "D21": methods_of_json_texts,
    "D22": count_counts_everything,
    "D23": none_has_no_parts,
    "D24": marks_stay_with_their_match,
    "D26": failed_attempts_leave_no_marks,
    "D27": numbers_are_equal_by_value,
    "D28": caching_keeps_marks,
    "D29": bare_calls_may_have_text,
    "D30": assignment_errors_stay_apart,
    "D31": chunks_have_places,
    "D32": unbound_lines_wait,
    "D33": derived_values_have_no_place,
    "D35": contains_only_looks_the_right_way,
    "D36": lists_are_items,
    "D37": findings_may_say_anything,
    "D39": lists_wait_for_their_items,
    "D40": unknown_members_are_none,
    "D41": forall_speaks_of_something,
    "D42": variables_reach_into_calls,
    "D43": comprehensions_clean_up,
    "D44": items_have_places,
    "D45": derived_texts_have_no_place,
    "D46": the_empty_text_has_no_place,
    "D47": detectors_mark,
    "D48": any_character_is_no_find,
    "D49": inner_counts_have_places,
    "D50": parameters_are_given_by_the_caller,
    "D51": one_block_is_its_text,
    "D52": the_nearest_match_is_marked,
    "D53": nothing_is_a_member,
}


@functools.cache
def version(numbers):
    """What the work of some repairs depends on, so that outcomes are kept only as long as it is the same."""
    chosen = {REPAIRS[number] for number in numbers}
    own = [part for part in globals().values() if getattr(part, "__module__", "") == __name__ and inspect.isroutine(part)]
    parts = sorted(inspect.getsource(part) for part in {*own, Repairs} - (set(REPAIRS.values()) - chosen))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
