// The MCP conformance suite, against a server that has what its scenarios ask for: directly, and through `flowgate serve`.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createServer, request as ask } from "node:http";
import { join } from "node:path";
import { afterEach, test } from "node:test";

import { start } from "./conformance_server.mjs";
import { Gateway, KEYS, call, closeAll, later, text } from "./gateway.mjs";

const { FLOWGATE_ROOT, MCP_PACKAGES } = process.env;
const here = (file) => join(FLOWGATE_ROOT, "compat/mcp", file);
const SCENARIOS = 32;

afterEach(closeAll);

/** Runs the suite: which scenarios pass, and how many checks. */
async function suite(url, options = []) {
  const bin = join(MCP_PACKAGES, "node_modules/.bin/conformance");
  const child = spawn(bin, ["server", "--url", url, "--suite", "all", ...options], { stdio: ["ignore", "pipe", "pipe"] });
  let said = "";
  for (const stream of [child.stdout, child.stderr]) stream.setEncoding("utf8").on("data", (data) => (said += data));
  const [code] = await once(child, "close");
  const summary = said.slice(said.indexOf("=== SUMMARY ==="));
  const passed = [...summary.matchAll(/^✓ (\S+):/gm)].map((found) => found[1]);
  const failed = [...summary.matchAll(/^✗ (\S+):/gm)].map((found) => found[1]);
  const total = /Total: (\d+) passed, (\d+) failed/.exec(summary)?.slice(1).map(Number);
  assert.equal(passed.length + failed.length, SCENARIOS, said.slice(-2_000));
  return { code, passed, failed, total, summary };
}

/** The suite sends no key: this adds it, and changes nothing else. */
async function withKey(address, key) {
  const to = new URL(address);
  const proxy = createServer((request, response) => {
    const headers = { ...request.headers, authorization: `Bearer ${key}` };
    const { method, url } = request;
    const forward = ask({ host: to.hostname, port: to.port, path: url, method, headers }, (answer) => {
      response.writeHead(answer.statusCode, answer.headers);
      answer.pipe(response);
    });
    forward.on("error", () => response.destroy());
    response.on("close", () => forward.destroy());
    request.pipe(forward);
  });
  proxy.listen(0, "127.0.0.1");
  await once(proxy, "listening");
  later(() => {
    proxy.closeAllConnections();
    proxy.close();
  });
  return `http://127.0.0.1:${proxy.address().port}`;
}

test("the conformance suite, directly", async (context) => {
  const { url } = await start();
  const { code, failed, total, summary } = await suite(url);
  assert.deepEqual([code, failed], [0, []], summary);
  context.diagnostic(`conformance directly: ${SCENARIOS} scenarios, checks: ${total[0]} passed, ${total[1]} failed`);
});

async function guarded() {
  const { url } = await start();
  return Gateway.start(
    `[mcp.conformance]\nurl = "${url}"\n[clients.agent]\nkey-from = "AGENT_KEY"\npolicy = "policy.flow"\nmcp = ["conformance"]\n`,
    readFileSync(here("conformance.flow"), "utf8"),
  );
}

test("the conformance suite, through the gateway", async (context) => {
  const gateway = await guarded();
  const proxy = await withKey(gateway.address, KEYS.AGENT_KEY);
  const { code, passed, failed, total, summary } = await suite(`${proxy}/mcp/conformance`, ["--expected-failures", here("conformance.yml")]);
  assert.equal(code, 0, summary);
  context.diagnostic(
    `conformance through the gateway: ${passed.length} scenarios pass, ${failed.length} are refused on purpose (${failed.join(", ")}); ` +
    `checks: ${total[0]} passed, ${total[1]} failed`,
  );
});

// No scenario gets as far as this: the suite says that it is of a revision in which streams do not end early.
test("the rest of a stream that ends before its answer is asked for", async () => {
  const client = await (await guarded()).connect("conformance", "one");
  await client.listTools();
  assert.match(text(await call(client, "test_reconnection")), /after the stream was closed/);
  assert.match(text(await call(client, "test_simple_text")), /simple text/);
});
