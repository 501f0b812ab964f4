// Shows one question: what the call would do, who may have chosen it, and what a person may answer.

import { h, sentence, textOf, time } from "./dom.js";

/** The answers, with the key of each: its name in a request, the words of its button, and what was decided. */
export const ANSWERS = [
  { decision: "allow", key: "a", words: "Allow once", done: "allowed", may: (question) => question.you_may_allow },
  { decision: "grant", key: "c", words: "Allow for the conversation", done: "allowed for the conversation", may: (question) => question.you_may_grant },
  { decision: "grant-lasting", key: "g", words: "Allow from now on", done: "allowed from now on", may: (question) => Boolean(question.you_may_grant_for) },
  { decision: "deny", key: "d", words: "Deny", done: "denied", may: (question) => question.you_may_decide },
];

/** What became of a question that is no longer open. */
const STATES = new Map([
  ["allowed", "allowed"],
  ["denied", "denied"],
  ["used", "allowed, and the call was sent"],
  ["expired", "expired: nobody decided in time, or the answer was not used in time"],
  ["void", "void: the conversation went on without the answer, or what the question is about has changed"],
]);

/** Says what became of a question, and who decided it. */
export function outcomeOf(question) {
  const words = STATES.get(question.state) ?? question.state;
  const approved = question.approved_by ?? [];
  if (["allowed", "used"].includes(question.state) && approved.length > 0) return `${words}, approved by ${approved.join(", ")}`;
  if (question.lasting_grant) return `${words}, by a lasting grant of ${question.decided_by}`;
  return question.decided_by ? `${words}, decided by ${question.decided_by}` : words;
}

/** Says who has approved an open question that certain people must all approve, and whom it waits for; empty for another one. */
export function approvalsOf({ approvers = [], approved_by: approved = [] }) {
  if (approvers.length === 0) return "";
  const missing = approvers.filter((name) => !approved.includes(name));
  const said = approved.length > 0 ? `Approved by ${approved.join(", ")}.` : "Nobody has approved yet.";
  return `${said} It waits for the approval of ${missing.join(", ")}.`;
}

/** Says why a person may not allow an open question; empty if the person may. */
function objectionOf({ you_may_decide: mayDecide, you_may_allow: mayAllow, you_have_approved: hasApproved, approvers = [] }) {
  if (!mayDecide) return "You may not decide this question: your role does not allow it, or the agent asks for you.";
  if (mayAllow) return "";
  if (hasApproved) return "You have approved this call. You may still deny it.";
  // The gateway names the approvers only to a person who may read all of the question.
  if (approvers.length > 0) return `Your approval does not count for this call, which needs that of ${approvers.join(", ")}. You may deny it.`;
  return "You may deny this call. Only a person who may read all of it may allow it.";
}

function list(title, items) {
  if (items.length === 0) return null;
  return [h("h3", {}, title), h("ul", {}, items.map((item) => h("li", {}, item)))];
}

/** The arguments of a call; a text in place of them says that the person may not read them. */
export function argumentsOf(values) {
  if (typeof values !== "object" || values === null) return h("p", { class: "withheld" }, textOf(values));
  const names = Object.keys(values);
  if (names.length === 0) return h("p", {}, "none");
  return h("dl", { class: "arguments" }, names.map((name) => [h("dt", {}, name), h("dd", {}, h("pre", {}, textOf(values[name])))]));
}

function excerpt({ place, source, label, text }) {
  const carries = Array.isArray(label) ? label.join(", ") : textOf(label);
  return h("figure", { class: "excerpt" },
    h("figcaption", {}, h("span", { class: "label" }, carries), source ? ` from ${source}, ${place}` : ` from ${place}`),
    h("pre", {}, text));
}

/** What a question shows, for a person who may read all of it or a part. */
export function contentOf(question) {
  const { call } = question;
  const excerpts = call.excerpts ?? [];
  return [
    h("h2", {}, h("code", {}, call.tool)),
    call.summary ? h("p", { class: "summary" }, call.summary) : null,
    list("Why you are asked", (call.reasons ?? []).map(sentence)),
    h("h3", {}, "What would be sent"),
    argumentsOf(call.arguments),
    (call.label ?? []).length > 0 ? h("p", {}, "The call carries: ", h("span", { class: "label" }, call.label.join(", "))) : null,
    excerpts.length > 0 ? [h("h3", {}, "Text that had a hand in it"), excerpts.map(excerpt)] : null,
    list("Where the values were found", call.evidence ?? []),
    h("p", { class: "faint" },
      `${question.client}, conversation ${question.conversation}, tenant ${question.tenant}. Asked `, time(question.asked), ", expires ", time(question.expires), "."),
  ];
}

/**
 * The fields for the terms of a lasting grant. `read()` returns the terms that are filled in, `undefined` if there are none, and `null` if a
 * field has no valid number: it then says so at the field, and nothing must be sent.
 */
function termsOf(question) {
  const field = (name, label, properties) => {
    const id = `${name}-${question.id}`;
    const input = h("input", { id, type: "number", min: "0", inputmode: "numeric", ...properties });
    return { input, row: h("p", {}, h("label", { for: id }, label), " ", input) };
  };
  const days = field("days", `Days (the policy allows ${question.you_may_grant_for}; 0 is until withdrawn)`, {});
  const calls = field("calls", "Calls a day, at most", { min: "1" });
  const sum = sumOf(question, field);
  const element = h("details", {}, h("summary", {}, "Limits of “allow from now on”"), days.row, calls.row, sum?.rows);
  const inputs = [days, calls, sum].filter(Boolean).map(({ input }) => input);
  const read = () => {
    // An input that has no valid number has an empty value, as if the person wanted no limit.
    const invalid = inputs.find((input) => !input.checkValidity());
    if (invalid) {
      element.open = true;
      invalid.reportValidity();
      return null;
    }
    const terms = {};
    if (days.input.value !== "") terms.days = Number(days.input.value);
    if (calls.input.value !== "") terms.calls_a_day = Number(calls.input.value);
    if (sum && sum.input.value !== "") terms.sum_a_day = { argument: sum.select.value, most: Number(sum.input.value) };
    return Object.keys(terms).length === 0 ? undefined : terms;
  };
  return { element, read };
}

/** The fields for the sum of one argument in a day; null if no argument of the call is an amount. */
function sumOf(question, field) {
  const amounts = question.grant_amounts ?? [];
  if (amounts.length === 0) return null;
  const [id, help] = [`sum-of-${question.id}`, `sum-help-${question.id}`];
  const select = h("select", { id }, amounts.map((name) => h("option", { value: name }, name)));
  const { input, row } = field("sum", "Sum a day, at most", { step: "any", inputmode: "decimal", "aria-describedby": help });
  const rows = [
    h("p", {}, h("label", { for: id }, "Argument whose sum is limited"), " ", select),
    row,
    h("p", { id: help, class: "faint" },
      "With a sum, equal calls may have any value of this argument, as long as the values of a day (UTC) add up to no more. Without one, only the value of this call is allowed."),
  ];
  return { select, input, rows };
}

/**
 * A question that can be answered. `decide(question, decision, terms)` sends an answer. The element has a method
 * `answer(key)` for the key of an answer; it returns whether there is such an answer.
 */
export function openCard(question, decide) {
  const terms = question.you_may_grant_for ? termsOf(question) : null;
  const possible = ANSWERS.filter(({ may }) => may(question));
  const answer = ({ decision }) => {
    const chosen = decision === "grant-lasting" ? terms?.read() : undefined;
    if (chosen !== null) decide(question, decision, chosen);
  };
  const buttons = possible.map((kind) =>
    h("button", { type: "button", class: kind.decision, "aria-keyshortcuts": kind.key, click: () => answer(kind) }, kind.words, " ", h("kbd", {}, kind.key)));
  const leavesOpen = (question.grant_leaves_open ?? []).length > 0 && question.you_may_grant;
  const approvals = approvalsOf(question);
  const why = objectionOf(question);
  const element = h("article", { class: "card", tabindex: "0", "data-question": question.id, "aria-label": `Question about ${question.call.tool}` },
    contentOf(question),
    leavesOpen ? h("p", { class: "faint" }, `Allowed for longer, equal calls may have other values of: ${question.grant_leaves_open.join(", ")}.`) : null,
    approvals ? h("p", {}, approvals) : null,
    why ? h("p", { class: "withheld" }, why) : null,
    terms?.element,
    h("p", { class: "buttons" }, buttons));
  element.answer = (key) => {
    const kind = possible.find((kind) => kind.key === key);
    if (kind) answer(kind);
    return kind !== undefined;
  };
  element.freeze = (isFrozen) => buttons.forEach((button) => { button.disabled = isFrozen; });
  return element;
}

/** A question that somebody else has decided, or that has ended, while it was shown. */
export function closedCard(question, outcome, dismiss) {
  return h("article", { class: "card closed", tabindex: "0", "data-question": question.id, "aria-label": `Question about ${question.call.tool}, no longer open` },
    h("h2", {}, h("code", {}, question.call.tool)),
    h("p", {}, outcome),
    h("p", { class: "buttons" }, h("button", { type: "button", click: dismiss }, "Dismiss")));
}
