// Forwards what an agent sends to the gateway, and notes its shape: which fields each kind of request has, with their types. No text that
// the agent has is noted, and no value but those of enumerations.

import http from "node:http";

/** Fields whose strings are values of enumerations, and not texts. */
const ENUMERATED = new Set(["type", "role", "effort", "display", "keep", "mode", "status", "detail", "verbosity", "summary", "tool_choice", "encoding_format", "syntax", "include", "include[]", "phase", "media_type", "mimeType", "ttl", "thinkingLevel", "truncation", "service_tier"]);
/** Fields whose values are schemas, arguments, or dropped as a whole. Below them are no fields of the form. */
const OPAQUE = new Set(["classifier_context", "input_schema", "parameters", "parametersJsonSchema", "responseJsonSchema", "responseSchema", "schema", "args", "response", "input"]);

/** Adds the fields of a value to `shape`, which maps paths to sets of types. */
export function note(shape, path, name, value) {
  const add = (type) => (shape[path] ??= new Set()).add(type);
  if (Array.isArray(value)) {
    if (value.length === 0) add("[]");
    for (const element of value) note(shape, `${path}[]`, `${name}[]`, element);
  } else if (value !== null && typeof value === "object") {
    // The kinds of elements that a list mixes have different fields.
    const kind = path.endsWith("]") && (value.type ?? value.role);
    const at = typeof kind === "string" ? `${path}(${kind})` : path;
    if (OPAQUE.has(name) || Object.keys(value).length === 0) return add("object");
    for (const [key, child] of Object.entries(value)) note(shape, at ? `${at}.${key}` : key, key, child);
  } else if (typeof value === "string" && ENUMERATED.has(name)) {
    add(JSON.stringify(value));
  } else {
    add(value === null ? "null" : typeof value);
  }
}

/** Returns the shape of requests, as JSON: for each path of a field, in order, the types that it has. */
function sorted(shapes) {
  const byKey = (map, write) => Object.fromEntries(Object.keys(map).sort().map((key) => [key, write(map[key])]));
  return byKey(shapes, (shape) => byKey(shape, (types) => [...types].sort().join(" | ")));
}

/** Starts to forward to this address. `shapes()` are the shapes so far, by method and path; `refused` has the answers that are errors. */
export function record(target) {
  const shapes = {};
  const refused = [];
  const server = http.createServer((request, response) => {
    const pieces = [];
    request.on("data", (piece) => pieces.push(piece));
    request.on("end", () => {
      const body = Buffer.concat(pieces);
      const at = `${request.method} ${request.url.replace(/models\/[^:/?]+/, "models/NAME")}`;
      if (body.length > 0) {
        const shape = (shapes[at] ??= {});
        note(shape, "", "", JSON.parse(body.toString()));
        const betas = request.headers["anthropic-beta"];
        if (betas) for (const beta of betas.split(",")) (shape["header anthropic-beta"] ??= new Set()).add(beta.trim());
      }
      const forwarded = http.request(target + request.url, { method: request.method, headers: { ...request.headers, host: new URL(target).host } }, (answer) => {
        if (answer.statusCode >= 400) refused.push(`${at}: ${answer.statusCode}`);
        response.writeHead(answer.statusCode, answer.headers);
        answer.pipe(response);
      });
      forwarded.on("error", () => response.destroy());
      response.on("close", () => forwarded.destroy());
      forwarded.end(body);
    });
  });
  return new Promise((done) => server.listen(0, "127.0.0.1", () => done({ server, refused, shapes: () => sorted(shapes), url: `http://127.0.0.1:${server.address().port}` })));
}
