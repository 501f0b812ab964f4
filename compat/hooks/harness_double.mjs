// A model double for coding agents: it makes the calls that a script names, one after the other, and keeps what it was sent.

import http from "node:http";

const usage = { input_tokens: 1, output_tokens: 1, total_tokens: 2, input_tokens_details: { cached_tokens: 0 }, output_tokens_details: { reasoning_tokens: 0 } };

/** The name of a tool as scripts have it: the gateway adds eight digits to the names of tools in namespaces. */
const scripted = (name) => (name?.includes("__") ? name.replace(/_[0-9a-f]{8}$/, "") : name);

/** An item by which a model of OpenAI's Responses calls a tool. Codex has its tool for programs in a namespace, and gives it a text in place of JSON. */
function callItem(id, [name, args], tools) {
  const common = { call_id: `c${id}`, status: "completed" };
  const offered = tools.find((tool) => scripted(tool.name) === name)?.name;
  if (!offered && name === "functions__exec") return { type: "custom_tool_call", id: `f${id}`, namespace: "functions", name: "exec", input: args.input, ...common };
  return { type: "function_call", id: `f${id}`, name: offered ?? name, arguments: JSON.stringify(args), ...common };
}

/** OpenAI's Responses, as Codex asks for them. */
function responses(body, steps) {
  const outputs = (body.input ?? []).filter((item) => /^(function|custom_tool)_call_output$/.test(item.type)).map((item) => JSON.stringify(item.output));
  const step = steps[outputs.length];
  const id = `r${outputs.length}`;
  const item = step
    ? callItem(id, step, body.tools ?? [])
    : { type: "message", id: `m${id}`, role: "assistant", status: "completed", content: [{ type: "output_text", text: "Done.", annotations: [] }] };
  const response = { id, object: "response", status: "in_progress", output: [] };
  const at = { output_index: 0, content_index: 0, item_id: item.id };
  const text = step ? [] : [{ type: "response.output_text.delta", ...at, delta: "Done." }, { type: "response.output_text.done", ...at, text: "Done." }];
  const events = [
    { type: "response.created", response },
    { type: "response.output_item.added", output_index: 0, item: step ? item : { ...item, content: [] } },
    ...text,
    { type: "response.output_item.done", output_index: 0, item },
    { type: "response.completed", response: { ...response, status: "completed", output: [item], usage } },
  ];
  return { outputs, text: events.map((event) => `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`).join("") };
}

/** Gemini's `streamGenerateContent`. */
function generateContent(body, steps) {
  const parts = (body.contents ?? []).flatMap((content) => content.parts ?? []);
  const outputs = parts.filter((part) => part.functionResponse).map((part) => JSON.stringify(part.functionResponse.response));
  // A request without tools is for a title, or the like.
  const step = body.tools ? steps[outputs.length] : undefined;
  const part = step ? { functionCall: { name: step[0], args: step[1] } } : { text: "Done." };
  const candidate = { content: { role: "model", parts: [part] }, finishReason: "STOP", index: 0 };
  const usageMetadata = { promptTokenCount: 1, candidatesTokenCount: 1, totalTokenCount: 2 };
  return { outputs, text: `data: ${JSON.stringify({ candidates: [candidate], usageMetadata })}\n\n` };
}

/** OpenAI's chat completions, as OpenCode and Copilot CLI ask for them. */
function chat(body, steps) {
  const outputs = (body.messages ?? []).filter((message) => message.role === "tool").map((message) => JSON.stringify(message.content));
  // A request without tools is for a title, or the like.
  const step = body.tools?.length ? steps[outputs.length] : undefined;
  const index = outputs.length;
  const call = step && { index: 0, id: `call_${index}`, type: "function", function: { name: step[0], arguments: JSON.stringify(step[1]) } };
  const delta = step ? { role: "assistant", content: null, tool_calls: [call] } : { role: "assistant", content: "Done." };
  const base = { id: `c${index}`, object: "chat.completion.chunk", created: 1, model: body.model };
  const events = [
    { ...base, choices: [{ index: 0, delta, finish_reason: null }] },
    { ...base, choices: [{ index: 0, delta: {}, finish_reason: step ? "tool_calls" : "stop" }], usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 } },
  ];
  return { outputs, text: events.map((event) => `data: ${JSON.stringify(event)}\n\n`).join("") + "data: [DONE]\n\n" };
}

/** Starts it. `state.outputs` holds the outputs of the last request, `state.asked` all requests. */
export function start(form, steps) {
  const reply = { responses, generateContent, chat }[form];
  const state = { outputs: [], asked: "" };
  const server = http.createServer((request, response) => {
    let text = "";
    request.on("data", (part) => (text += part));
    request.on("end", () => {
      state.asked += text;
      if (!/responses|GenerateContent|chat\/completions/.test(request.url)) {
        response.writeHead(404, { "content-type": "application/json" });
        return response.end("{}");
      }
      const made = reply(JSON.parse(text), steps);
      if (made.outputs.length > 0) state.outputs = made.outputs;
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.end(made.text);
    });
  });
  return new Promise((done) => {
    server.listen(0, "127.0.0.1", () => done({ server, state, url: `http://127.0.0.1:${server.address().port}` }));
  });
}
