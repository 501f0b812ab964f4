"""Asks the gateway that an agent uses as its base URL whether it has handed over a call, as `flowgate hook --gateway` does.

The gateway knows what the model was shown, and the adapter what the host shows it. If both enforce the same policy, they share the label of
the call: the adapter judges it at the label at which the gateway has judged it.
"""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

from .._flowgate import Attribution, Label, Policy
from ..errors import FlowgateError

__all__ = ["HandedCalls", "NotHandedOverError"]

_ROUTE = "/api/v1/handed-calls"
_SECONDS = 30
_MOST_BYTES = 1 << 20
_MOST_CHARACTERS = 500


class NotHandedOverError(FlowgateError):
    """A call does not run: the gateway has not handed it over, or cannot be asked."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect could send the key to another address."""

    def redirect_request(self, *_: Any) -> None:
        """Follow no redirect."""


class HandedCalls:
    """The calls that a gateway has handed to an agent."""

    def __init__(self, address: str, key: str, policy: Policy) -> None:
        """Create a client of the gateway at `address`, with the key of the agent. Raises `ValueError` if one of them cannot be used."""
        if urllib.parse.urlsplit(address).scheme not in ("http", "https"):
            message = f"{address!r} is not the address of a gateway; write it as http://127.0.0.1:8000"
            raise ValueError(message)
        if not key or not all("!" <= character <= "~" for character in key):
            message = "the key of the agent is empty, or has white space or characters other than ASCII: copy it again"
            raise ValueError(message)
        self._url, self._key, self._policy = address.rstrip("/") + _ROUTE, key, policy
        # No proxy: the key reaches only the gateway.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirects)

    def attribution(self, call_id: str, tool: str, arguments: Any) -> Attribution | None:
        """Ask about a call. Return what it depends on; `None` if the gateway does not state it, or has another policy.

        Raises `NotHandedOverError` if the gateway has not handed over this call, or does not answer.
        """
        report = self._ask({"id": call_id, "tool": tool, "arguments": arguments})
        # A field that is missing counts as false.
        if report.get("handed_over") is not True:
            message = (
                "the gateway has not handed over this call: the agent has asked a model without the gateway, or the gateway was restarted; "
                "make the call again"
            )
            raise NotHandedOverError(message)
        if report.get("is_equal") is not True:
            message = "the gateway has handed over another call under this id, with another tool or other arguments"
            raise NotHandedOverError(message)
        # Several conversations can have a call with this id: their join is not lower than the label of the one that is meant.
        joined: Label | None = None
        labels = report.get("labels")
        for label in labels if isinstance(labels, list) else ():
            match label:
                case {"policy": self._policy.digest, "names": dict(names)}:
                    read = self._policy.label_from_names(names)
                    joined = read if joined is None else joined | read
                case _:
                    return None
        return None if joined is None else Attribution(joined, method="gateway")

    def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        """Send a question to the gateway, and return its answer."""
        body = json.dumps(question, allow_nan=False).encode()
        headers = {"authorization": f"Bearer {self._key}", "content-type": "application/json"}
        try:
            with self._opener.open(urllib.request.Request(self._url, body, headers), timeout=_SECONDS) as answer:
                report = json.loads(answer.read(_MOST_BYTES))
        except urllib.error.HTTPError as error:
            raise NotHandedOverError(_unanswered(_detail(error))) from error
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise NotHandedOverError(_unanswered(f"{type(error).__name__}; check that it runs, and its address")) from error
        if not isinstance(report, dict):
            raise NotHandedOverError(_unanswered("the answer is not that of a gateway; check the address"))
        return report


def _unanswered(why: str) -> str:
    return f"the gateway cannot be asked about this call, so the call is denied: {why}"


def _detail(error: urllib.error.HTTPError) -> str:
    """Return the message of a gateway that refuses a request."""
    try:
        return str(json.loads(error.read(_MOST_BYTES))["detail"])[:_MOST_CHARACTERS]
    except (OSError, ValueError, KeyError, TypeError):
        return f"the answer is not that of a gateway (status {error.code}); check the address"
