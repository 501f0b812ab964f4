"""A model behind the base URL of an OpenAI-compatible server. The key is the environment variable `OPENAI_API_KEY`."""

from __future__ import annotations

import json
from typing import Any

import openai

from ..._flowgate import Completion

__all__ = ["RemoteModel"]


class RemoteModel:
    """A model over HTTP. `usage` has the tokens of the last answer."""

    def __init__(self, base_url: str, model: str, *, seed: int) -> None:
        """Create a client. Sampling is at temperature 0 with a seed, which servers are free to ignore."""
        self.client = openai.OpenAI(base_url=base_url, max_retries=3, timeout=300)
        self.model, self.seed = model, seed
        self.usage = (0, 0)

    def __call__(self, request: dict[str, Any]) -> Completion:
        """Return the model's next message."""
        body = {name: value for name, value in request.items() if name != "tools" or value}
        if "tools" not in body:
            body.pop("tool_choice", None)
        answer = self.client.chat.completions.create(model=self.model, temperature=0.0, seed=self.seed, **body)
        if answer.usage is not None:
            self.usage = (answer.usage.prompt_tokens, answer.usage.completion_tokens)
        message = answer.choices[0].message
        calls = [
            (call.function.name, _object(call.function.arguments), call.id) for call in message.tool_calls or [] if call.type == "function"
        ]
        return Completion(message.content or "", calls)


def _object(text: str) -> str:
    """Return the arguments as the model wrote them, or an empty object in place of a text that is none."""
    try:
        return text if isinstance(json.loads(text), dict) else "{}"
    except ValueError:
        return "{}"
