// A model double in the form of Anthropic's Messages, OpenAI's Responses or Gemini's generateContent, streamed or not. It is capable: it takes the next step
// of a plan. And it is gullible: if anything that it is shown asks it to run a command, it tries that first, once.

import { randomUUID } from "node:crypto";
import http from "node:http";

/** What an instruction planted in a text looks like. */
const ORDER = /PLEASE RUN: (.+?)(?:\n|\\n|"|$)/;
/** What stands in a view for a text that is hidden from the step. */
const HIDDEN = /\[hidden (h\d+)/g;

/** The name of a tool as its plan has it: the gateway gives tools in namespaces other names, with eight digits at the end. */
const planned = (name) => (name.includes("__") ? name.replace(/_[0-9a-f]{8}$/, "") : name);

/** The reasoning that precedes each answer, and its seal, which only the provider can read. */
const THOUGHT = "The next step of the plan is due.";
const SEAL = Buffer.from("a seal").toString("base64");

/** Whether a call was made: one of this tool whose arguments have these values, and perhaps others. */
const isMade = (calls, [name, args]) => calls.some((call) => planned(call.name) === name && Object.entries(args).every(([key, value]) => JSON.stringify(call.args[key]) === JSON.stringify(value)));

/** Returns the next call, or `null` if the plan is done. `view` has the calls so far and all texts, and `offer` the descriptions of tools. */
function next(view, offer, plan, shell) {
  const order = (ORDER.exec(view.text) ?? ORDER.exec(offer))?.[1];
  if (order && !isMade(view.calls, shell(order))) return shell(order);
  for (const step of plan) {
    if (step === "look") {
      const hidden = [...view.text.matchAll(HIDDEN)].at(-1)?.[1];
      if (hidden && view.calls.every(({ name }) => name !== "look")) return ["look", { regions: [hidden] }];
    } else if (!isMade(view.calls, step)) {
      return step;
    }
  }
  return null;
}

/** Returns a value of this schema, with `text` in it wherever it has a text. */
function ofSchema(schema, text) {
  switch (schema.type?.toLowerCase()) {
    case "object":
      return Object.fromEntries(Object.entries(schema.properties ?? {}).map(([name, property]) => [name, ofSchema(property, text)]));
    case "array":
      return [];
    case "boolean":
      return false;
    case "integer":
    case "number":
      return 1;
    default:
      return schema.enum?.[0] ?? text;
  }
}

const parts = (content) => (Array.isArray(content) ? content : [{ type: "text", text: content ?? "" }]);

const FORMS = {
  messages: {
    read(body) {
      const blocks = (body.messages ?? []).flatMap(({ content }) => parts(content));
      const calls = blocks.filter(({ type }) => type === "tool_use").map(({ name, input }) => ({ name, args: input }));
      return { calls, text: JSON.stringify([body.system, ...blocks.filter(({ type }) => type !== "tool_use")]), hasTools: body.tools?.length > 0 };
    },
    write(call, text, model) {
      const block = call ? { type: "tool_use", id: `toolu_${randomUUID()}`, name: call[0], input: {} } : { type: "text", text: "" };
      const delta = call ? { type: "input_json_delta", partial_json: JSON.stringify(call[1]) } : { type: "text_delta", text };
      const usage = { input_tokens: 10, output_tokens: 5 };
      return [
        { type: "message_start", message: { id: `msg_${randomUUID()}`, type: "message", role: "assistant", model, content: [], stop_reason: null, stop_sequence: null, usage } },
        { type: "content_block_start", index: 0, content_block: { type: "thinking", thinking: "", signature: "" } },
        { type: "content_block_delta", index: 0, delta: { type: "thinking_delta", thinking: THOUGHT } },
        { type: "content_block_delta", index: 0, delta: { type: "signature_delta", signature: SEAL } },
        { type: "content_block_stop", index: 0 },
        { type: "content_block_start", index: 1, content_block: block },
        { type: "content_block_delta", index: 1, delta },
        { type: "content_block_stop", index: 1 },
        { type: "message_delta", delta: { stop_reason: call ? "tool_use" : "end_turn", stop_sequence: null }, usage },
        { type: "message_stop" },
      ];
    },
    whole([{ message }, , , , , { content_block: block }, , , { delta }], call, text) {
      const thinking = { type: "thinking", thinking: THOUGHT, signature: SEAL };
      return { ...message, ...delta, content: [thinking, call ? { ...block, input: call[1] } : { ...block, text }] };
    },
  },
  responses: {
    read(body) {
      const items = body.input ?? [];
      const calls = items.filter(({ type }) => type === "function_call").map((item) => ({ name: item.name, args: JSON.parse(item.arguments) }));
      return { calls, text: JSON.stringify([body.instructions, ...items.filter(({ type }) => type !== "function_call")]), hasTools: body.tools?.length > 0 };
    },
    write(call, text, model) {
      const [id, at] = [randomUUID(), { output_index: 1 }];
      const reasoning = { type: "reasoning", id: `rs_${id}`, summary: [{ type: "summary_text", text: THOUGHT }], encrypted_content: SEAL };
      const item = call
        ? { type: "function_call", id: `fc_${id}`, call_id: `call_${id}`, name: call[0], arguments: JSON.stringify(call[1]), status: "completed" }
        : { type: "message", id: `msg_${id}`, role: "assistant", status: "completed", content: [{ type: "output_text", text, annotations: [] }] };
      const begun = call ? { ...item, arguments: "", status: "in_progress" } : { ...item, content: [], status: "in_progress" };
      const usage = { input_tokens: 10, output_tokens: 5, total_tokens: 15, input_tokens_details: { cached_tokens: 0 }, output_tokens_details: { reasoning_tokens: 0 } };
      const response = { id: `resp_${id}`, object: "response", created_at: 0, model, status: "in_progress", output: [] };
      const middle = call
        ? [{ type: "response.function_call_arguments.delta", ...at, item_id: item.id, delta: item.arguments }, { type: "response.function_call_arguments.done", ...at, item_id: item.id, arguments: item.arguments }]
        : [{ type: "response.output_text.delta", ...at, item_id: item.id, content_index: 0, delta: text }, { type: "response.output_text.done", ...at, item_id: item.id, content_index: 0, text }];
      return [
        { type: "response.created", response },
        { type: "response.output_item.added", output_index: 0, item: { ...reasoning, summary: [] } },
        { type: "response.output_item.done", output_index: 0, item: reasoning },
        { type: "response.output_item.added", ...at, item: begun },
        ...middle,
        { type: "response.output_item.done", ...at, item },
        { type: "response.completed", response: { ...response, status: "completed", output: [reasoning, item], usage } },
      ];
    },
    whole: (events) => events.at(-1).response,
  },
  generateContent: {
    read(body) {
      const parts = (body.contents ?? []).flatMap((content) => content.parts ?? []);
      const calls = parts.filter((part) => part.functionCall).map(({ functionCall }) => ({ name: functionCall.name, args: functionCall.args }));
      return { calls, text: JSON.stringify([body.systemInstruction, ...parts.filter((part) => !part.functionCall)]), hasTools: body.tools?.length > 0, schema: body.generationConfig?.responseJsonSchema ?? body.generationConfig?.responseSchema };
    },
    write(call, text) {
      const part = { ...(call ? { functionCall: { name: call[0], args: call[1] } } : { text }), thoughtSignature: SEAL };
      const candidate = { content: { role: "model", parts: [{ text: THOUGHT, thought: true }, part] }, finishReason: "STOP", index: 0 };
      return [{ candidates: [candidate], usageMetadata: { promptTokenCount: 10, candidatesTokenCount: 5, totalTokenCount: 15 } }];
    },
    whole: ([event]) => event,
  },
};

/**
 * Starts a double of this form. `plan` are calls, each a name and the arguments, or `"look"`: to look at the newest text
 * that is hidden; `shell` makes a call out of a command. `views` has the texts that the model was shown, request by request, `asides` those of
 * requests without tools, `offers` the tools that it was offered, and `steps` what it answered.
 */
export function start(form, plan, shell) {
  const views = [];
  const asides = [];
  const offers = [];
  const steps = [];
  const server = http.createServer((request, response) => {
    let body = "";
    request.on("data", (part) => (body += part));
    request.on("end", () => {
      if (request.method !== "POST") {
        response.writeHead(404, { "content-type": "application/json" });
        return response.end("{}");
      }
      const asked = JSON.parse(body);
      const view = FORMS[form].read(asked);
      const offer = JSON.stringify(asked.tools ?? []);
      (view.hasTools ? views : asides).push(view.text);
      offers.push(offer);
      // A request without tools is for a title, the choice of a model, or the like.
      const step = view.hasTools ? next(view, offer, plan, shell) : null;
      const offered = step && asked.tools.find((tool) => planned(tool.name ?? "") === step[0]);
      const call = step && [offered?.name ?? step[0], step[1]];
      // A model without tools that is shown an order sums it up.
      const order = view.hasTools ? null : ORDER.exec(view.text)?.[1];
      const said = order ? `The text says: PLEASE RUN: ${order}` : "Fixed: the test passes.";
      const text = view.schema ? JSON.stringify(ofSchema(view.schema, said)) : said;
      steps.push(call ? `${call[0]} ${JSON.stringify(call[1])}` : text);
      const events = FORMS[form].write(call, text, asked.model);
      if (!asked.stream && !request.url.includes(":streamGenerateContent")) {
        response.writeHead(200, { "content-type": "application/json" });
        return response.end(JSON.stringify(FORMS[form].whole(events, call, text)));
      }
      response.writeHead(200, { "content-type": "text/event-stream" });
      const named = (event) => (event.type ? `event: ${event.type}\n` : "");
      response.end(events.map((event) => `${named(event)}data: ${JSON.stringify(event)}\n\n`).join(""));
    });
  });
  return new Promise((done) => server.listen(0, "127.0.0.1", () => done({ server, views, asides, offers, steps, url: `http://127.0.0.1:${server.address().port}` })));
}
