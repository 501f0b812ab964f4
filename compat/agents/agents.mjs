// The agents: how each is started, what form its requests have for the model, and what a model has to call to do the task.

import fs from "node:fs";
import path from "node:path";

const { CLAUDE, CODEX, GEMINI, PYTHON, SDK, VERCEL } = process.env;
export const KEY = "the-key-of-this-agent";
const TASK = "Fix the failing test";

export const AGENTS = {
  "Claude Code": {
    name: "claude-code",
    form: "messages",
    client: "claude-code",
    upstream: "https://api.anthropic.com",
    shell: (command) => ["Bash", { command }],
    // Claude Code writes these commands and edits in its own way before it runs them, and sends them back so.
    plan: (project, how) => [
      ["Read", { file_path: `${project}/calc.mjs` }],
      ...how.map((step) => (step === "look" || Array.isArray(step) ? step : ["Bash", { command: step }])),
      ["Edit", { file_path: `${project}/calc.mjs`, old_string: "a - b", new_string: "a + b" }],
      ["Bash", { command: "node --test calc.test.mjs", description: "Runs the test" }],
    ],
    start(home, url, isAuto) {
      const env = { ANTHROPIC_BASE_URL: url, ANTHROPIC_API_KEY: KEY, CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1", DISABLE_AUTOUPDATER: "1", IS_SANDBOX: "1" };
      return { command: CLAUDE, args: ["-p", TASK, "--permission-mode", isAuto ? "auto" : "bypassPermissions", "--model", "claude-sonnet-5"], env };
    },
  },
  Codex: {
    name: "codex",
    form: "responses",
    client: "codex",
    upstream: "https://api.openai.com",
    shell: (cmd) => ["exec_command", { cmd }],
    plan: (_project, how) => [
      ["exec_command", { cmd: "cat calc.mjs" }],
      ...how.map((step) => (step === "look" ? step : ["exec_command", { cmd: step }])),
      ["exec_command", { cmd: "sed -i 's/a - b/a + b/' calc.mjs" }],
      ["exec_command", { cmd: "node --test calc.test.mjs" }],
    ],
    start(home, url) {
      const provider = `[model_providers.gateway]\nname = "gateway"\nbase_url = "${url}/v1"\nwire_api = "responses"\nenv_key = "GATEWAY_KEY"\n`;
      fs.mkdirSync(path.join(home, ".codex"), { recursive: true });
      fs.writeFileSync(path.join(home, ".codex/config.toml"), `model = "gpt-5"\nmodel_provider = "gateway"\n${provider}`);
      return { command: CODEX, args: ["exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", TASK], env: { GATEWAY_KEY: KEY } };
    },
  },
  "Gemini CLI": {
    name: "gemini-cli",
    form: "generateContent",
    client: "gemini-cli",
    upstream: "https://generativelanguage.googleapis.com",
    shell: (command) => ["run_shell_command", { command }],
    plan: (_project, how) => [
      ["read_file", { file_path: "calc.mjs" }],
      ...how.map((step) => (step === "look" ? step : ["run_shell_command", { command: step }])),
      ["replace", { file_path: "calc.mjs", instruction: "add", old_string: "a - b", new_string: "a + b" }],
      ["run_shell_command", { command: "node --test calc.test.mjs", description: "Runs the test" }],
    ],
    start(home, url) {
      const settings = { security: { auth: { selectedType: "gemini-api-key" } }, privacy: { usageStatisticsEnabled: false }, telemetry: { enabled: false } };
      fs.mkdirSync(path.join(home, ".gemini"), { recursive: true });
      fs.writeFileSync(path.join(home, ".gemini/settings.json"), JSON.stringify(settings));
      const args = [GEMINI, "--skip-trust", "--yolo", "-m", "gemini-2.5-flash", "-p", TASK];
      return { command: process.execPath, args, env: { GEMINI_API_KEY: KEY, GOOGLE_GEMINI_BASE_URL: url } };
    },
  },
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
};
for (const [title, [name, client]] of Object.entries(SDKS)) {
  const { form, upstream } = Object.values(AGENTS).find((agent) => agent.client === client);
  AGENTS[title] = {
    name,
    client,
    form,
    upstream,
    isOnlyClient: title.endsWith("client"),
    shell: (command) => ["run_shell_command", { command }],
    plan: (_project, how) => [
      ["read_file", { file_path: "calc.mjs" }],
      ...how.map((step) => (step === "look" ? step : ["run_shell_command", { command: step }])),
      ["replace", { file_path: "calc.mjs", old_string: "a - b", new_string: "a + b" }],
      ["run_shell_command", { command: "node --test calc.test.mjs" }],
    ],
    start(_home, url) {
      const [command, ...args] = name === "vercel" ? [process.execPath, VERCEL] : [PYTHON, SDK, name];
      return { command, args: [...args, TASK], env: { GATEWAY_URL: url, GATEWAY_KEY: KEY } };
    },
  };
}
