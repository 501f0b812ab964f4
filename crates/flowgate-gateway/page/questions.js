// The view of open questions: it is live, the questions of one turn are one group, and each answer has a key.

import { announce, h, show, update } from "./dom.js";
import { questions as watch, request } from "./api.js";
import { ANSWERS, approvalsOf, closedCard, openCard, outcomeOf } from "./card.js";

/** The most cards on the page; further questions are counted. */
const MOST = 50;
/** The most open questions in memory; the gateway lists the others when there is room. */
const MOST_KNOWN = 1000;
/** The most notices of questions that ended while they were shown. */
const MOST_NOTICES = 20;
/** The time in which changes are announced by one sentence, in milliseconds. */
const ANNOUNCED_TOGETHER = 500;
/** The time between two drawings: at least this, and so many times as long as one takes, so that the page can be used while many questions change. */
const PAUSE = 250;
const PAUSE_FACTOR = 8;
const MOST_PAUSE = 2000;

/** The open questions, and those that ended while they were shown (`sentence` says how), by their ids. */
const known = new Map();
let leftOut = 0;
/** The questions that this page has ended, until the news of it arrives: older news of them shows no card. */
const own = new Set();
let redraw = () => {};
let context;
let isScheduled = false;
let isLoading = false;
/** Resolves when the open questions are known for the first time, or cannot be read; and the function that resolves it. */
let firstLoad;
let setLoaded = () => {};
let isLoaded = false;
let lost = "";
let arrived = [];
let ended = [];
/** When the next drawing may begin. */
let rest = 0;

const path = (question) => `/api/v1/approvals/${encodeURIComponent(question.id)}`;

/** The timer that waits for the end of a pause; 0 if none does. */
let waiting = 0;

/** Draws after the pause since the last drawing, however many questions change; at once if the person has answered. */
function schedule(isOwn = false) {
  if (isScheduled && !(isOwn && waiting)) return;
  clearTimeout(waiting);
  waiting = 0;
  isScheduled = true;
  const pause = isOwn ? 0 : rest - performance.now();
  const drawNext = () => {
    waiting = 0;
    requestAnimationFrame(drawNow);
  };
  if (pause > 0) waiting = setTimeout(drawNext, pause);
  else drawNext();
}

function drawNow() {
  const begun = performance.now();
  // Runs after the frame was laid out and painted, which takes longer than the rest.
  setTimeout(() => {
    const now = performance.now();
    rest = now + Math.min(MOST_PAUSE, Math.max(PAUSE, (now - begun) * PAUSE_FACTOR));
  });
  rest = begun + PAUSE;
  isScheduled = false;
  forgetNotices();
  const open = [...known.values()].filter(({ sentence }) => !sentence).length;
  context.count("questions", open + leftOut);
  // There is room for those that the gateway did not list.
  if (leftOut > 0 && open < MOST / 2 && !isLoading) load().catch(() => {});
  redraw();
}

/** Forgets the oldest notices, beyond the most that are shown. */
function forgetNotices() {
  const notices = [...known].filter(([, { sentence }]) => sentence);
  for (const [id] of notices.slice(0, Math.max(0, notices.length - MOST_NOTICES))) known.delete(id);
}

/** Announces a new question, together with others that come soon after it. */
function announceNew(question) {
  arrived.push(question);
  if (arrived.length > 1) return;
  setTimeout(() => {
    const [{ call, client }] = arrived;
    announce(arrived.length > 1 ? `${arrived.length} new questions.` : `A new question about ${call.tool} of ${client}.`);
    arrived = [];
  }, ANNOUNCED_TOGETHER);
}

/** Announces that a question has ended, together with others that end soon after it. */
function announceEnd(sentence) {
  ended.push(sentence);
  if (ended.length > 1) return;
  setTimeout(() => {
    announce(ended.length > 1 ? `${ended.length} questions are no longer open.` : ended[0]);
    ended = [];
  }, ANNOUNCED_TOGETHER);
}

async function load() {
  isLoading = true;
  const { questions, left_out } = await request("GET", "/api/v1/approvals").finally(() => { isLoading = false; });
  const open = new Set(questions.map(({ id }) => id));
  for (const [id, entry] of known) if (!entry.sentence && !open.has(id)) known.delete(id);
  for (const question of questions) {
    if (known.has(question.id)) renew(question);
    else if (!own.has(question.id)) known.set(question.id, { question });
  }
  leftOut = left_out;
  lost = "";
  isLoaded = true;
  setLoaded();
  schedule();
}

/** Shows an open question as it is after a further approval. Returns whether there was one: older news changes nothing. */
function renew(question) {
  const entry = known.get(question.id);
  if (!entry || entry.sentence || question.approved_by.length <= entry.question.approved_by.length) return false;
  entry.question = question;
  schedule();
  return true;
}

function close(question, sentence) {
  const entry = known.get(question.id);
  if (!entry || entry.sentence) return;
  // A question that was not drawn ends without a notice.
  known.delete(question.id);
  if (cards.has(question.id)) {
    known.set(question.id, { question, sentence });
    announceEnd(`${question.call.tool}: ${sentence}`);
  }
  schedule();
}

function change(question) {
  const entry = known.get(question.id);
  if (question.state === "open") {
    if (own.has(question.id)) return;
    if (entry) {
      // What this person has just approved is announced by `decide`.
      if (renew(question) && !entry.isSent) announce(`${question.call.tool}: ${approvalsOf(question)}`);
      return;
    }
    // A question that has approvals is not new: it is one of those that the gateway did not list.
    if (question.approved_by.length > 0) return;
    if (known.size < MOST_KNOWN) known.set(question.id, { question });
    else leftOut += 1;
    announceNew(question);
    schedule();
  } else if (entry?.isSent) {
    // The reply to this person's answer shows whether that answer ended the question, or another one.
    entry.end = question;
  } else if (!own.delete(question.id)) {
    close(question, `This question is no longer open: ${outcomeOf(question)}.`);
  }
}

/** Sends an answer. If others must approve as well, the card stays and says who. If another person was faster, it says who decided. */
async function decide(question, decision, terms) {
  const entry = known.get(question.id);
  if (!entry || entry.isSent) return;
  entry.isSent = true;
  const card = document.querySelector(`[data-question="${CSS.escape(question.id)}"]`);
  card?.freeze?.(true);
  try {
    const now = await request("POST", path(question), { decision, digest: question.digest, terms });
    entry.isSent = false;
    if (now.state === "open") {
      card?.freeze?.(false);
      renew(now);
      announce(`${question.call.tool}: your approval is noted. ${approvalsOf(now)}`);
      // Another person has ended the question before this reply arrived.
      if (entry.end) close(entry.end, `This question is no longer open: ${outcomeOf(entry.end)}.`);
    } else {
      if (!entry.end) own.add(question.id);
      known.delete(question.id);
      announce(`${question.call.tool}: ${ANSWERS.find((answer) => answer.decision === decision).done}.`);
    }
  } catch (refusal) {
    entry.isSent = false;
    card?.freeze?.(false);
    const now = entry.end ?? (refusal.status === 409 ? await request("GET", path(question)).catch(() => null) : null);
    if (now && now.state !== "open") close(now, `Your answer came too late: ${outcomeOf(now)}.`);
    else {
      if (now) renew(now);
      announce(`Not decided: ${refusal.message}.`);
    }
  }
  schedule(true);
}

/** Questions of one turn of a conversation are one group. */
function groupsOf(entries) {
  const found = new Map();
  for (const entry of entries) {
    const { client, conversation, turn, id } = entry.question;
    const key = turn === null ? id : JSON.stringify([client, conversation, turn]);
    if (!found.has(key)) found.set(key, []);
    found.get(key).push(entry);
  }
  return [...found.values()];
}

const cards = new Map();

/** Returns the card of a question, the same element as before if nothing has changed: it may have the focus. */
function cardOf(entry) {
  const { question, sentence } = entry;
  const shown = cards.get(question.id);
  if (shown && shown.sentence === sentence && shown.question === question) return shown.card;
  const dismiss = () => {
    known.delete(question.id);
    schedule();
  };
  const card = sentence ? closedCard(question, sentence, dismiss) : openCard(question, decide);
  cards.set(question.id, { card, question, sentence });
  return card;
}

const groups = new Map();

/** Returns the element of a group, the same as before if its questions are the same. */
function groupOf(entries, drawn) {
  const key = JSON.stringify(entries.map(({ question, sentence }) => [question.id, sentence, question.approved_by]));
  const element = groups.get(key) ?? groupElement(entries);
  drawn.set(key, element);
  return element;
}

function groupElement(entries) {
  const open = entries.filter(({ sentence }) => !sentence).map(({ question }) => question);
  const title = `${entries.length} calls of one turn of ${entries[0].question.client}, conversation ${entries[0].question.conversation}`;
  const answerTo = (decision) => ANSWERS.find((answer) => answer.decision === decision);
  const all = (decision) => {
    for (const question of open) if (answerTo(decision).may(question)) decide(question, decision);
  };
  const offered = [["allow", `Allow all ${open.length} once`], ["grant", `Allow all ${open.length} for the conversation`], ["deny", `Deny all ${open.length}`]];
  // An answer for all is offered if the person may give it to each of them.
  const possible = offered.filter(([decision]) => open.length > 1 && open.every(answerTo(decision).may));
  const buttons = possible.map(([decision, words]) => h("button", { type: "button", class: decision, click: () => all(decision) }, words));
  return h("section", { class: "group", "aria-label": title }, h("h2", {}, title), entries.map(cardOf), h("p", { class: "buttons" }, buttons));
}

function draw(list) {
  const focused = document.activeElement?.closest?.("[data-question]")?.dataset.question;
  const before = [...list.querySelectorAll("[data-question]")].map((card) => card.dataset.question);
  const entries = [...known.values()];
  const shown = entries.slice(0, MOST);
  for (const id of cards.keys()) if (!known.has(id)) cards.delete(id);
  const more = entries.length - shown.length + leftOut;
  const drawn = new Map();
  const elements = groupsOf(shown).map((group) => (group.length > 1 ? groupOf(group, drawn) : cardOf(group[0])));
  groups.clear();
  for (const [key, element] of drawn) groups.set(key, element);
  update(
    list,
    lost ? h("p", { role: "alert" }, lost) : null,
    shown.length === 0 && isLoaded ? h("p", { class: "faint" }, "No call waits for a decision. This page shows a new question as soon as it is asked.") : null,
    elements,
    more > 0 ? h("p", {}, `${more} more questions are shown when some of these are decided.`) : null);
  if (focused === undefined || list.contains(document.activeElement)) return;
  // The card with the focus was moved or is gone: the focus goes to the same card, or to the next one.
  const after = before.slice(before.indexOf(focused)).concat(before.toReversed());
  const next = after.map((id) => cards.get(id)?.card).find((card) => card?.isConnected);
  (next ?? document.getElementById("main")).focus();
}

/** Keys act on the card that has the focus; `j` and `k` move between cards. */
function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select")) return;
  const all = [...document.querySelectorAll("[data-question]")];
  const card = event.target.closest("[data-question]");
  if (event.key === "j" || event.key === "k") {
    const at = all.indexOf(card);
    const next = event.key === "j" ? at + 1 : at < 0 ? 0 : at - 1;
    all[Math.max(0, Math.min(next, all.length - 1))]?.focus();
    event.preventDefault();
  } else if (!event.repeat && card?.answer?.(event.key)) {
    event.preventDefault();
  }
}

/** Watches the questions from the login on, so that the number beside the link is right in every view. */
export function begin(shared) {
  context = shared;
  known.clear();
  cards.clear();
  groups.clear();
  own.clear();
  isLoaded = false;
  firstLoad = new Promise((resolve) => { setLoaded = resolve; });
  redraw = () => {};
  const onLost = () => {
    if (context.signal.aborted) return;
    lost = "The connection to the gateway is lost: what is shown may be out of date.";
    // A screen reader may say nothing of a view that is busy.
    setLoaded();
    schedule();
  };
  watch(shared.signal, load, change, onLost);
}

/** Shows the view. The promise resolves when the open questions are known, or cannot be read. */
export function view(content, { left }) {
  const keys = ANSWERS.flatMap(({ key, words }, index) => [index > 0 ? ", " : "", h("kbd", {}, key), ` ${words.toLowerCase()}`]);
  const list = h("div", { class: "cards" });
  show(content, h("p", { class: "faint keys" }, "Keys: ", h("kbd", {}, "j"), " next question, ", h("kbd", {}, "k"), " previous, and on a question: ", keys, "."), list);
  document.addEventListener("keydown", onKey, { signal: left });
  redraw = () => draw(list);
  left.addEventListener("abort", () => { redraw = () => {}; });
  redraw();
  return firstLoad;
}
