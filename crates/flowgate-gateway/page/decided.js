// The view of questions that are no longer open, newest first.

import { h, show, time } from "./dom.js";
import { request } from "./api.js";
import { contentOf, outcomeOf } from "./card.js";

const CHOICES = [
  ["used", "allowed, and sent"],
  ["allowed", "allowed, not sent yet"],
  ["denied", "denied"],
  ["expired", "expired"],
  ["void", "void"],
];

export async function view(content, { left }) {
  const select = h("select", { id: "state" }, h("option", { value: "" }, "all"), CHOICES.map(([state, words]) => h("option", { value: state }, words)));
  const list = h("div", { class: "cards" });
  const load = async () => {
    const states = select.value === "" ? CHOICES.map(([state]) => state) : [select.value];
    const answers = await Promise.all(states.map((state) => request("GET", `/api/v1/approvals?state=${state}`)));
    if (left.aborted) return;
    const questions = answers.flatMap((answer) => answer.questions).sort((a, b) => (b.decided ?? b.asked) - (a.decided ?? a.asked));
    const rest = answers.reduce((sum, answer) => sum + answer.left_out, 0);
    show(
      list,
      questions.length === 0 ? h("p", { class: "faint" }, "There are none.") : null,
      questions.slice(0, 200).map((question) =>
        h("details", { class: "card" },
          h("summary", {}, h("code", {}, question.call.tool), ` ${outcomeOf(question)} `, question.decided ? time(question.decided) : null),
          contentOf(question))),
      rest + Math.max(0, questions.length - 200) > 0 ? h("p", {}, `${rest + Math.max(0, questions.length - 200)} older ones are not shown.`) : null);
  };
  select.addEventListener("change", load);
  show(content, h("p", {}, h("label", { for: "state" }, "Show"), " ", select), list);
  await load();
}
