// The view of grants: what people have allowed for the rest of a conversation or from now on, and how to withdraw it.

import { announce, h, show, textOf, time } from "./dom.js";
import { request } from "./api.js";

function limitsOf(grant) {
  const limits = [];
  if (grant.calls_a_day !== null) limits.push(`${grant.calls_today} of ${grant.calls_a_day} calls today`);
  if (grant.sum_a_day) limits.push(`${grant.sum_a_day.argument}: ${textOf(grant.sum_a_day.used_today)} of ${textOf(grant.sum_a_day.most)} today`);
  return limits.length === 0 ? "no limit" : limits.join("; ");
}

function termsOf(grant) {
  if (grant.kind === "conversation") {
    const open = grant.grant_leaves_open.length === 0 ? "" : `, with any ${grant.grant_leaves_open.join(", ")}`;
    return `, for the rest of the conversation ${grant.conversation}${open}.`;
  }
  return [grant.expires === null ? ", until it is withdrawn" : [", until ", time(grant.expires)], `; ${limitsOf(grant)}.`];
}

/** The time between two looks at the grants, in milliseconds: others give and withdraw them, too. */
const INTERVAL = 5000;

export async function view(content, { session, left }) {
  let shown = "";
  /** Shows the grants as they are now; what has not changed stays, with its focus. */
  const load = async () => {
    const { grants } = await request("GET", "/api/v1/grants");
    const found = JSON.stringify(grants);
    if (left.aborted || found === shown) return;
    shown = found;
    const withdraw = async (grant, button) => {
      button.disabled = true;
      announce("");
      try {
        await request("DELETE", `/api/v1/grants/${encodeURIComponent(grant.id)}`);
        announce(`The grant of ${grant.who} for ${grant.call.tool} is withdrawn.`);
      } catch (refusal) {
        announce(`Not withdrawn: ${refusal.message}.`);
      }
      // Also if the answer is the same as before: the button is as it was then.
      shown = "";
      await load();
      document.getElementById("main").focus();
    };
    show(
      content,
      h("p", { class: "faint" }, "Equal calls of the conversation, or of all conversations of the client, run without a question while a grant is in force."),
      grants.length === 0 ? h("p", {}, "There are no grants.") : null,
      grants.map((grant) => {
        const button = h("button", { type: "button", class: "deny", click: () => withdraw(grant, button) }, `Withdraw the grant for ${grant.call.tool}`);
        return h("article", { class: "card", "data-grant": grant.id },
          h("h2", {}, h("code", {}, grant.call.tool), ` of ${grant.client}`),
          h("p", {}, `Given by ${grant.who} on `, time(grant.granted), termsOf(grant)),
          grant.in_force ? null : h("p", { class: "withheld" }, "Not in force: the policy or the settings of the client have changed since, or the approvals of the conversation are frozen."),
          h("details", {}, h("summary", {}, "The call that was allowed"), h("pre", {}, textOf(grant.call.arguments))),
          session.role === "viewer" ? null : h("p", { class: "buttons" }, button));
      }));
  };
  await load();
  const timer = setInterval(() => load().catch(() => {}), INTERVAL);
  left.addEventListener("abort", () => clearInterval(timer));
}
