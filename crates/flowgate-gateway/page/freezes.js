// The view of freezes: what an admin has stopped, and how to stop something or lift that.

import { announce, h, show, time } from "./dom.js";
import { request } from "./api.js";

const KINDS = [
  ["tool", "a tool, as NAME or SERVER/NAME"],
  ["server", "an MCP server"],
  ["client", "a client"],
  ["conversation", "a conversation, as CLIENT/NAME"],
  ["consent", "a standing consent, as CLIENT:LINE-DIGEST"],
  ["grants", "the approvals of a conversation, as CLIENT/NAME"],
];

export async function view(content, { session, left }) {
  const mayFreeze = session.role === "admin" && session.tenants.length === 0;
  const list = h("div", { class: "cards" });
  const order = async (kind, what, frozen, inAdvance) => {
    try {
      await request("POST", "/api/v1/freezes", { kind, what, frozen, in_advance: inAdvance });
      announce(frozen ? `Frozen: ${kind} ${what}.` : `No longer frozen: ${kind} ${what}.`);
      error.textContent = "";
    } catch (refusal) {
      error.textContent = `Not done: ${refusal.message}.`;
    }
    await load();
  };
  const load = async () => {
    const { frozen } = await request("GET", "/api/v1/freezes");
    if (left.aborted) return;
    show(
      list,
      frozen.length === 0 ? h("p", {}, "Nothing is frozen.") : null,
      frozen.map(({ kind, what, who, since }) =>
        h("article", { class: "card" },
          h("h2", {}, `${kind} `, h("code", {}, what)),
          h("p", {}, `Frozen by ${who} on `, time(since), "."),
          mayFreeze ? h("p", { class: "buttons" }, h("button", { type: "button", click: () => order(kind, what, false, false) }, `Lift the freeze of ${what}`)) : null)));
  };
  const kind = h("select", { id: "kind" }, KINDS.map(([name, words]) => h("option", { value: name }, words)));
  const what = h("input", { id: "what", required: true, autocomplete: "off" });
  const inAdvance = h("input", { id: "in-advance", type: "checkbox" });
  const error = h("p", { role: "alert" });
  const submit = (event) => {
    event.preventDefault();
    order(kind.value, what.value, true, inAdvance.checked);
  };
  const form = h("form", { class: "card", submit },
    h("h2", {}, "Freeze something"),
    h("p", {}, h("label", { for: "kind" }, "Kind"), " ", kind),
    h("p", {}, h("label", { for: "what" }, "Name"), " ", what),
    h("p", {}, inAdvance, " ", h("label", { for: "in-advance" }, "also if it has not occurred yet")),
    h("p", { class: "buttons" }, h("button", { type: "submit", class: "deny" }, "Freeze")),
    error);
  show(content, mayFreeze ? form : h("p", { class: "faint" }, "Only an admin of all tenants freezes and lifts."), list);
  await load();
}
