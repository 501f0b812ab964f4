// A gateway, servers over HTTP behind it, and the official client in front of it.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { mkdtempSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { join } from "node:path";

const { FLOWGATE, MCP_PACKAGES } = process.env;
export const require = createRequire(join(MCP_PACKAGES, "index.js"));
const { Client } = require("@modelcontextprotocol/sdk/client/index.js");
const { StreamableHTTPClientTransport } = require("@modelcontextprotocol/sdk/client/streamableHttp.js");
const { StreamableHTTPServerTransport } = require("@modelcontextprotocol/sdk/server/streamableHttp.js");
const { CreateMessageRequestSchema, ElicitRequestSchema } = require("@modelcontextprotocol/sdk/types.js");

export const KEYS = { AGENT_KEY: "the-key-of-this-agent", OTHER_KEY: "the-key-of-the-other", ANN_KEY: "the-key-of-the-person" };
const HOST = "127.0.0.1";

/** What is to be closed when a test is over, last first. */
const open = [];
export const later = (close) => open.push(close);
export async function closeAll() {
  while (open.length) await open.pop()();
}

/** A program that says on its standard error where it listens. */
async function started(command, args, env, says, { quiet = false } = {}) {
  const child = spawn(command, args, { env: { ...process.env, ...env }, stdio: ["ignore", "ignore", "pipe"] });
  const log = { text: "" };
  child.stderr.setEncoding("utf8").on("data", (data) => (log.text += data));
  const over = once(child, "exit");
  const stop = async (signal = "SIGTERM") => {
    child.kill(signal);
    const [code] = await over;
    assert.ok(quiet || signal !== "SIGTERM" || code === 0, log.text);
  };
  for (let tries = 0; tries < 400; tries += 1) {
    const found = says.exec(log.text);
    if (found) return { found, log, stop };
    assert.equal(child.exitCode, null, log.text);
    await new Promise((resolve) => setTimeout(resolve, 25));
  }
  throw new Error(`it does not start: ${log.text}`);
}

/** The gateway, in a folder with this configuration; it can be stopped and started again where it was. */
export class Gateway {
  static async start(config, policy) {
    const gateway = new Gateway();
    gateway.folder = mkdtempSync(join(process.cwd(), "gateway-"));
    writeFileSync(join(gateway.folder, "policy.flow"), policy);
    writeFileSync(join(gateway.folder, "gateway.toml"), config);
    gateway.listen = `${HOST}:0`;
    await gateway.begin();
    later(() => gateway.stop());
    return gateway;
  }

  async begin() {
    const args = ["serve", "--listen", this.listen, "--config", join(this.folder, "gateway.toml")];
    const { found, log, stop } = await started(FLOWGATE, args, KEYS, /http:\/\/(\S+:\d+)/);
    [this.address, this.listen, this.log, this.end] = [found[0], found[1], log, stop];
  }

  async stop(signal) {
    const end = this.end;
    this.end = null;
    await end?.(signal);
  }

  async restart(signal) {
    await this.stop(signal);
    await this.begin();
  }

  /** The official client, in a conversation. */
  async connect(server, conversation, { key = KEYS.AGENT_KEY, asked = null, headers = {}, sampled = null } = {}) {
    const client = new Client(
      { name: "compat", version: "1" },
      { capabilities: { sampling: {}, elicitation: {}, roots: { listChanged: true } } },
    );
    if (asked) client.setRequestHandler(ElicitRequestSchema, asked);
    client.setRequestHandler(CreateMessageRequestSchema, sampled ?? (() => assert.fail("the server asked for a message")));
    const given = { authorization: `Bearer ${key}`, "x-flowgate-conversation": conversation, ...headers };
    client.transportOfTest = new StreamableHTTPClientTransport(new URL(`${this.address}/mcp/${server}`), { requestInit: { headers: given } });
    client.problems = [];
    client.onerror = (error) => client.problems.push(error.message);
    await client.connect(client.transportOfTest);
    later(() => client.close());
    return client;
  }

  /** What a person says over the routes for people. */
  async person(path, body) {
    const headers = { authorization: `Bearer ${KEYS.ANN_KEY}`, "content-type": "application/json" };
    const request = body ? { method: "POST", headers, body: JSON.stringify(body) } : { headers };
    const response = await fetch(this.address + path, request);
    const text = await response.text();
    assert.equal(response.status, 200, text);
    return JSON.parse(text);
  }
}

export async function freePort() {
  const server = createServer().listen(0, HOST);
  await once(server, "listening");
  const { port } = server.address();
  server.close();
  await once(server, "close");
  return port;
}

/** The official server "everything", over HTTP. */
export async function everything() {
  const bin = join(MCP_PACKAGES, "node_modules/.bin/mcp-server-everything");
  const port = await freePort();
  const { stop } = await started(bin, ["streamableHttp"], { PORT: String(port) }, /listening on port/, { quiet: true });
  later(stop);
  return `http://${HOST}:${port}/mcp`;
}

/** A server over HTTP, made with the official SDK: `build` makes one for each connection. */
export async function serve(build, options = () => ({})) {
  const transports = new Map();
  const http = createServer(async (request, response) => {
    let transport = transports.get(request.headers["mcp-session-id"]);
    if (!transport && request.headers["mcp-session-id"]) {
      response.writeHead(404).end();
      return;
    }
    if (!transport) {
      transport = new StreamableHTTPServerTransport({
        sessionIdGenerator: () => randomUUID(),
        onsessioninitialized: (id) => transports.set(id, transport),
        ...options(http.address().port),
      });
      await build().connect(transport);
    }
    await transport.handleRequest(request, response);
  });
  http.listen(0, HOST);
  await once(http, "listening");
  later(() => {
    http.closeAllConnections();
    http.close();
  });
  return { url: `http://${HOST}:${http.address().port}/mcp`, transports };
}

export const call = (client, name, args = {}) => client.callTool({ name, arguments: args });
export const text = (answer) => answer.content.map((block) => block.text).join("\n");

export function refused(answer) {
  assert.equal(answer.isError, true, text(answer));
  const told = JSON.parse(text(answer));
  assert.ok(told.refused, text(answer));
  return told;
}
