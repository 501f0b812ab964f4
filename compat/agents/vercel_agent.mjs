// A coding agent with Vercel's AI SDK: it works in the current folder, through the gateway, and prints what the model says at the end. It is started
// with the form of its requests (`vercel` is Messages, `vercel-responses` is Responses) and its task. Its tools have the names and arguments that examples/coding/policy.flow knows.

import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { stepCountIs, streamText, tool } from "ai";
import { spawnSync } from "node:child_process";
import fs from "node:fs";
import { z } from "zod";

const { GATEWAY_URL, GATEWAY_KEY } = process.env;
const text = z.string();
const tools = {
  read_file: tool({
    description: "Reads a file.",
    inputSchema: z.object({ file_path: text }),
    execute: async ({ file_path: file }) => fs.readFileSync(file, "utf8"),
  }),
  replace: tool({
    description: "Replaces a text in a file.",
    inputSchema: z.object({ file_path: text, old_string: text, new_string: text }),
    execute: async ({ file_path: file, old_string: old, new_string: now }) => {
      fs.writeFileSync(file, fs.readFileSync(file, "utf8").replaceAll(old, now));
      return "done";
    },
  }),
  run_shell_command: tool({
    description: "Runs a command in a shell, and returns what it prints.",
    inputSchema: z.object({ command: text }),
    execute: async ({ command }) => {
      const { stdout, stderr } = spawnSync(command, { shell: true, encoding: "utf8" });
      return stdout + stderr;
    },
  }),
};
const [form, prompt] = process.argv.slice(2);
const settings = { baseURL: `${GATEWAY_URL}/v1`, apiKey: GATEWAY_KEY };
// The SDK knows `gpt-5` as a model that reasons, and refers to its reasoning.
const model = form === "vercel" ? createAnthropic(settings)("claude-sonnet-5") : createOpenAI(settings)("gpt-5");
const system = "You work on the project in the current folder.";
const result = streamText({ model, system, tools, prompt, stopWhen: stepCountIs(20), onError: ({ error }) => console.error(error) });
console.log(await result.text);
