"""Agents in the usual form: the provider's client, a list of messages, and a loop."""

import json

import anthropic
import openai

TOOLS = {
    "read_page": ("Reads a page.", {"url": {"type": "string"}}),
    "send_mail": ("Sends a mail.", {"to": {"type": "string"}, "body": {"type": "string"}}),
    "send_money": ("Pays.", {"to": {"type": "string"}, "amount": {"type": "number"}}),
}


def schema(properties):
    return {"type": "object", "properties": properties}


class Agent:
    def __init__(self, address, key, page, stream):
        self.address, self.key, self.page, self.stream = address, key, page, stream
        self.ran, self.messages = [], []

    def run(self, name, arguments):
        self.ran.append((name, arguments))
        return self.page if name == "read_page" else "done"


class ChatCompletions(Agent):
    def says(self, text):
        client = openai.OpenAI(base_url=f"{self.address}/v1", api_key=self.key, max_retries=0)
        tools = [
            {"type": "function", "function": {"name": name, "description": doc, "parameters": schema(properties)}}
            for name, (doc, properties) in TOOLS.items()
        ]
        self.messages.append({"role": "user", "content": text})
        while True:
            asked = {"model": "double", "messages": self.messages, "tools": tools}
            if self.stream:
                with client.chat.completions.stream(**asked) as stream:
                    message = stream.get_final_completion().choices[0].message
            else:
                message = client.chat.completions.create(**asked).choices[0].message
            self.messages.append(message.model_dump(exclude_none=True, exclude={"parsed"}) if self.stream else message)
            if not message.tool_calls:
                return message.content
            for call in message.tool_calls:
                answer = self.run(call.function.name, json.loads(call.function.arguments))
                self.messages.append({"role": "tool", "tool_call_id": call.id, "content": answer})


class Responses(Agent):
    def says(self, text):
        client = openai.OpenAI(base_url=f"{self.address}/v1", api_key=self.key, max_retries=0)
        tools = [
            {"type": "function", "name": name, "description": doc, "parameters": schema(properties), "strict": False}
            for name, (doc, properties) in TOOLS.items()
        ]
        self.messages.append({"role": "user", "content": text})
        while True:
            asked = {"model": "double", "input": self.messages, "tools": tools, "store": False}
            if self.stream:
                with client.responses.stream(**asked) as stream:
                    response = stream.get_final_response()
            else:
                response = client.responses.create(**asked)
            calls = [item for item in response.output if item.type == "function_call"]
            for item in response.output:
                self.messages.append(item.model_dump(exclude_none=True, exclude={"parsed_arguments"}))
            if not calls:
                return response.output_text
            for call in calls:
                answer = self.run(call.name, json.loads(call.arguments))
                self.messages.append({"type": "function_call_output", "call_id": call.call_id, "output": answer})


class Messages(Agent):
    def says(self, text):
        client = anthropic.Anthropic(base_url=self.address, api_key=self.key, max_retries=0)
        tools = [
            {"name": name, "description": doc, "input_schema": schema(properties)}
            for name, (doc, properties) in TOOLS.items()
        ]
        self.messages.append({"role": "user", "content": text})
        while True:
            asked = {"model": "double", "max_tokens": 500, "messages": self.messages, "tools": tools}
            if self.stream:
                with client.messages.stream(**asked) as stream:
                    message = stream.get_final_message()
            else:
                message = client.messages.create(**asked)
            self.messages.append({"role": "assistant", "content": message.content})
            calls = [block for block in message.content if block.type == "tool_use"]
            if not calls:
                return "".join(block.text for block in message.content if block.type == "text")
            answers = [
                {"type": "tool_result", "tool_use_id": call.id, "content": self.run(call.name, call.input)}
                for call in calls
            ]
            self.messages.append({"role": "user", "content": answers})
