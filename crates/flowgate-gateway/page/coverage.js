// The view of what the gateway has seen since its start: clients, MCP servers and tools, what no statement of a policy covers,
// and what passes by the gateway.

import { h, show, time } from "./dom.js";
import { request } from "./api.js";
import { poll } from "./polling.js";

const INTERVAL = 10_000;

/** Returns the sentences about what passes by the gateway, or is not permitted to pass through it. */
function bypasses({ strangers, clients }) {
  const found = [];
  for (const { client, last, servers, unknown_servers: unknown } of clients) {
    if (last === null) {
      found.push(`${client} has sent no request. If its agent runs, it reaches its model and its tools without the gateway.`);
      continue;
    }
    for (const { server, last: used } of servers) {
      if (used === null) found.push(`${client} has not used the server ${server} through the gateway. If its agent uses that server, it does so directly.`);
    }
    if (unknown > 0) found.push(`${client} has asked ${unknown} times for an MCP server that it may not use.`);
  }
  if (strangers > 0) found.push(`${strangers} ${strangers === 1 ? "request" : "requests"} came from no configured client: without a key, or with one that the gateway does not know.`);
  return found;
}

/** Returns what the policy leaves open about a tool, in words. */
function gapsOf({ is_bounded: isBounded, is_labelled: isLabelled, is_offered: isOffered }) {
  const gaps = [];
  if (isBounded === false) gaps.push("no require covers its calls: they may carry only data with the lowest labels");
  if (isLabelled === false) gaps.push("no label covers its answers: they have the default label");
  if (!isOffered) gaps.push("called, but never offered");
  return gaps;
}

function clientOf({ client, tenant, is_watching: isWatching, is_rules_only: isRulesOnly, first, last, servers, tools, tools_left_out: leftOut }) {
  const rows = tools ?? [];
  return h("section", { class: "card", "aria-label": `Client ${client}` },
    h("h2", {}, client),
    h("p", {}, `Tenant ${tenant}. `, last === null ? "No request since the start." : ["Seen first ", time(first), ", last ", time(last), "."],
      isWatching ? " In watch mode: nothing is stopped." : "", isRulesOnly ? " Its policy has only rules, which bound no tool." : ""),
    servers.length === 0 ? null : h("ul", { "aria-label": `Servers of ${client}` }, servers.map(({ server, last: used }) =>
      h("li", {}, `MCP server ${server}: `, used === null ? "not used through the gateway" : ["last used ", time(used)]))),
    tools === null ? h("p", { class: "withheld" }, "Your clearance does not cover all texts of this client, so the names of its tools are not shown.") : null,
    rows.length === 0 ? null : h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Tools of ${client}` },
      h("table", {},
        h("thead", {}, h("tr", {}, ["Tool", "Calls", "What the policy leaves open", "Last seen"].map((title) => h("th", { scope: "col" }, title)))),
        h("tbody", {}, rows.map((tool) => h("tr", {}, h("td", {}, h("code", {}, tool.tool)), h("td", {}, tool.calls), h("td", {}, gapsOf(tool).join("; ") || "nothing"), h("td", {}, time(tool.last))))))),
    leftOut > 0 ? h("p", { class: "faint" }, `Further tools were seen ${leftOut} times, for which there was no room.`) : null);
}

function draw(content, coverage) {
  const found = bypasses(coverage);
  const open = coverage.clients.flatMap(({ client, tools }) => (tools ?? []).filter(({ is_bounded: isBounded }) => isBounded === false).map(({ tool }) => [client, tool]));
  show(
    content,
    h("p", {}, "What this gateway has seen since ", time(coverage.begun), ". It sees only what is sent to it: ", h("code", {}, "flowgate scan"), " on the machine of an agent shows what is configured there beside it."),
    h("section", { "aria-label": "What passes by" },
      h("h2", {}, "What passes by the gateway"),
      found.length === 0 ? h("p", {}, "Every client and every server of the configuration was seen, and no stranger.") : h("ul", {}, found.map((sentence) => h("li", {}, sentence)))),
    h("section", { "aria-label": "Tools without a permit" },
      h("h2", {}, "Tools without a permit"),
      open.length === 0 ? h("p", {}, "None was seen, in what you may read.") : h("ul", {}, open.map(([client, tool]) => h("li", {}, h("code", {}, tool), ` of ${client}`)))),
    coverage.clients.map(clientOf));
}

export async function view(content, { left }) {
  const load = async () => {
    const coverage = await request("GET", "/ui/api/coverage");
    if (!left.aborted) draw(content, coverage);
  };
  await load();
  // What a person reads or has chosen is not drawn anew.
  poll(left, async () => { if (!content.contains(document.activeElement)) await load(); }, INTERVAL);
}
