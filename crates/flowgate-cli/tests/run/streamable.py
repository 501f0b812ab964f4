"""An MCP server over streamable HTTP, for `tests/run.rs`: prints its address, wants a key, answers with JSON and with streams."""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TOOL = {"name": "do", "description": "Does it.", "inputSchema": {"type": "object"}}


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def send(self, status, kind, body):
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.send_header("mcp-session-id", "s1")
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.send(405, "text/plain", b"")

    do_DELETE = do_GET

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path == "/elsewhere":
            return self.send(302, "text/plain", b"")
        if self.headers.get("authorization") != "Bearer s3cret":
            return self.send(401, "text/plain", b"")
        if "id" not in request:
            return self.send(202, "text/plain", b"")
        if request["method"] == "initialize":
            result = {
                "protocolVersion": request["params"]["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "http", "version": "1"},
            }
        elif self.headers.get("mcp-session-id") != "s1":
            return self.send(400, "text/plain", b"")
        elif request["method"] == "tools/list":
            result = {"tools": [TOOL]}
        else:
            result = {"content": [{"type": "text", "text": "done over http"}]}
        body = json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result})
        if request["method"] == "tools/call":
            note = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 1, "progress": 1}}
            events = f"data: {json.dumps(note)}\n\nevent: message\ndata: {body}\n\n"
            return self.send(200, "text/event-stream", events.encode())
        self.send(200, "application/json", body.encode())


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(f"http://127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()
