"""An MCP server with mail, a profile and payments, made with the official Python package and served over HTTP."""

import json
import socket
import threading
import time

import uvicorn
from mcp.server.mcpserver import MCPServer

IBAN = "DE02120300000000202051"


class Desk:
    """The content of the mail, and the executed actions."""

    def __init__(self, mail, certificate=None):
        self.did = []
        server = MCPServer("desk")

        @server.tool(structured_output=False)
        def read_mail() -> str:
            """The mail that has come."""
            return json.dumps([{"from": "otters@example.org", "body": mail}])

        @server.tool(structured_output=False)
        def get_profile() -> str:
            """What the user keeps to themselves."""
            return f"The account of the user is {IBAN}."

        @server.tool(structured_output=False)
        def send_mail(to: str, body: str) -> str:
            """Sends a mail."""
            self.did.append(("send_mail", to, body))
            return "sent"

        @server.tool(structured_output=False)
        def send_money(to: str, amount: int) -> str:
            """Pays."""
            self.did.append(("send_money", to, amount))
            return "paid"

        listener = socket.create_server(("127.0.0.1", 0))
        scheme = "https" if certificate else "http"
        self.address = f"{scheme}://127.0.0.1:{listener.getsockname()[1]}/mcp"
        config = uvicorn.Config(server.streamable_http_app(), log_level="error", ssl_certfile=certificate)
        self.server = uvicorn.Server(config)
        threading.Thread(target=self.server.run, kwargs={"sockets": [listener]}, daemon=True).start()
        while not self.server.started:
            time.sleep(0.02)

    def stop(self):
        self.server.should_exit = True
