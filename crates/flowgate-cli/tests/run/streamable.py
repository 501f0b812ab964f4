"""An MCP server over streamable HTTP, for `tests/run.rs`: prints its address, wants a key, answers with JSON and with streams.

It is an issuer as well. The server at `/guarded` accepts the newest of its tokens until it has listed its tools: the token of a call is another one. It gives tokens
by client credentials and by logins, in which nobody has to type anything."""

import base64
import hashlib
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlencode, urlsplit

TOOL = {"name": "do", "description": "Does it.", "inputSchema": {"type": "object"}}


ISSUED = []
REVOKED = set()
LOGINS = {}


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
        issuer = f"http://127.0.0.1:{self.server.server_port}"
        # The metadata of the issuer at `/other` names another one, and those of the issuer at `/far` an address without TLS.
        known = {
            "/.well-known/oauth-authorization-server": (issuer, issuer),
            "/.well-known/oauth-authorization-server/other": (issuer, issuer),
            "/.well-known/oauth-authorization-server/far": (f"{issuer}/far", "http://issuer.example"),
        }
        address = urlsplit(self.path)
        if address.path == "/authorize":
            asked = {name: values[0] for name, values in parse_qs(address.query).items()}
            LOGINS["c0de"] = asked
            outcome = urlencode({"code": "c0de", "state": asked["state"], "iss": issuer})
            self.send_response(302)
            self.send_header("location", f"{asked['redirect_uri']}?{outcome}")
            self.send_header("content-length", "0")
            return self.end_headers()
        if self.path == "/guarded":
            self.send_response(401)
            self.send_header("www-authenticate", f'Bearer resource_metadata="{issuer}/.well-known/oauth-protected-resource/guarded"')
            self.send_header("content-length", "0")
            return self.end_headers()
        if self.path == "/.well-known/oauth-protected-resource/guarded":
            named = {"resource": f"{issuer}/guarded", "authorization_servers": [issuer], "scopes_supported": ["read"]}
            return self.send(200, "application/json", json.dumps(named).encode())
        if self.path == "/.well-known/oauth-authorization-server/large":
            return self.send(200, "application/json", b" " * 300_000)
        if self.path not in known:
            return self.send(405, "text/plain", b"")
        named, host = known[self.path]
        metadata = {"issuer": named, "authorization_endpoint": f"{host}/authorize", "token_endpoint": f"{host}/token"}
        metadata |= {"registration_endpoint": f"{host}/register", "code_challenge_methods_supported": ["S256"]}
        self.send(200, "application/json", json.dumps(metadata | {"token_endpoint_auth_methods_supported": ["client_secret_post"]}).encode())

    def do_DELETE(self):
        self.send(405, "text/plain", b"")

    def give_token(self):
        asked = parse_qs(self.rfile.read(int(self.headers["content-length"])).decode())
        expected = {
            "grant_type": ["client_credentials"],
            "client_id": ["agent"],
            "client_secret": ["s3cret"],
            "scope": ["read"],
            "resource": [f"http://127.0.0.1:{self.server.server_port}/guarded"],
        }
        if asked != expected and not self.is_login({name: values[0] for name, values in asked.items()}):
            return self.send(401, "application/json", b'{"error": "invalid_client"}')
        ISSUED.append(f"token-{len(ISSUED)}")
        answer = {"access_token": ISSUED[-1], "token_type": "Bearer", "expires_in": 3600}
        if asked != expected:
            answer["refresh_token"] = f"refresh-{ISSUED[-1]}"
        self.send(200, "application/json", json.dumps(answer).encode())

    def is_login(self, asked):
        if asked.get("grant_type") == "refresh_token":
            return asked["refresh_token"] == f"refresh-{ISSUED[-1]}" and asked["client_id"] == "registered"
        login = LOGINS.pop(asked.get("code"), {})
        digest = hashlib.sha256(asked.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        same = all(login.get(name) == asked.get(name) for name in ["client_id", "redirect_uri", "resource"])
        return bool(login) and same and login["code_challenge"] == challenge and login["scope"] == "read"

    def is_authorized(self):
        key = self.headers.get("authorization")
        if self.path == "/guarded":
            return ISSUED and key == f"Bearer {ISSUED[-1]}" and ISSUED[-1] not in REVOKED
        return key == "Bearer s3cret"

    def do_POST(self):
        if self.path == "/token":
            return self.give_token()
        if self.path == "/register":
            self.rfile.read(int(self.headers["content-length"]))
            return self.send(200, "application/json", b'{"client_id": "registered", "redirect_uris": []}')
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path == "/elsewhere":
            return self.send(302, "text/plain", b"")
        if not self.is_authorized():
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
            REVOKED.update(ISSUED)
        else:
            result = {"content": [{"type": "text", "text": f"done over http with {len(ISSUED)} tokens"}]}
        body = json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result})
        if request["method"] == "tools/call":
            note = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 1, "progress": 1}}
            events = f"data: {json.dumps(note)}\n\nevent: message\ndata: {body}\n\n"
            return self.send(200, "text/event-stream", events.encode())
        self.send(200, "application/json", body.encode())


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(f"http://127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()
