"""Outcomes of either side in a common form, and their comparison."""

import collections
import json
import re


def event_places(messages):
    """Returns the index in the list of messages of each event of the original: each tool of a `tools` entry is an event."""
    places = []
    for index, message in enumerate(messages):
        if "role" not in message and "type" not in message and "tools" in message:
            places += [f"{index}.tools.{tool}" for tool in range(len(message["tools"]))]
        else:
            places.append(str(index))
    return places


def moved(address, places):
    """Converts an address of the original to one in the list of messages."""
    found = re.match(r"messages\.(\d+)(.*)", address, re.DOTALL)
    if not found or int(found[1]) >= len(places):
        return address
    return f"messages.{places[int(found[1])]}{found[2]}"


def lean(value):
    """Returns an argument of a finding; of an event only the content of the trace, without the original's annotations."""
    if isinstance(value, dict):
        kept = {name: lean(inner) for name, inner in value.items() if name not in ("metadata", "server")}
        return {name: inner for name, inner in kept.items() if inner not in (None, [])}
    return [lean(inner) for inner in value] if isinstance(value, list) else value


def finding(error):
    """Returns the content of a finding, without its places."""
    return json.dumps(lean([error["args"], error["kwargs"]]), sort_keys=True)


def places(error):
    """Returns the places of a finding."""
    return tuple(sorted(set(error.get("ranges") or [])))


def refused(outcome):
    """Whether the analysis, or a rule of it, failed."""
    return bool(outcome["refused"]) or bool(outcome.get("failures"))


def findings(outcome):
    """Returns all findings, without places and order."""
    return collections.Counter(finding(error) for error in outcome["errors"])


def same_findings(original, ours):
    """Whether both sides have the same findings, and both fail or neither does."""
    return refused(original) == refused(ours) and findings(original) == findings(ours)


def same_places(original, ours):
    """Whether all findings have the same sets of places."""
    count = lambda outcome: collections.Counter((finding(error), places(error)) for error in outcome["errors"])
    return count(original) == count(ours)


def same(original, ours, with_places=True):
    """Whether two outcomes are equal, regardless of the order of findings and of keys."""
    return same_findings(original, ours) and (not with_places or same_places(original, ours))


def same_keys(original, ours):
    """Whether two outcomes have the same keys."""
    count = lambda outcome: collections.Counter(error.get("key") for error in outcome["errors"])
    return count(original) == count(ours)


def parameter(address, messages):
    """Returns the address of a tool's parameter, which has a name instead of a number."""
    found = re.match(r"messages\.(\d+)\.tools\.(\d+)\.inputSchema\.(\d+)$", address)
    if not found:
        return address
    message, tool, number = map(int, found.groups())
    names = list(messages[message]["tools"][tool]["inputSchema"]["properties"])
    return f"messages.{message}.tools.{tool}.inputSchema.properties.{names[number]}"


def with_moved_places(outcome, messages):
    """D13: returns an outcome whose addresses count messages instead of events, and name the parameters of tools."""
    counted = event_places(messages)
    change = lambda addresses: [parameter(moved(address, counted), messages) for address in addresses]
    errors = [
        {**error, "ranges": change(error["ranges"]), "doubtful": change(error.get("doubtful", []))} for error in outcome["errors"]
    ]
    return {**outcome, "errors": errors}


def without(error, doubtful):
    """Returns a finding without the places in `doubtful`, with or without a span after them."""
    kept = [address for address in error["ranges"] if re.sub(r":\d+-\d+$", "", address) not in doubtful]
    return {**error, "ranges": kept}


def without_doubtful_places(original, ours):
    """D9: returns both outcomes without places whose object occurs in several places, or is shared by Python."""
    doubtful = {address for error in original["errors"] for address in error.get("doubtful", [])}
    drop = lambda outcome: {**outcome, "errors": [without(error, doubtful) for error in outcome["errors"]]}
    return drop(original), drop(ours)
