// A gateway in front of a model double, for agents that have a hook as well.

import { spawn } from "node:child_process";
import fs from "node:fs";
import path from "node:path";

const { FLOWGATE, PATH } = process.env;

/** The key of the agent. */
export const KEY = "key-of-the-agent-0000";

/** Starts a gateway that permits everything. `upstream` is the URL of the double, and `api` the form of its requests. Gives the address, and the policy. */
export async function startGateway(folder, upstream, api) {
  const policy = path.join(folder, "policy.flow");
  fs.mkdirSync(folder);
  fs.writeFileSync(policy, "lattice integrity: trusted < untrusted\ndefault trusted\nrequire untrusted if:\n    (call: ToolCall)\n");
  const config = `[store]\nurl = "memory"\n[upstreams.double]\nurl = "${upstream}"\napi = "${api}"\nkey-from = "UPSTREAM"\n[clients.agent]\nkey-from = "AGENT"\nupstream = "double"\npolicy = "policy.flow"\nuser-messages = "trust-unmarked-even-if-pasted"\n`;
  fs.writeFileSync(path.join(folder, "gateway.toml"), config);
  const env = { PATH, UPSTREAM: "sk-ant-test-0000", AGENT: KEY };
  const child = spawn(FLOWGATE, ["serve", "--listen", "127.0.0.1:0", "--config", path.join(folder, "gateway.toml")], { env, stdio: ["ignore", "ignore", "pipe"] });
  let log = "";
  const url = await new Promise((found, failed) => {
    child.stderr.on("data", (part) => {
      log += part;
      const match = /listening on (http:\/\/\S+:\d+)/.exec(log);
      if (match) found(match[1]);
    });
    child.on("exit", () => failed(new Error(log)));
  });
  return { url, policy, log: () => log, stop: () => child.kill("SIGTERM") };
}
