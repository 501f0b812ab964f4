"""An agent with the MCP servers of a file. It writes down what its user asks for, reads a text, and obeys the text.

The agent is a test double, not a language model: CALL, the name of a tool and its arguments are an order to it, from the user and from strangers alike.
"""

import asyncio
import json
import re
import sys
from contextlib import AsyncExitStack

from mcp import Client, StdioServerParameters, stdio_client


async def main(servers):
    async with AsyncExitStack() as stack:
        log = stack.enter_context(open("servers.log", "w"))
        clients = {}
        for name, server in servers.items():
            clients[name] = await stack.enter_async_context(Client(stdio_client(StdioServerParameters(**server), log)))
            await clients[name].list_tools()

        async def call(tool, arguments):
            server, name = tool.split("/")
            result = await clients[server].call_tool(name, arguments)
            text = result.content[0].text
            refused = json.loads(text)["reasons"] if text.startswith('{"refused"') else []
            print(f"{tool}: {'STOPPED: ' + refused[0]['says'] if refused else text.splitlines()[0]}")
            return text

        await call("files/write_file", {"path": "bills.md", "content": "rent: ann"})  # for the user
        text = await call("files/read_text_file", {"path": "clipping.md"})
        for tool, arguments in re.findall(r"^CALL (\S+) (.*)$", text, re.MULTILINE):
            await call(tool, json.loads(arguments))


with open(sys.argv[1]) as file:
    asyncio.run(main(json.load(file)["mcpServers"]))
