// A model double that speaks Anthropic messages, streamed: it makes the calls that a script names, one after the other.

import { randomUUID } from "node:crypto";
import http from "node:http";

function blocks(body, script) {
  const text = JSON.stringify(body.messages);
  // A request without tools is for a title, or the like; one for a summary has no call to make.
  if (!body.tools?.length || text.includes("create a detailed summary")) return [{ type: "text", text: "A summary." }];
  const steps = script.sub && text.includes(script.sub.task) && !text.includes(script.task) ? script.sub.steps : script.steps;
  const made = body.messages
    .filter((message) => message.role === "assistant" && Array.isArray(message.content))
    .flatMap((message) => message.content.filter((block) => block.type === "tool_use")).length;
  const step = steps[made];
  if (!step) return [{ type: "text", text: "Done." }];
  return [{ type: "tool_use", id: `toolu_${randomUUID()}`, name: step[0], input: step[1] }];
}

function send(response, content, model) {
  const stop = content.some((block) => block.type === "tool_use") ? "tool_use" : "end_turn";
  const usage = { input_tokens: 10, output_tokens: 5 };
  const message = { id: `msg_${randomUUID()}`, type: "message", role: "assistant", model, content: [], stop_reason: null, stop_sequence: null, usage };
  response.writeHead(200, { "content-type": "text/event-stream" });
  const event = (data) => response.write(`event: ${data.type}\ndata: ${JSON.stringify(data)}\n\n`);
  event({ type: "message_start", message });
  content.forEach((block, index) => {
    const isText = block.type === "text";
    event({ type: "content_block_start", index, content_block: isText ? { type: "text", text: "" } : { ...block, input: {} } });
    const delta = isText ? { type: "text_delta", text: block.text } : { type: "input_json_delta", partial_json: JSON.stringify(block.input) };
    event({ type: "content_block_delta", index, delta });
    event({ type: "content_block_stop", index });
  });
  event({ type: "message_delta", delta: { stop_reason: stop, stop_sequence: null }, usage: { output_tokens: 5 } });
  event({ type: "message_stop" });
  response.end();
}

/** Starts it. `asked` holds what it was asked. */
export function start(script) {
  const asked = [];
  const server = http.createServer((request, response) => {
    let text = "";
    request.on("data", (part) => (text += part));
    request.on("end", () => {
      const body = text ? JSON.parse(text) : {};
      asked.push(body);
      if (!request.url.startsWith("/v1/messages?") && request.url !== "/v1/messages") {
        response.writeHead(404, { "content-type": "application/json" });
        return response.end("{}");
      }
      send(response, blocks(body, script), body.model);
    });
  });
  return new Promise((done) => {
    server.listen(0, "127.0.0.1", () => done({ server, asked, url: `http://127.0.0.1:${server.address().port}` }));
  });
}
