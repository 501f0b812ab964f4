// A server that has everything that the scenarios of the MCP conformance suite ask for, made with the official SDK.
import { require, serve } from "./gateway.mjs";

const { Server } = require("@modelcontextprotocol/sdk/server/index.js");
const types = require("@modelcontextprotocol/sdk/types.js");

const PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";
const WAV = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA=";
const text = (said) => ({ type: "text", text: said });
const image = { type: "image", data: PNG, mimeType: "image/png" };
const resource = (uri, mimeType, said) => ({ type: "resource", resource: { uri, mimeType, text: said } });
const object = (properties = {}, required = Object.keys(properties)) => ({ type: "object", properties, required });
const string = { type: "string" };
const soon = (milliseconds = 50) => new Promise((resolve) => setTimeout(resolve, milliseconds));

async function elicit({ sendRequest }, message, properties) {
  const params = { message, requestedSchema: object(properties, []) };
  const { action, content } = await sendRequest({ method: "elicitation/create", params }, types.ElicitResultSchema);
  return [text(`Elicitation completed: action=${action}, content=${JSON.stringify(content)}`)];
}

const DEFAULTS = {
  name: { type: "string", default: "John Doe" },
  age: { type: "integer", default: 30 },
  score: { type: "number", default: 95.5 },
  status: { type: "string", enum: ["active", "inactive", "pending"], default: "active" },
  verified: { type: "boolean", default: true },
};
const titled = (...names) => names.map((title, index) => ({ const: `value${index + 1}`, title }));
const ENUMS = {
  untitledSingle: { type: "string", enum: ["option1", "option2", "option3"] },
  titledSingle: { type: "string", oneOf: titled("First Option", "Second Option") },
  legacyEnum: { type: "string", enum: ["opt1", "opt2", "opt3"], enumNames: ["Option One", "Option Two", "Option Three"] },
  untitledMulti: { type: "array", items: { type: "string", enum: ["option1", "option2", "option3"] } },
  titledMulti: { type: "array", items: { anyOf: titled("First Choice", "Second Choice") } },
};

/** What each tool takes, and what it answers. */
const TOOLS = {
  test_simple_text: [object(), () => [text("This is a simple text response for testing.")]],
  test_image_content: [object(), () => [image]],
  test_audio_content: [object(), () => [{ type: "audio", data: WAV, mimeType: "audio/wav" }]],
  test_embedded_resource: [object(), () => [resource("test://embedded-resource", "text/plain", "This is an embedded resource content.")]],
  test_multiple_content_types: [object(), () => [
    text("Multiple content types test:"), image,
    resource("test://mixed-content-resource", "application/json", '{"test":"data","value":123}'),
  ]],
  test_tool_with_logging: [object(), async (_, { sendNotification }) => {
    for (const data of ["Tool execution started", "Tool processing data", "Tool execution completed"]) {
      await sendNotification({ method: "notifications/message", params: { level: "info", data } });
      await soon();
    }
    return [text("Logged.")];
  }],
  test_error_handling: [object(), () => { throw new Error("This tool intentionally returns an error for testing"); }],
  test_tool_with_progress: [object(), async (_, { _meta, sendNotification }) => {
    for (const progress of [0, 50, 100]) {
      const params = { progressToken: _meta?.progressToken, progress, total: 100 };
      if (_meta?.progressToken !== undefined) await sendNotification({ method: "notifications/progress", params });
      await soon();
    }
    return [text("Done.")];
  }],
  test_sampling: [object({ prompt: string }), async ({ prompt }, { sendRequest }) => {
    const params = { messages: [{ role: "user", content: text(prompt) }], maxTokens: 100 };
    const said = await sendRequest({ method: "sampling/createMessage", params }, types.CreateMessageResultSchema);
    return [text(`LLM response: ${said.content.text}`)];
  }],
  test_elicitation: [object({ message: string }), ({ message }, extra) => elicit(extra, message, { username: string, email: string })],
  test_elicitation_sep1034_defaults: [object(), (_, extra) => elicit(extra, "Please look these over", DEFAULTS)],
  test_elicitation_sep1330_enums: [object(), (_, extra) => elicit(extra, "Please choose", ENUMS)],
  test_reconnection: [object(), async (_, { closeSSEStream }) => {
    closeSSEStream?.();
    await soon(100);
    return [text("Said after the stream was closed.")];
  }],
  json_schema_2020_12_tool: [{
    $schema: "https://json-schema.org/draft/2020-12/schema",
    $defs: { address: object({ street: string, city: string }, []) },
    ...object({ name: string, address: { $ref: "#/$defs/address" } }, []),
    additionalProperties: false,
  }, () => [text("A schema.")]],
};

const RESOURCES = {
  "test://static-text": { mimeType: "text/plain", text: "This is the content of the static text resource." },
  "test://static-binary": { mimeType: "image/png", blob: PNG },
  "test://watched-resource": { mimeType: "text/plain", text: "It may change." },
};

function read(uri) {
  const id = /^test:\/\/template\/(\w+)\/data$/.exec(uri)?.[1];
  if (id) return { mimeType: "application/json", text: JSON.stringify({ id, templateTest: true, data: `Data for ID: ${id}` }) };
  if (!Object.hasOwn(RESOURCES, uri)) throw new types.McpError(types.ErrorCode.InvalidParams, "there is no such resource");
  return RESOURCES[uri];
}

const user = (content) => ({ role: "user", content });
const PROMPTS = {
  test_simple_prompt: [[], () => [user(text("This is a simple prompt for testing."))]],
  test_prompt_with_arguments: [["arg1", "arg2"], ({ arg1, arg2 }) => [user(text(`Prompt with arguments: arg1='${arg1}', arg2='${arg2}'`))]],
  test_prompt_with_embedded_resource: [["resourceUri"], ({ resourceUri }) => [
    user(resource(resourceUri, "text/plain", "Embedded resource content for testing.")),
    user(text("Please process the embedded resource above.")),
  ]],
  test_prompt_with_image: [[], () => [user(image), user(text("Please analyze the image above."))]],
};

function build() {
  const capabilities = { tools: {}, resources: { subscribe: true }, prompts: {}, completions: {}, logging: {} };
  const server = new Server({ name: "conformance", version: "1" }, { capabilities });
  const on = (schema, answer) => server.setRequestHandler(schema, answer);
  on(types.ListToolsRequestSchema, () => ({
    tools: Object.entries(TOOLS).map(([name, [inputSchema]]) => ({ name, description: `For the scenario of ${name}.`, inputSchema })),
  }));
  on(types.CallToolRequestSchema, async ({ params }, extra) => {
    if (!Object.hasOwn(TOOLS, params.name)) throw new types.McpError(types.ErrorCode.InvalidParams, "there is no such tool");
    try {
      return { content: await TOOLS[params.name][1](params.arguments ?? {}, extra) };
    } catch (error) {
      return { isError: true, content: [text(error.message)] };
    }
  });
  on(types.ListResourcesRequestSchema, () => ({
    resources: Object.entries(RESOURCES).map(([uri, { mimeType }]) => ({ uri, name: uri, description: `For ${uri}.`, mimeType })),
  }));
  on(types.ListResourceTemplatesRequestSchema, () => ({
    resourceTemplates: [{ uriTemplate: "test://template/{id}/data", name: "template", mimeType: "application/json" }],
  }));
  on(types.ReadResourceRequestSchema, ({ params: { uri } }) => ({ contents: [{ uri, ...read(uri) }] }));
  on(types.SubscribeRequestSchema, () => ({}));
  on(types.UnsubscribeRequestSchema, () => ({}));
  on(types.ListPromptsRequestSchema, () => ({
    prompts: Object.entries(PROMPTS).map(([name, [names]]) => ({
      name, description: `For the scenario of ${name}.`, arguments: names.map((one) => ({ name: one, required: true })),
    })),
  }));
  on(types.GetPromptRequestSchema, ({ params }) => {
    if (!Object.hasOwn(PROMPTS, params.name)) throw new types.McpError(types.ErrorCode.InvalidParams, "there is no such prompt");
    return { messages: PROMPTS[params.name][1](params.arguments ?? {}) };
  });
  on(types.CompleteRequestSchema, () => ({ completion: { values: ["paris", "park", "party"], total: 150, hasMore: false } }));
  return server;
}

/** Remembers what was sent in a stream, so that a client that comes back gets the rest. */
function remembered() {
  const events = [];
  return {
    storeEvent: async (stream, message) => {
      events.push([stream, message]);
      return String(events.length);
    },
    replayEventsAfter: async (last, { send }) => {
      const stream = events[Number(last) - 1]?.[0];
      for (let at = Number(last); at < events.length; at += 1) {
        if (events[at][0] === stream && events[at][1].jsonrpc) await send(String(at + 1), events[at][1]);
      }
      return stream;
    },
  };
}

export const start = () => serve(build, (port) => ({
  eventStore: remembered(), retryInterval: 100, enableDnsRebindingProtection: true,
  allowedHosts: [`127.0.0.1:${port}`], allowedOrigins: [`http://127.0.0.1:${port}`],
}));
