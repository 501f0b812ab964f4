// The agents: how each is started, what form its requests have for the model, and what a model has to call to do the task. `servers` are the MCP
// servers of an agent, each with its command and arguments.

import fs from "node:fs";
import path from "node:path";

const { CLAUDE, CODEX, GEMINI, PYTHON, SDK, VERCEL } = process.env;
export const KEY = "the-key-of-this-agent";
const TASK = "Fix the failing test";

// Otherwise Claude Code offers these tools only after a search, and begins before its servers do.
export const AT_ONCE = { ENABLE_TOOL_SEARCH: "false", MCP_CONNECTION_NONBLOCKING: "false" };

/** Starts Codex with this model, or with the one that it chooses itself. */
function codex(home, url, servers = {}, model = undefined) {
  const provider = `[model_providers.gateway]\nname = "gateway"\nbase_url = "${url}/v1"\nwire_api = "responses"\nenv_key = "GATEWAY_KEY"\n`;
  const tables = Object.entries(servers).map(([name, { command, args }]) => `[mcp_servers.${name}]\ncommand = ${JSON.stringify(command)}\nargs = ${JSON.stringify(args)}\n`);
  fs.mkdirSync(path.join(home, ".codex"), { recursive: true });
  fs.writeFileSync(path.join(home, ".codex/config.toml"), `${model ? `model = "${model}"\n` : ""}model_provider = "gateway"\n${provider}${tables.join("")}`);
  return { command: CODEX, args: ["exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", TASK], env: { GATEWAY_KEY: KEY } };
}

const PATCH = "*** Begin Patch\n*** Update File: calc.mjs\n@@\n-export const sum = (a, b) => a - b;\n+export const sum = (a, b) => a + b;\n*** End Patch\n";

/** A call of Codex's `exec`, which runs a program. The gateway names a tool in a namespace so. */
const program = (input) => ["functions__exec", { input }];
/** A program that runs a command, as Codex's models write it. */
const runs = (cmd) => program(`const r = await tools.exec_command(${JSON.stringify({ cmd, yield_time_ms: 10000 })});\ntext(r.output);`);

export const AGENTS = {
  "Claude Code": {
    name: "claude-code",
    form: "messages",
    client: "claude-code",
    upstream: "https://api.anthropic.com",
    shell: (command) => ["Bash", { command }],
    ofServer: (server, tool) => `mcp__${server}__${tool}`,
    // Claude Code writes these commands and edits in its own way before it runs them, and sends them back so.
    plan: (project, how) => [
      ["Read", { file_path: `${project}/calc.mjs` }],
      ...how.map((step) => (step === "look" || Array.isArray(step) ? step : ["Bash", { command: step }])),
      ["Edit", { file_path: `${project}/calc.mjs`, old_string: "a - b", new_string: "a + b" }],
      ["Bash", { command: "node --test calc.test.mjs", description: "Runs the test" }],
    ],
    start(home, url, { isAuto, servers }) {
      const env = { ANTHROPIC_BASE_URL: url, ANTHROPIC_API_KEY: KEY, CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1", DISABLE_AUTOUPDATER: "1", IS_SANDBOX: "1" };
      const args = ["-p", TASK, "--permission-mode", isAuto ? "auto" : "bypassPermissions"];
      if (!servers) return { command: CLAUDE, args, env };
      return { command: CLAUDE, args: [...args, "--mcp-config", JSON.stringify({ mcpServers: servers }), "--strict-mcp-config"], env: { ...env, ...AT_ONCE } };
    },
  },
  // With the model that it chooses itself, as with all current ones, Codex lets the model write programs that call the tools.
  Codex: {
    name: "codex",
    form: "responses",
    client: "codex",
    upstream: "https://api.openai.com",
    shell: runs,
    ofServer: (server, tool) => `mcp__${server}__${tool}`,
    writesPrograms: true,
    callOfServer: (tool, args) => program(`const r = await tools.${tool}(${JSON.stringify(args)});\nfor (const part of r.content) text(part.text);`),
    plan: (_project, how) => [
      runs("cat calc.mjs"),
      ...how.map((step) => (step === "look" || Array.isArray(step) ? step : runs(step))),
      program(`text(await tools.apply_patch(${JSON.stringify(PATCH)}));`),
      runs("node --test calc.test.mjs"),
    ],
    start: (home, url, { servers }) => codex(home, url, servers),
  },
  // With a model that it does not know, Codex offers the tools themselves.
  "Codex with an unknown model": {
    name: "codex-tools",
    form: "responses",
    client: "codex",
    upstream: "https://api.openai.com",
    shell: (cmd) => ["exec_command", { cmd }],
    ofServer: (server, tool) => `mcp__${server}__${tool}`,
    plan: (_project, how) => [
      ["exec_command", { cmd: "cat calc.mjs" }],
      ...how.map((step) => (step === "look" || Array.isArray(step) ? step : ["exec_command", { cmd: step }])),
      ["exec_command", { cmd: "sed -i 's/a - b/a + b/' calc.mjs" }],
      ["exec_command", { cmd: "node --test calc.test.mjs" }],
    ],
    start: (home, url, { servers }) => codex(home, url, servers, "gpt-5"),
  },
  // Before a prompt, Gemini CLI asks a small model which model to ask.
  "Gemini CLI": {
    name: "gemini-cli",
    choosesModels: true,
    form: "generateContent",
    client: "gemini-cli",
    upstream: "https://generativelanguage.googleapis.com",
    shell: (command) => ["run_shell_command", { command }],
    ofServer: (server, tool) => `mcp_${server}_${tool}`,
    plan: (_project, how) => [
      ["read_file", { file_path: "calc.mjs" }],
      ...how.map((step) => (step === "look" || Array.isArray(step) ? step : ["run_shell_command", { command: step }])),
      ["replace", { file_path: "calc.mjs", instruction: "add", old_string: "a - b", new_string: "a + b" }],
      ["run_shell_command", { command: "node --test calc.test.mjs", description: "Runs the test" }],
    ],
    start(home, url, { servers }) {
      const settings = { ...(servers && { mcpServers: servers }), security: { auth: { selectedType: "gemini-api-key" } }, privacy: { usageStatisticsEnabled: false }, telemetry: { enabled: false } };
      fs.mkdirSync(path.join(home, ".gemini"), { recursive: true });
      fs.writeFileSync(path.join(home, ".gemini/settings.json"), JSON.stringify(settings));
      const args = [GEMINI, "--skip-trust", "--yolo", "-p", TASK];
      return { command: process.execPath, args, env: { GEMINI_API_KEY: KEY, GOOGLE_GEMINI_BASE_URL: url } };
    },
  },
};

// The older models that Codex knows have tools themselves, and edit by patches: the tool has no JSON arguments.
AGENTS["Codex with GPT-5.5"] = {
  ...AGENTS["Codex with an unknown model"],
  name: "codex-patch",
  isShort: true,
  plan: (project, how) => AGENTS["Codex with an unknown model"].plan(project, how).map((step) => (step[1]?.cmd?.startsWith("sed") ? ["apply_patch", { input: PATCH }] : step)),
  start: (home, url, { servers }) => codex(home, url, servers, "gpt-5.5"),
};

// Agents with an SDK: their developer gives them a base URL, a key, and three tools. The gateway converts their form to that of the model.
const SDKS = {
  "OpenAI Agents SDK": ["openai-agents", "codex"],
  LangGraph: ["langgraph", "codex"],
  "Pydantic AI": ["pydantic-ai", "codex"],
  "OpenAI's client": ["openai", "codex"],
  "Anthropic's client": ["anthropic", "claude-code"],
  "Google's client": ["google-genai", "gemini-cli"],
  "Vercel's AI SDK": ["vercel", "claude-code"],
  // As long as it is told nothing else, the SDK refers to its earlier answers in place of sending them.
  "Vercel's AI SDK on Responses": ["vercel-responses", "codex"],
};
for (const [title, [name, client]] of Object.entries(SDKS)) {
  const { form, upstream } = Object.values(AGENTS).find((agent) => agent.client === client);
  AGENTS[title] = {
    name,
    client,
    form,
    upstream,
    // The clients alone do less: the gateway sees no difference between them and the SDKs above them.
    isShort: title.endsWith("client"),
    shell: (command) => ["run_shell_command", { command }],
    plan: (_project, how) => [
      ["read_file", { file_path: "calc.mjs" }],
      ...how.map((step) => (step === "look" ? step : ["run_shell_command", { command: step }])),
      ["replace", { file_path: "calc.mjs", old_string: "a - b", new_string: "a + b" }],
      ["run_shell_command", { command: "node --test calc.test.mjs" }],
    ],
    start(_home, url) {
      const [command, ...args] = name.startsWith("vercel") ? [process.execPath, VERCEL, name] : [PYTHON, SDK, name];
      return { command, args: [...args, TASK], env: { GATEWAY_URL: url, GATEWAY_KEY: KEY } };
    },
  };
}
