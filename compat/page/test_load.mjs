// The page while ten thousand events a minute arrive: a person can still use it, and neither it nor the gateway grows.
//
// FLOWGATE_PAGE_LOAD_SECONDS is the time of the load (60), FLOWGATE_PAGE_LOAD_RATE the events in a minute (10000).

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import fs from "node:fs";
import http from "node:http";
import { createRequire } from "node:module";
import path from "node:path";
import { test } from "node:test";

const { FLOWGATE, FLOWGATE_ROOT, MODULES, CHROMIUM, WORK } = process.env;
const SECONDS = Number(process.env.FLOWGATE_PAGE_LOAD_SECONDS ?? 60);
const RATE = Number(process.env.FLOWGATE_PAGE_LOAD_RATE ?? 10_000);
const require = createRequire(path.join(MODULES, "package.json"));
const { chromium } = require("playwright-core");

/** The agents that share the load, so that none asks more than the thousand questions that a client may ask in an hour. */
const AGENTS = Array.from({ length: 20 }, (_, number) => `agent${number}`);
const keyOf = (agent) => `the-key-of-${agent}`;
const KEYS = { ...Object.fromEntries(AGENTS.map((agent) => [agent.toUpperCase(), keyOf(agent)])), ANN_KEY: "the-key-of-ann-herself" };
const ARGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--enable-precise-memory-info"];
const POLICY = `${fs.readFileSync(path.join(FLOWGATE_ROOT, "examples/gateway/policy.flow"), "utf8")}
ask "mails are confirmed" if:
    (call: ToolCall) is tool:send_mail
`;
/** The calls of one turn. Each is a verdict and a question, and each question ends: two changes that the page is told. */
const CALLS = 20;
/** The longest time from an input to the next frame that shows its effect, for 19 of 20 inputs, in milliseconds. */
const MOST_LATENCY = 200;
/** The time between the begin of a conversation and the message that ends its questions, in milliseconds. */
const OPEN_FOR = 2000;

const wait = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));
const quantile = (values, share) => values.toSorted((one, other) => one - other)[Math.min(values.length - 1, Math.floor(values.length * share))];
const median = (values) => quantile(values, 0.5);

/** A model that calls the tool several times, until it reads that the calls were refused. */
function startModel() {
  const server = http.createServer((request, response) => {
    let text = "";
    request.on("data", (part) => (text += part));
    request.on("end", () => {
      const { messages } = JSON.parse(text);
      const calls = JSON.stringify(messages.slice(1)).includes("refused") ? 0 : CALLS;
      const tool_calls = Array.from({ length: calls }, (_, index) => ({ id: `x${index}`, type: "function", function: { name: "send_mail", arguments: JSON.stringify({ to: `ann${index}`, body: "hello ".repeat(20) }) } }));
      const message = calls > 0 ? { role: "assistant", content: null, tool_calls } : { role: "assistant", content: "Done." };
      const choices = [{ index: 0, message, finish_reason: calls > 0 ? "tool_calls" : "stop" }];
      response.writeHead(200, { "content-type": "application/json" });
      response.end(JSON.stringify({ id: "r", created: 0, model: "double", object: "chat.completion", choices, usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 } }));
    });
  });
  return new Promise((done) => server.listen(0, "127.0.0.1", () => done(server)));
}

/** Starts the gateway; returns its address and its process. */
async function startGateway(model) {
  fs.writeFileSync(path.join(WORK, "load.flow"), POLICY);
  fs.writeFileSync(path.join(WORK, "load.toml"), `
[upstreams.double]
url = "http://127.0.0.1:${model.address().port}/v1"
models = ["double"]

${AGENTS.map((agent) => `[clients.${agent}]
key-from = "${agent.toUpperCase()}"
upstream = "double"
policy = "load.flow"
user-messages = "trust-unmarked-even-if-pasted"
method = "everything"
requests-per-minute = 1000000
parallel = 256
sessions = 400
`).join("")}
[people.ann]
key-from = "ANN_KEY"
role = "approver"

[approvals]
wait-seconds = 0

[store]
url = "sqlite:load.db"
memory-mib = 4
`);
  const args = ["serve", "--listen", "127.0.0.1:0", "--config", path.join(WORK, "load.toml")];
  const child = spawn(FLOWGATE, args, { env: { ...process.env, ...KEYS }, stdio: ["ignore", "ignore", "pipe"] });
  let said = "";
  const address = await new Promise((found, failed) => {
    child.stderr.on("data", (part) => {
      // The log goes on for the whole test; only its begin is needed.
      if (said.length < 100_000) said += part;
      const match = /http:\/\/\S+:\d+/.exec(said);
      if (match) found(match[0]);
    });
    child.on("exit", () => failed(new Error(said)));
  });
  return { address, child };
}

/** The memory of a process, in MiB. */
const residentMib = (pid) => Number(/VmRSS:\s+(\d+)/.exec(fs.readFileSync(`/proc/${pid}/status`, "utf8"))[1]) / 1024;

/** Sends one message of a conversation. */
async function say(address, agent, conversation, messages) {
  const word = { type: "string" };
  const tools = [{ type: "function", function: { name: "send_mail", description: "send_mail", parameters: { type: "object", properties: { to: word, body: word } } } }];
  const response = await fetch(`${address}/v1/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${keyOf(agent)}`, "content-type": "application/json", "x-flowgate-conversation": conversation },
    body: JSON.stringify({ model: "double", messages, tools }),
  });
  const body = await response.json();
  assert.equal(response.status, 200, JSON.stringify(body));
  return body.choices[0].message;
}

/** Runs conversations at the rate until `end`: each asks several questions, and goes on without the answers. */
async function load(address, end) {
  const begun = Date.now();
  const pause = (60_000 * CALLS * 2) / RATE;
  const running = new Set();
  for (let number = 0; ; number++) {
    await wait(begun + number * pause - Date.now());
    if (Date.now() >= end) break;
    const agent = AGENTS[number % AGENTS.length];
    const talk = async () => {
      const messages = [{ role: "user", content: "Mail them." }];
      messages.push(await say(address, agent, `load-${number}`, messages));
      await wait(OPEN_FOR);
      await say(address, agent, `load-${number}`, [...messages, { role: "user", content: "Never mind." }]);
    };
    const talking = talk().finally(() => running.delete(talking));
    running.add(talking);
    // A gateway that is slower than the rate gets no more conversations at once than it can hold.
    if (running.size > 150) await Promise.race(running);
  }
  await Promise.all(running);
}

/** Counts the changes of questions, as a page is told them. */
async function countEvents(address, signal, counted) {
  const response = await fetch(`${address}/api/v1/approvals/events`, { headers: { authorization: `Bearer ${KEYS.ANN_KEY}` }, signal });
  const decoder = new TextDecoder();
  try {
    for await (const part of response.body) counted.events += decoder.decode(part, { stream: true }).split("\ndata: ").length - 1;
  } catch (failure) {
    if (!signal.aborted) counted.failure = failure;
  }
}

/**
 * Uses the page until `end`: moves between questions by a key, and opens another view and comes back by the mouse. Returns the
 * latency of each input, as the browser measures it to the next frame, and samples of memory.
 */
async function use(page, session, pid, end) {
  const samples = [];
  let inputs = 0;
  await page.evaluate(() => {
    globalThis.latencies = [];
    globalThis.longTasks = [];
    new PerformanceObserver((list) => {
      for (const { name, duration } of list.getEntries()) if (name === "keydown" || name === "click") globalThis.latencies.push(duration);
    }).observe({ type: "event", durationThreshold: 16 });
    new PerformanceObserver((list) => {
      for (const { duration } of list.getEntries()) globalThis.longTasks.push(duration);
    }).observe({ type: "longtask" });
  });
  for (let round = 0; Date.now() < end; round++) {
    for (let press = 0; press < 4; press++) {
      await page.keyboard.press(press % 2 === 0 ? "j" : "k");
      inputs += 1;
      await wait(200);
    }
    for (const view of ["Rates", "Questions"]) {
      const box = await page.getByRole("link", { name: view }).boundingBox();
      await page.mouse.click(box.x + 8, box.y + box.height / 2);
      inputs += 1;
      await wait(250);
    }
    if (round % 2 === 0) {
      await session.send("HeapProfiler.collectGarbage");
      const { usedSize } = await session.send("Runtime.getHeapUsage");
      const nodes = await page.evaluate(() => document.querySelectorAll("*").length);
      samples.push({ heap: usedSize / 1024 / 1024, nodes, resident: residentMib(pid) });
    }
  }
  // Inputs that the browser does not report took less than the threshold.
  const [reported, longTasks] = await page.evaluate(() => [globalThis.latencies, globalThis.longTasks]);
  const latencies = [...reported, ...Array.from({ length: Math.max(0, inputs - reported.length) }, () => 16)];
  return { samples, latencies, longTasks, inputs };
}

test(`the page is responsive, and memory is flat, at ${RATE} events a minute`, { timeout: (SECONDS + 180) * 1000 }, async () => {
  const model = await startModel();
  const { address, child } = await startGateway(model);
  const ended = new Promise((done) => child.on("exit", done));
  const browser = await chromium.launch({ executablePath: CHROMIUM, args: ARGS });
  try {
    const page = await browser.newPage({ viewport: { width: 1000, height: 800 } });
    const errors = [];
    page.on("pageerror", (error) => errors.push(String(error)));
    await page.goto(`${address}/ui/`);
    await page.getByLabel("Your key").fill(KEYS.ANN_KEY);
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: "Questions", level: 1 }).waitFor();
    const session = await page.context().newCDPSession(page);
    await session.send("HeapProfiler.enable");

    const idle = await use(page, session, child.pid, Date.now() + 6000);
    const counted = { events: 0 };
    const counting = new AbortController();
    const counter = countEvents(address, counting.signal, counted);
    const [begun, end] = [Date.now(), Date.now() + SECONDS * 1000];
    const loading = load(address, end);
    await page.locator("article.card").first().waitFor();
    const busy = await use(page, session, child.pid, end);
    await loading;
    const minutes = (Date.now() - begun) / 60_000;
    await wait(1000);
    counting.abort();
    await counter;
    assert.equal(counted.failure, undefined);

    const third = Math.floor(busy.samples.length / 3);
    const grown = (member) => {
      const values = busy.samples.map((sample) => sample[member]);
      return [median(values.slice(0, third)), median(values.slice(-third))];
    };
    const [heap, nodes, resident] = ["heap", "nodes", "resident"].map(grown);
    const p95 = quantile(busy.latencies, 0.95);
    const rate = counted.events / minutes;
    const figures = {
      "events a minute": Math.round(rate),
      "inputs": busy.inputs,
      "latency of an input, idle, p95 (ms)": quantile(idle.latencies, 0.95),
      "latency of an input, p50, p95, most (ms)": [median(busy.latencies), p95, Math.max(...busy.latencies)],
      "longest task (ms), tasks over 50 ms": [Math.round(Math.max(0, ...busy.longTasks)), busy.longTasks.length],
      "heap of the page, first and last third (MiB)": heap.map((value) => value.toFixed(1)),
      "elements, first and last third": nodes,
      "memory of the gateway, first and last third (MiB)": resident.map((value) => value.toFixed(1)),
    };
    console.log(Object.entries(figures).map(([name, value]) => `${name}: ${[value].flat().join(", ")}`).join("\n"));
    assert.deepEqual(errors, []);
    // The rate that was asked for arrived, but for the begin and the end of the load.
    assert.ok(rate > RATE * 0.9, `only ${rate} events a minute arrived`);
    assert.ok(busy.inputs > SECONDS, `only ${busy.inputs} inputs`);
    assert.ok(p95 <= MOST_LATENCY, `an input took ${p95} ms`);
    assert.ok(heap[1] <= heap[0] * 1.25 + 1, `the heap of the page grows: ${heap}`);
    assert.ok(Math.max(...busy.samples.map((sample) => sample.nodes)) < 10_000, `the page has ${nodes} elements`);
    assert.ok(resident[1] <= resident[0] * 1.2 + 16, `the gateway grows: ${resident} MiB`);
  } finally {
    await browser.close();
    child.kill("SIGTERM");
    assert.equal(await ended, 0);
    model.close();
    model.closeAllConnections();
  }
});
