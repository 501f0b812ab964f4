"""A coding agent with one of the SDKs: it works in the current folder, through the gateway, and prints what the model says at the end.

    GATEWAY_URL=http://127.0.0.1:8000 GATEWAY_KEY=... sdk_agent.py SDK TASK

Its tools have the names and arguments that `examples/coding/policy.flow` knows. It does not know that the gateway judges its calls.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

URL, KEY = os.environ["GATEWAY_URL"], os.environ["GATEWAY_KEY"]
INSTRUCTIONS = "You work on the project in the current folder."


def read_file(file_path: str) -> str:
    """Reads a file.

    Args:
        file_path: The path of the file.
    """
    return Path(file_path).read_text()


def replace(file_path: str, old_string: str, new_string: str) -> str:
    """Replaces a text in a file.

    Args:
        file_path: The path of the file.
        old_string: The text that is there.
        new_string: The text that replaces it.
    """
    file = Path(file_path)
    file.write_text(file.read_text().replace(old_string, new_string))
    return "done"


def run_shell_command(command: str) -> str:
    """Runs a command in a shell, and returns what it prints.

    Args:
        command: The command.
    """
    ran = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60)
    return ran.stdout + ran.stderr


TOOLS = [read_file, replace, run_shell_command]


def openai_agents(task):
    import agents
    import openai

    agents.set_tracing_disabled(True)
    client = openai.AsyncOpenAI(base_url=f"{URL}/v1", api_key=KEY)
    model = agents.OpenAIResponsesModel("gpt-5", client)
    agent = agents.Agent("coder", instructions=INSTRUCTIONS, model=model, tools=[agents.function_tool(tool) for tool in TOOLS])
    return agents.Runner.run_sync(agent, task).final_output


def langgraph(task):
    from langchain.agents import create_agent
    from langchain_openai import ChatOpenAI

    model = ChatOpenAI(model="gpt-5", base_url=f"{URL}/v1", api_key=KEY)
    agent = create_agent(model, TOOLS, system_prompt=INSTRUCTIONS)
    return agent.invoke({"messages": [("user", task)]})["messages"][-1].text


def pydantic_ai(task):
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    model = OpenAIChatModel("gpt-5", provider=OpenAIProvider(base_url=f"{URL}/v1", api_key=KEY))
    return Agent(model, instructions=INSTRUCTIONS, tools=TOOLS).run_sync(task).output


def openai_client(task):
    import openai
    from pydantic import TypeAdapter

    client = openai.OpenAI(base_url=f"{URL}/v1", api_key=KEY)
    functions = [{"name": tool.__name__, "description": tool.__doc__, "parameters": TypeAdapter(tool).json_schema()} for tool in TOOLS]
    tools = [{"type": "function", "function": function} for function in functions]
    messages = [{"role": "developer", "content": INSTRUCTIONS}, {"role": "user", "content": task}]
    while True:
        with client.chat.completions.stream(model="gpt-5", messages=messages, tools=tools) as stream:
            message = stream.get_final_completion().choices[0].message
        if not message.tool_calls:
            return message.content
        messages.append(message.model_dump(exclude_none=True, exclude={"parsed"}))
        for call in message.tool_calls:
            run = next(tool for tool in TOOLS if tool.__name__ == call.function.name)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": run(**json.loads(call.function.arguments))})


def anthropic_client(task):
    import anthropic

    client = anthropic.Anthropic(base_url=URL, api_key=KEY)
    tools = [anthropic.beta_tool(tool) for tool in TOOLS]
    asked = {"model": "claude-sonnet-5", "max_tokens": 4096, "system": INSTRUCTIONS, "messages": [{"role": "user", "content": task}]}
    # A thread is a conversation that the provider keeps. The gateway refuses it, and the client would repeat the request without.
    return client.beta.messages.tool_runner(tools=tools, thread=False, **asked).until_done().content[-1].text


def google_client(task):
    from google import genai

    client = genai.Client(api_key=KEY, http_options={"base_url": URL})
    config = {"system_instruction": INSTRUCTIONS, "tools": TOOLS}
    return client.models.generate_content(model="gemini-2.5-flash", contents=task, config=config).text


SDKS = {
    "openai-agents": openai_agents,
    "langgraph": langgraph,
    "pydantic-ai": pydantic_ai,
    "openai": openai_client,
    "anthropic": anthropic_client,
    "google-genai": google_client,
}

if __name__ == "__main__":
    print(SDKS[sys.argv[1]](sys.argv[2]))
