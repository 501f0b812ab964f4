// An MCP server over standard input and output with one tool, which returns the text of the file that it is started with. A second argument is what
// the tool says about itself.

import fs from "node:fs";
import readline from "node:readline";

const TOOL = { name: "read_notes", description: process.argv[3] ?? "Returns the notes of the project.", inputSchema: { type: "object", properties: {} } };

readline.createInterface({ input: process.stdin }).on("line", (line) => {
  const { id, method, params } = JSON.parse(line);
  const results = {
    initialize: () => ({ protocolVersion: params.protocolVersion, capabilities: { tools: {} }, serverInfo: { name: "notes", version: "1" } }),
    "tools/list": () => ({ tools: [TOOL] }),
    "tools/call": () => ({ content: [{ type: "text", text: fs.readFileSync(process.argv[2], "utf8") }] }),
  };
  if (id === undefined) return;
  const answer = results[method] ? { result: results[method]() } : { error: { code: -32601, message: "no such method" } };
  process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", id, ...answer })}\n`);
});
