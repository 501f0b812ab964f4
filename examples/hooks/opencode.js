// A plugin of OpenCode: `flowgate hook` judges each prompt, call and output. OpenCode continues without a plugin that it
// cannot load, so look for a refusal once. Whatever fails in here refuses the event.

import { spawn } from "node:child_process";

const COMMAND = `flowgate hook --harness opencode --policy /etc/flowgate/agents.flow --param project="$PWD"`;
const SECONDS = 60;

export const Flowgate = async ({ client, directory }) => {
  const isWatching = COMMAND.includes("--watch ");
  /** The sessions at the root of a tree of sub-agents, by the id of each session. */
  const roots = new Map();
  /** The sessions whose start was reported. */
  const started = new Set();

  /** Has the command judge an event; throws the reason of a refusal. */
  const judge = (event) =>
    new Promise((resolve, reject) => {
      const child = spawn("sh", ["-c", COMMAND], { cwd: directory, stdio: ["pipe", "pipe", "inherit"] });
      const refuse = (why) => (isWatching ? resolve() : reject(new Error(why)));
      const timer = setTimeout(() => {
        child.kill("SIGKILL");
        refuse(`flowgate: there was no verdict within ${SECONDS} seconds`);
      }, SECONDS * 1000);
      let said = "";
      child.stdout.on("data", (part) => (said += part));
      child.on("error", (error) => refuse(`flowgate: the command cannot be run: ${error.message}`));
      child.on("close", (code) => {
        clearTimeout(timer);
        if (code !== 0) return refuse(`flowgate: the command ended with the code ${code}, so the event is refused`);
        if (said.trim() === "") return resolve();
        let answer;
        try {
          answer = JSON.parse(said);
        } catch {
          return refuse("flowgate: the answer of the command cannot be read");
        }
        reject(new Error(answer.reason ?? "flowgate: the event is refused"));
      });
      // A command that ends early has no reader; its exit code decides.
      child.stdin.on("error", () => {});
      child.stdin.end(JSON.stringify(event));
    });

  /** Gives the session at the root: what a sub-agent has seen counts as seen by all. */
  const rootOf = async (session) => {
    if (!roots.has(session)) {
      const { data } = await client.session.get({ path: { id: session } });
      if (!data) throw new Error("flowgate: the session is unknown, so the event is refused");
      roots.set(session, data.parentID ? await rootOf(data.parentID) : session);
    }
    return roots.get(session);
  };

  /** Gives the session at the root, and reports its start once. `message` is the id of the message that is being sent. */
  const begin = async (session, message) => {
    const root = await rootOf(session);
    if (!started.has(root)) {
      const { data } = await client.session.messages({ path: { id: root } });
      if (!data) throw new Error("flowgate: the session cannot be read, so the event is refused");
      await judge({ event: "session.start", session: root, resumed: data.some(({ info }) => info.id !== message) });
      started.add(root);
    }
    return root;
  };

  return {
    "chat.message": async ({ sessionID }, { message, parts }) => {
      const session = await begin(sessionID, message.id);
      const text = parts.filter(({ type }) => type === "text").map((part) => part.text).join("\n");
      const has_files = parts.some(({ type, synthetic }) => type !== "text" || synthetic === true);
      await judge({ event: "chat.message", session, text, from_model: session !== sessionID, has_files });
    },
    "tool.execute.before": async ({ tool, sessionID, callID }, { args }) => {
      const session = await begin(sessionID);
      await judge({ event: "tool.execute.before", session, tool, call: callID, args: args ?? {} });
    },
    // An exception replaces the output that the model receives.
    "tool.execute.after": async ({ tool, sessionID, callID, args }, result) => {
      const session = await begin(sessionID);
      const output = result?.output ?? result?.content ?? result ?? null;
      await judge({ event: "tool.execute.after", session, tool, call: callID, args: args ?? {}, output });
    },
  };
};
