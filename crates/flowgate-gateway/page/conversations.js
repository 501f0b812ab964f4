// The view of stored conversations: the list, which stays current while it is open, or one of them if the address names it.

import { announce, h, show, time, update } from "./dom.js";
import { request } from "./api.js";
import { poll } from "./polling.js";
import * as trace from "./trace.js";

const addressOf = ({ client, conversation }) => `#conversations/${encodeURIComponent(client)}/${encodeURIComponent(conversation)}`;

export async function view(content, context) {
  const [, client, conversation] = location.hash.slice(1).split("/").map(decodeURIComponent);
  if (conversation !== undefined) return trace.view(content, context, client, conversation);
  const rows = h("tbody", {});
  const empty = h("p", { class: "faint" });
  const select = h("select", { id: "client" }, h("option", { value: "" }, "all"));
  const older = h("button", { type: "button", hidden: true }, "Show older ones");
  /** The rows by the addresses of their conversations, newest first. */
  let listed = new Map();
  let next = null;
  const ask = (before) => {
    const query = new URLSearchParams();
    if (select.value !== "") query.set("client", select.value);
    if (before !== null) query.set("before", before);
    return request("GET", `/ui/api/conversations?${query}`);
  };
  /** Returns the row of a conversation: the one that shows it already, so that a link keeps its focus. */
  const rowOf = (conversation) => {
    const address = addressOf(conversation);
    const { turns, used } = conversation;
    let row = listed.get(address);
    if (row === undefined) {
      const [turnsCell, usedCell] = [h("td", {}), h("td", {})];
      row = { turnsCell, usedCell, element: h("tr", {}, h("td", {}, h("a", { href: address }, conversation.conversation)), h("td", {}, conversation.client), turnsCell, usedCell) };
    }
    if (row.turns !== turns) show(row.turnsCell, turns);
    if (row.used !== used) show(row.usedCell, time(used));
    return [address, Object.assign(row, { turns, used })];
  };
  const draw = (ordered) => {
    listed = new Map(ordered);
    update(rows, [...listed.values()].map(({ element }) => element));
    older.hidden = next === null;
    empty.textContent = listed.size === 0 ? "There are none." : "";
  };
  const load = async () => {
    const chosen = select.value;
    const answer = await ask(next);
    if (context.left.aborted || select.value !== chosen) return;
    next = answer.next;
    if (select.options.length === 1) for (const name of answer.clients) select.append(h("option", { value: name }, name));
    draw([...listed, ...answer.conversations.map(rowOf)]);
  };
  /** Reads the newest conversations again; the older ones stay below them. */
  const refresh = async () => {
    const chosen = select.value;
    const answer = await ask(null);
    if (context.left.aborted || select.value !== chosen) return;
    const newest = new Map(answer.conversations.map(rowOf));
    const added = [...newest.keys()].filter((address) => !listed.has(address)).length;
    // What is not among the newest any more, although nothing older is left, was deleted.
    const kept = answer.next === null ? [] : [...listed].filter(([address]) => !newest.has(address));
    if (answer.next === null || listed.size === 0) next = answer.next;
    draw([...newest, ...kept]);
    if (added > 0) announce(`${added} new ${added === 1 ? "conversation" : "conversations"}.`);
  };
  older.addEventListener("click", load);
  select.addEventListener("change", () => {
    next = null;
    listed = new Map();
    load();
  });
  show(
    content,
    h("p", {}, h("label", { for: "client" }, "Client"), " ", select),
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Conversations" },
      h("table", {},
        h("thead", {}, h("tr", {}, ["Conversation", "Client", "Turns", "Last used"].map((title) => h("th", { scope: "col" }, title)))),
        rows)),
    empty,
    older);
  await load();
  poll(context.left, refresh);
}
