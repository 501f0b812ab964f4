// People and programs with a certified OpenID provider, for each algorithm. What is refused stands beside what must pass.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import fs from "node:fs";
import http from "node:http";
import net from "node:net";
import path from "node:path";
import { afterEach, test } from "node:test";
import { accessToken, start } from "./provider.mjs";

const { FLOWGATE, WORK } = process.env;
const POLICY = "lattice integrity: trusted < untrusted\n";

const open = [];
afterEach(async () => {
  for (const stop of open.splice(0).reverse()) await stop();
});

/** Returns a port that no program uses now. */
async function freePort() {
  const server = net.createServer();
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  const { port } = server.address();
  await new Promise((done) => server.close(done));
  return port;
}

/** Starts a model double that always says hello. */
async function model() {
  const server = http.createServer((request, response) => {
    request.resume();
    const message = { role: "assistant", content: "Hello." };
    const choices = [{ index: 0, message, finish_reason: "stop" }];
    response.writeHead(200, { "content-type": "application/json" });
    response.end(JSON.stringify({ id: "r", object: "chat.completion", created: 0, model: "double", choices, usage: {} }));
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  open.push(() => {
    server.close();
    server.closeAllConnections();
  });
  return server.address().port;
}

/** Starts a provider, and a gateway that trusts it. */
async function gateway(algorithm) {
  const port = await freePort();
  const address = `http://127.0.0.1:${port}`;
  const redirect = `${address}/ui/login/callback`;
  const provider = await start(algorithm, redirect);
  open.push(provider.stop);
  const folder = fs.mkdtempSync(path.join(WORK, "gateway-"));
  fs.writeFileSync(path.join(folder, "policy.flow"), POLICY);
  fs.writeFileSync(path.join(folder, "gateway.toml"), `
[upstreams.double]
url = "http://127.0.0.1:${await model()}/v1"
models = ["double"]
[issuers.corp]
issuer = "${provider.issuer}"
algorithms = ["${algorithm}"]
[clients.ci]
upstream = "double"
policy = "policy.flow"
[clients.ci.token]
issuer = "corp"
audience = "flowgate"
claims = { sub = "ci" }
[login.oidc]
issuer = "corp"
client-id = "gate"
client-secret-from = "OIDC_SECRET"
redirect = "${redirect}"
scopes = ["openid", "profile", "groups"]
name-claim = "preferred_username"
[login.oidc.groups.finance]
role = "approver"
`);
  const args = ["serve", "--listen", `127.0.0.1:${port}`, "--config", path.join(folder, "gateway.toml")];
  const env = { ...process.env, OIDC_SECRET: "a secret+with/signs" };
  const child = spawn(FLOWGATE, args, { env, stdio: ["ignore", "ignore", "pipe"] });
  const ended = new Promise((done) => child.on("exit", done));
  open.push(async () => {
    child.kill("SIGTERM");
    assert.equal(await ended, 0);
  });
  let said = "";
  await new Promise((found, failed) => {
    child.stderr.on("data", (part) => {
      said += part;
      if (said.includes(address)) found();
    });
    child.on("exit", () => failed(new Error(said)));
  });
  return { address, provider, log: () => said };
}

/** A browser without scripts: it keeps cookies by host and name, and follows redirects. */
class Browser {
  cookies = new Map();

  async send(url, options = {}) {
    for (let hop = 0; hop < 20; hop += 1) {
      const host = new URL(url).host;
      const kept = [...(this.cookies.get(host) ?? new Map())].map(([name, value]) => `${name}=${value}`);
      const headers = { ...options.headers, cookie: kept.join("; ") };
      const response = await fetch(url, { ...options, headers, redirect: "manual" });
      for (const cookie of response.headers.getSetCookie()) {
        const [, name, value] = /^([^=]+)=([^;]*)/.exec(cookie);
        if (!this.cookies.has(host)) this.cookies.set(host, new Map());
        this.cookies.get(host).set(name, value);
      }
      const location = response.headers.get("location");
      if (location === null) return { url, response, text: await response.text() };
      url = new URL(location, url).href;
      options = {};
    }
    throw new Error("too many redirects");
  }

  /** Logs in at the provider: fills in its forms until it sends the browser back. */
  async logIn(address, account) {
    let page = await this.send(`${address}/ui/login`);
    for (let form = 0; form < 4 && !page.url.startsWith(address); form += 1) {
      const action = /<form[^>]* action="([^"]+)"/.exec(page.text)[1];
      const prompt = /name="prompt" value="([^"]+)"/.exec(page.text)[1];
      const body = new URLSearchParams({ prompt, login: account, password: "any" });
      page = await this.send(new URL(action, page.url).href, { method: "POST", body });
    }
    return page;
  }

  takeSession(address) {
    return this.send(`${address}/ui/api/session`, { method: "POST", headers: { "x-flowgate-login": "1" } });
  }
}

function ask(address, token) {
  const body = JSON.stringify({ model: "double", messages: [{ role: "user", content: "Hello?" }] });
  const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
  return fetch(`${address}/v1/chat/completions`, { method: "POST", headers, body });
}

for (const algorithm of ["RS256", "PS256", "ES256", "EdDSA"]) {
  test(`a person logs in by a group, and one without a role does not (${algorithm})`, async () => {
    const { address } = await gateway(algorithm);
    const ann = new Browser();
    const page = await ann.logIn(address, "ann");
    assert.equal(page.response.status, 200, page.text);
    assert.equal(new URL(page.url).pathname, "/ui/");
    const session = JSON.parse((await ann.takeSession(address)).text);
    assert.equal(session.person, "ann@corp.example");
    assert.equal(session.role, "approver");
    const list = await ann.send(`${address}/api/v1/approvals`, { headers: { "x-flowgate-page": session.token } });
    assert.deepEqual(JSON.parse(list.text), { questions: [], left_out: 0 });
    const eve = new Browser();
    const rejected = await eve.logIn(address, "eve");
    assert.equal(rejected.response.status, 403);
    assert.ok(rejected.text.includes("has no role at this gateway"), rejected.text);
    assert.equal((await eve.takeSession(address)).response.status, 401);
  });

  test(`a program uses an access token, and not one for others (${algorithm})`, async () => {
    const { address, provider, log } = await gateway(algorithm);
    const token = await accessToken(provider.issuer);
    const answer = await ask(address, token);
    assert.equal(answer.status, 200, await answer.text());
    assert.equal((await ask(address, await accessToken(provider.issuer, "urn:other"))).status, 401);
    await provider.rotate("second");
    assert.equal((await ask(address, await accessToken(provider.issuer))).status, 200);
    assert.equal((await ask(address, token)).status, 401);
    assert.ok(!log().includes(token.split(".")[1]), "no token is logged");
  });
}
