"""The person of the benchmark in front of a gateway: answers its questions over the routes for people, as one answers in this process."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from typing import Any

from ...errors import FlowgateError
from .elements import Ledger
from .people import Decide, Oracle

__all__ = ["Answerer"]


class Answerer:
    """A person who follows the questions of one gateway, and answers each once. It counts into the ledger of the case."""

    def __init__(self, address: str, key: str, decide: Decide, ledger: Ledger) -> None:
        """Begin to follow the questions of the gateway at an address. `decide` answers for a tool and its arguments."""
        self.address, self.key, self.decide, self.ledger = address, key, decide, ledger
        self.error = ""
        self._answered: set[str] = set()
        self._is_stopped = False
        try:
            self._events = self._open("/events")
        except (OSError, ValueError) as error:
            message = f"the questions of the gateway cannot be followed ({error}): use a gateway with the routes for people"
            raise FlowgateError(message) from error
        threading.Thread(target=self._follow, daemon=True).start()

    def _open(self, path: str, body: dict[str, Any] | None = None, timeout: float = 600) -> Any:
        headers = {"authorization": f"Bearer {self.key}", "content-type": "application/json"}
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(f"{self.address}/api/v1/approvals{path}", data, headers)
        return urllib.request.urlopen(request, timeout=timeout)

    def _follow(self) -> None:
        """Answer the questions of the stream until it ends."""
        try:
            for line in self._events:
                if line.startswith(b"data:"):
                    self._answer(json.loads(line[5:]))
        except Exception as error:  # noqa: BLE001 - the thread of the case reports it
            if not self._is_stopped:
                self.error = f"{type(error).__name__}: {error}"

    def _answer(self, question: dict[str, Any]) -> None:
        if question.get("state") != "open" or question["id"] in self._answered:
            return
        self._answered.add(question["id"])
        call = question["call"]
        is_allowed = self.decide(call["tool"], call["arguments"])
        self.ledger.add_question(call["tool"], call["arguments"])
        self.ledger.allowed += is_allowed
        body = {"decision": "allow" if is_allowed else "deny", "digest": question["digest"]}
        try:
            self._open(f"/{question['id']}", body, 60).close()
        except urllib.error.HTTPError as error:
            # A question that turned out not to be needed is void before it is answered.
            if error.code not in (404, 409):
                raise
            if is_allowed and isinstance(self.decide, Oracle):
                self.decide.take_back(call["tool"], call["arguments"])

    def stop(self) -> None:
        """Stop following. Raises `FlowgateError` if a question could not be answered."""
        self._is_stopped = True
        if self.error:
            message = f"the questions of the gateway were not all answered ({self.error})"
            raise FlowgateError(message)
