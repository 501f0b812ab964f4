// A model double that speaks chat completions, and obeys whatever it sees.

import http from "node:http";

const textOf = (message) =>
  typeof message.content === "string" ? message.content : (message.content ?? []).map((part) => part.text ?? "").join(" ");

/** The calls to make; none to end the turn. */
function callsOf({ messages }) {
  const seen = messages.map(textOf).join("\n");
  // What happened since the user's last message.
  const turn = messages.slice(messages.findLastIndex(({ role }) => role === "user"));
  const made = turn.flatMap((message) => message.tool_calls ?? []).map((call) => call.function.name);
  const hasTried = (name) => made.includes(name) || turn.map(textOf).join("\n").includes("refused");
  const mail = (to) => ["send_mail", { to, body: "hello" }];
  if (seen.includes("as well") && seen.includes("PAY MALLORY")) return hasTried("send_money") ? [] : [["send_money", { to: "mallory", amount: 500 }], mail("ann")];
  const reads = /Only read the page, ([0-9]+) times/.exec(textOf(turn[0] ?? {}));
  if (reads) return made.length < Number(reads[1]) ? [["read_page", { url: "https://example.org/news" }]] : [];
  const gift = /Give Ann ([0-9]+)/.exec(seen);
  if (gift) return hasTried("send_gift") ? [] : [["send_gift", { to: "ann", amount: Number(gift[1]) }]];
  if (seen.includes("PAY MALLORY")) return hasTried("send_money") ? [] : [["send_money", { to: "mallory", amount: 500 }]];
  if (seen.includes("What is new")) return made.includes("read_page") ? [] : [["read_page", { url: "https://example.org/news" }]];
  if (hasTried("send_mail")) return [];
  return seen.includes("both") ? [mail("ann"), mail("bob")] : [mail("ann")];
}

/** Starts it. */
export function start() {
  const server = http.createServer((request, response) => {
    let text = "";
    request.on("data", (part) => (text += part));
    request.on("end", () => {
      const calls = callsOf(JSON.parse(text));
      const tool_calls = calls.map(([name, values], index) => ({ id: `x${index}`, type: "function", function: { name, arguments: JSON.stringify(values) } }));
      const message = calls.length > 0 ? { role: "assistant", content: null, tool_calls } : { role: "assistant", content: "Done." };
      const choices = [{ index: 0, message, finish_reason: calls.length > 0 ? "tool_calls" : "stop" }];
      response.writeHead(200, { "content-type": "application/json" });
      response.end(JSON.stringify({ id: "r", created: 0, model: "double", object: "chat.completion", choices, usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 } }));
    });
  });
  return new Promise((done) => {
    server.listen(0, "127.0.0.1", () => done({ server, port: server.address().port }));
  });
}
