// The view of stored conversations: the list, or one of them if the address names it.

import { h, show, time } from "./dom.js";
import { request } from "./api.js";
import * as trace from "./trace.js";

const addressOf = ({ client, conversation }) => `#conversations/${encodeURIComponent(client)}/${encodeURIComponent(conversation)}`;

export async function view(content, context) {
  const [, client, conversation] = location.hash.slice(1).split("/").map(decodeURIComponent);
  if (conversation !== undefined) return trace.view(content, context, client, conversation);
  const rows = h("tbody", {});
  const empty = h("p", { class: "faint" });
  const select = h("select", { id: "client" }, h("option", { value: "" }, "all"));
  const older = h("button", { type: "button", hidden: true }, "Show older ones");
  let next = null;
  const load = async () => {
    const query = new URLSearchParams();
    if (select.value !== "") query.set("client", select.value);
    if (next !== null) query.set("before", next);
    const answer = await request("GET", `/ui/api/conversations?${query}`);
    if (context.left.aborted) return;
    next = answer.next;
    older.hidden = next === null;
    if (select.options.length === 1) for (const name of answer.clients) select.append(h("option", { value: name }, name));
    for (const listed of answer.conversations) {
      rows.append(h("tr", {},
        h("td", {}, h("a", { href: addressOf(listed) }, listed.conversation)),
        h("td", {}, listed.client),
        h("td", {}, listed.turns),
        h("td", {}, time(listed.used))));
    }
    empty.textContent = rows.children.length === 0 ? "There are none." : "";
  };
  older.addEventListener("click", load);
  select.addEventListener("change", () => {
    next = null;
    rows.replaceChildren();
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
}
