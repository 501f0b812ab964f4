"""An agent in the usual form: the clients of OpenAI and MCP, and a loop. It is configured with addresses and headers only."""

import json
from contextlib import asynccontextmanager

import httpx2
import openai
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

PREFIX = "mcp__desk__"


def text_of(result):
    return "\n".join(block.text for block in result.content)


class DeskAgent:
    def __init__(self, chat, tools, key, conversation, stream, mode, person=None):
        self.headers = {"x-flowgate-conversation": conversation} if conversation else {}
        self.chat, self.tools, self.key, self.stream, self.mode = chat, tools, key, stream, mode
        self.person, self.messages = person, []

    async def answer(self, model, offered):
        asked = {"model": "double", "messages": self.messages, "tools": offered}
        if not self.stream:
            return (await model.chat.completions.create(**asked)).choices[0].message
        async with model.chat.completions.stream(**asked) as stream:
            return (await stream.get_final_completion()).choices[0].message

    @asynccontextmanager
    async def server(self):
        headers = {**self.headers, "authorization": f"Bearer {self.key}"}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=60, trust_env=False) as http,
            Client(streamable_http_client(self.tools, http_client=http), mode=self.mode, elicitation_callback=self.person) as client,
        ):
            offered = [
                {"type": "function", "function": {
                    "name": PREFIX + tool.name, "description": tool.description, "parameters": tool.input_schema}}
                for tool in (await client.list_tools()).tools
            ]
            yield client, offered

    async def says(self, text):
        self.messages.append({"role": "user", "content": text})
        model = openai.AsyncOpenAI(base_url=f"{self.chat}/v1", api_key=self.key, max_retries=0, default_headers=self.headers)
        async with model, self.server() as (client, offered):
            while True:
                message = await self.answer(model, offered)
                self.messages.append(message.model_dump(exclude_none=True, exclude={"parsed"}))
                if not message.tool_calls:
                    return message.content
                for call in message.tool_calls:
                    name = call.function.name.removeprefix(PREFIX)
                    result = await client.call_tool(name, json.loads(call.function.arguments))
                    self.messages.append({"role": "tool", "tool_call_id": call.id, "content": text_of(result)})

    async def tries_again(self):
        """Repeats its last call."""
        call = [call for message in self.messages for call in message.get("tool_calls") or []][-1]["function"]
        async with self.server() as (client, _):
            return text_of(await client.call_tool(call["name"].removeprefix(PREFIX), json.loads(call["arguments"])))
