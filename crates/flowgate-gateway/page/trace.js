// One conversation: its regions with their labels, what a step of the model saw, and the verdicts on calls with the
// regions that influenced them. While it is open, what the agent does next is added.

import { announce, h, sentence, show, update } from "./dom.js";
import { request } from "./api.js";
import { poll } from "./polling.js";

const KINDS = { message: (source) => `message of ${source}`, call: (source) => `call of ${source}`, answer: (source) => (source ? `answer of ${source}` : "answer without a call"), description: (source) => `description of ${source}` };

const OUTCOMES = { permitted: "permitted", asked: "asked about", refused: "refused" };

/** The number of the colour of each label, by its words, which are beside the colour. */
const colours = new Map();

function colourOf(words) {
  if (!colours.has(words)) colours.set(words, colours.size % 8);
  return colours.get(words);
}

function fieldElement(field, labels) {
  if (field.hidden) return h("div", { class: "field", "data-path": field.path }, h("p", { class: "withheld" }, `${field.path} your clearance does not cover this`));
  const label = field.label === null ? "(more labels than this page tells apart)" : labels[field.label].elements.join(", ");
  return h("div", { class: `field colour-${colourOf(label)}`, "data-path": field.path, "data-shown-at": field.shown_at ?? "" },
    h("p", { class: "faint" }, h("span", { class: "label" }, label), ` ${field.path} `, h("span", { class: "marks" })),
    h("pre", {}, field.text, field.is_cut ? " […]" : ""));
}

/** Returns the text that tells one event from another: what is shown of it, with the words of its labels. */
function signOf(event, labels) {
  const words = (index) => (index === null || index === undefined ? null : labels[index].elements);
  return JSON.stringify([event.number, event.kind, event.source, event.saw === null, event.left_out, event.fields.map(({ path, hidden, text, is_cut, label }) => [path, hidden, text, is_cut, words(label)])]);
}

/** Shows events as they come; the answers of several requests follow each other. */
export async function view(content, { left }, client, conversation) {
  const list = h("ol", { class: "trace" });
  const more = h("button", { type: "button", hidden: true }, "Show what follows");
  const state = h("p", { class: "faint" });
  const carried = h("p", {});
  let next = 0;
  /** The version of the conversation that is shown, and the number of its events. */
  let version = null;
  let count = 0;
  let pressed = null;
  /** The elements that are shown, by the signs of their events and verdicts. */
  let shown = new Map();
  /** The labels of the conversation. A label has the same number in all answers of the gateway. */
  let labels = [];

  const clear = () => {
    for (const mark of list.querySelectorAll(".seen, .unseen, .on-path, .path")) mark.remove();
    for (const field of list.querySelectorAll(".not-seen")) field.classList.remove("not-seen");
    for (const item of list.querySelectorAll(".path-begins")) item.classList.remove("path-begins");
    pressed?.setAttribute("aria-pressed", "false");
    pressed = null;
  };

  /** Returns whether a step was shown a field, or undefined if the page does not tell one of their labels apart. */
  const isShownTo = (field, step) => {
    const { shownAt } = field.dataset;
    if (!shownAt || !step.dataset.saw) return undefined;
    return labels[Number(shownAt)]?.flows_to.includes(Number(step.dataset.saw));
  };

  /** Marks every earlier region as seen by a step, or hidden from it. */
  const showSeen = (button) => {
    const step = button.closest(".event");
    const isOn = pressed === button;
    clear();
    if (isOn) return;
    pressed = button;
    button.setAttribute("aria-pressed", "true");
    let [hidden, unknown, isCut] = [0, 0, false];
    for (const item of list.querySelectorAll(".event")) {
      if (Number(item.dataset.number) >= Number(step.dataset.number)) continue;
      isCut ||= item.dataset.leftOut !== undefined;
      for (const field of item.querySelectorAll(".field")) {
        const isSeen = isShownTo(field, step);
        // A field that the clearance does not cover has no marks.
        const marks = field.querySelector(".marks");
        if (!marks) continue;
        if (isSeen === undefined) {
          unknown += 1;
          marks.append(h("span", { class: "unseen" }, "not known whether the step saw it"));
          continue;
        }
        if (!isSeen) {
          hidden += 1;
          field.classList.add("not-seen");
        }
        marks.append(h("span", { class: isSeen ? "seen" : "unseen" }, isSeen ? "seen by the step" : "hidden from the step"));
      }
    }
    announce([
      `${hidden} of the regions above ${hidden === 1 ? "was" : "were"} hidden from this step.`,
      unknown > 0 ? `Of ${unknown} it is not known: the conversation has more labels than this page tells apart.` : "",
      isCut ? "Fields that are left out above are not counted." : "",
    ].filter((part) => part !== "").join(" "));
  };

  const eventElement = (event) => {
    const button = event.saw === null ? null : h("button", { type: "button", "aria-pressed": "false" }, `What step ${event.number} saw`);
    button?.addEventListener("click", () => showSeen(button));
    return h("li", { class: "event", "data-number": event.number, "data-saw": event.saw, "data-left-out": event.left_out ? "" : null, id: `event-${event.number}`, tabindex: "-1" },
      h("h2", {}, `#${event.number} ${KINDS[event.kind]?.(event.source) ?? event.kind}`),
      event.fields.map((field) => fieldElement(field, labels)),
      event.left_out ? h("p", { class: "faint" }, "Further fields are left out.") : null,
      button ? h("p", { class: "buttons" }, button) : null);
  };

  const goTo = (number) => {
    const item = document.getElementById(`event-${number}`);
    item?.scrollIntoView({ block: "center" });
    item?.focus();
  };

  /** Returns the field of a region, if its event is on the page. */
  const fieldOf = ({ event, path }) => {
    const fields = document.getElementById(`event-${event}`)?.querySelectorAll(".field") ?? [];
    return [...fields].find((field) => field.dataset.path === path);
  };

  /** Returns the steps of the model between a region and a call that were shown the region, by their events. */
  const stepsBetween = (region, before) => {
    const field = fieldOf(region);
    if (!field) return [];
    return [...list.querySelectorAll(".event[data-saw]")].filter((step) => {
      const number = Number(step.dataset.number);
      return number > region.event && number < before && isShownTo(field, step);
    });
  };

  /** Shows how each region that influenced a call reached it: the region, the steps that were shown it, and the call. */
  const showPath = (button, verdict, regions) => {
    const isOn = pressed === button;
    clear();
    if (isOn) return;
    pressed = button;
    button.setAttribute("aria-pressed", "true");
    const paths = regions.map((region) => {
      const field = fieldOf(region);
      field?.classList.add("path-begins");
      field?.querySelector(".marks")?.append(h("strong", { class: "on-path" }, `the path to the call of ${verdict.tool} begins here`), " ");
      const steps = stepsBetween(region, verdict.before);
      for (const step of steps) step.querySelector("h2").append(h("span", { class: "on-path" }, " was shown it"));
      const link = (number, words) => h("button", { type: "button", class: "link", click: () => goTo(number) }, words);
      return h("li", {},
        link(region.event, `#${region.event} ${region.path}`), " ", h("span", { class: "label" }, region.label.join(", ")),
        steps.map((step) => [" → ", link(Number(step.dataset.number), `step #${step.dataset.number}`)]),
        " → this call");
    });
    button.closest(".verdict").append(h("ul", { class: "path", "aria-label": `Paths to the call of ${verdict.tool}` }, paths));
    announce(`${paths.length} ${paths.length === 1 ? "region" : "regions"} influenced the call of ${verdict.tool}.`);
  };

  const verdictElement = (verdict) => {
    // Several reasons may name the same region.
    const regions = [...new Map(verdict.reasons.flatMap((reason) => reason.regions).map((region) => [`${region.event} ${region.path}`, region])).values()];
    const button = regions.length === 0 ? null : h("button", { type: "button", "aria-pressed": "false" }, "How they reached the call");
    button?.addEventListener("click", () => showPath(button, verdict, regions));
    const regionElement = ({ event, path, label }) =>
      h("li", {},
        h("button", { type: "button", class: "link", click: () => goTo(event) }, `#${event} ${path}`),
        " ", h("span", { class: "label" }, label.join(", ")));
    return h("li", { class: `verdict ${verdict.outcome}` },
      h("h2", {}, h("code", {}, verdict.tool), ` was ${OUTCOMES[verdict.outcome]}`),
      h("pre", {}, verdict.arguments, verdict.is_cut ? " […]" : ""),
      verdict.label.length > 0 ? h("p", {}, "The call carries: ", h("span", { class: "label" }, verdict.label.join(", "))) : null,
      verdict.reasons.map((reason) => [
        h("p", {}, `The policy ${reason.action}: `, sentence(reason.message), reason.line === null ? "" : ` (line ${reason.line} of the policy)`),
        reason.regions.length > 0 ? h("ul", { "aria-label": "Regions that influenced the call" }, reason.regions.map(regionElement)) : null,
      ]),
      button ? h("p", { class: "buttons" }, button) : null);
  };

  /** Marks the regions that influenced a call that was asked about or refused. */
  const mark = (verdict) => {
    if (verdict.outcome === "permitted") return;
    // Several reasons may name the same region.
    const regions = new Map(verdict.reasons.flatMap((reason) => reason.regions).map((region) => [`${region.event} ${region.path}`, region]));
    for (const { event, path } of regions.values()) {
      const item = document.getElementById(`event-${event}`);
      for (const field of item?.querySelectorAll(".field") ?? []) {
        if (field.dataset.path !== path) continue;
        field.classList.add("influenced");
        field.querySelector(".marks")?.append(h("strong", { class: "influence" }, `influenced the call of ${verdict.tool}, which was ${OUTCOMES[verdict.outcome]}`), " ");
      }
    }
  };

  /** Returns the element of an event: the one that shows it already, with the present numbers of its labels, or a new one. */
  const elementOf = (event) => {
    const sign = signOf(event, labels);
    const element = shown.get(sign) ?? eventElement(event);
    if (event.saw !== null) element.dataset.saw = event.saw;
    element.querySelectorAll(".field").forEach((field, index) => {
      if (!event.fields[index].hidden) field.dataset.shownAt = event.fields[index].shown_at ?? "";
    });
    return [sign, element];
  };

  /** Returns the elements of an answer whose first event is number `from`, by their signs. */
  const elementsOf = (answer, from) => {
    const elements = new Map();
    const verdicts = [...answer.verdicts];
    const addVerdict = (verdict) => {
      const sign = JSON.stringify(verdict);
      // Equal verdicts have equal signs, and each has an element.
      const unique = elements.has(sign) ? `${sign} ${elements.size}` : sign;
      elements.set(unique, shown.get(unique) ?? verdictElement(verdict));
    };
    // The last answer has the labels of all events up to its end.
    labels = answer.labels;
    for (const event of answer.events) {
      while (verdicts.length > 0 && verdicts[0].before <= event.number) addVerdict(verdicts.shift());
      elements.set(...elementOf(event));
    }
    verdicts.forEach(addVerdict);
    if (answer.verdicts_left_out > 0) elements.set(`left out of ${from}`, h("li", { class: "verdict" }, `${answer.verdicts_left_out} further verdicts are left out.`));
    return elements;
  };

  const ask = (from, known) => {
    const query = new URLSearchParams({ client, name: conversation, from });
    if (known !== null) query.set("version", known);
    return request("GET", `/ui/api/conversation?${query}`);
  };

  /** Shows these answers, and what was shown before them unless `isWhole`. */
  const draw = (answers, isWhole) => {
    const elements = new Map(isWhole ? [] : shown);
    for (const [from, answer] of answers) for (const [sign, element] of elementsOf(answer, from)) elements.set(sign, element);
    // What is marked may be about to leave.
    if (pressed !== null && ![...elements.values()].includes(pressed.closest("li.event, li.verdict"))) clear();
    shown = elements;
    update(list, [...elements.values()]);
    if (isWhole) {
      for (const mark of list.querySelectorAll(".influence")) mark.remove();
      for (const field of list.querySelectorAll(".influenced")) field.classList.remove("influenced");
    }
    for (const [, answer] of answers) answer.verdicts.forEach(mark);
    const [, last] = answers.at(-1);
    ({ next } = last);
    // If the answers are of several versions, none of them is what is shown, and the next reading starts over.
    const versions = new Set([...(isWhole || version === null ? [] : [version]), ...answers.map(([, answer]) => answer.version)]);
    version = versions.size === 1 ? last.version : "";
    count = last.events.at(-1)?.number + 1 || count;
    more.hidden = next === null;
    show(carried, last.is_carried_over ? "The policy or the settings of the client have changed since this conversation began. It is shown as its next request would find it: with the labels of the present policy. The verdicts of the earlier one are left out." : null);
    state.textContent = list.children.length === 0 ? "There is nothing that your clearance covers." : "";
  };

  const load = async () => {
    const from = next;
    const answer = await ask(from, null);
    if (!left.aborted) draw([[from, answer]], false);
  };

  /** Adds what has happened since. What is shown already keeps its element, and so the focus and the place of the page. */
  const refresh = async () => {
    const first = await ask(0, version);
    if (left.aborted || first.is_unchanged) return;
    const answers = [[0, first]];
    // As many events as are shown, and what follows them if everything is shown.
    const wanted = next === null ? Infinity : count;
    while (answers.at(-1)[1].next !== null && answers.at(-1)[1].next < wanted) {
      const from = answers.at(-1)[1].next;
      answers.push([from, await ask(from, null)]);
      if (left.aborted) return;
    }
    const before = count;
    draw(answers, true);
    announce(count > before ? `${count - before} new ${count - before === 1 ? "event" : "events"} in this conversation.` : "This conversation has changed.");
  };

  more.addEventListener("click", load);
  show(
    content,
    h("p", {}, h("a", { href: "#conversations" }, "All conversations")),
    h("p", {}, `Client ${client}, conversation ${conversation}. Each region has the label that the policy gave it. A step of the model saw the regions before it whose labels its own label covers.`),
    carried,
    list,
    state,
    more);
  await load();
  poll(left, refresh);
}
