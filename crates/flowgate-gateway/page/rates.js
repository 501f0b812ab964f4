// The view of figures over time: requests, verdicts, findings and latencies since the start of the gateway, as charts and as
// tables.

import { h, s, show, time } from "./dom.js";
import { request } from "./api.js";

const WIDTH = 600;
const HEIGHT = 120;
/** The time between two readings. */
const PAUSE = 10_000;

/**
 * A chart of lines over the intervals: each line has a name, its values (null where there is none) and a pattern of dashes,
 * so that it can be told apart without colours.
 */
function chart(title, unit, lines, seconds, begun) {
  const most = Math.max(1, ...lines.flatMap(({ values }) => values.map((value) => value ?? 0)));
  const count = Math.max(2, lines[0].values.length);
  const x = (index) => (index * WIDTH) / (count - 1);
  const y = (value) => HEIGHT - (value * (HEIGHT - 6)) / most - 2;
  const path = (values) => {
    let isOpen = false;
    return values.map((value, index) => {
      const step = value === null ? "" : `${isOpen ? "L" : "M"}${x(index).toFixed(1)} ${y(value).toFixed(1)}h1`;
      isOpen = value !== null;
      return step;
    }).join("");
  };
  const total = (values) => values.reduce((sum, value) => sum + (value ?? 0), 0);
  const top = Number.isInteger(most) ? most : most.toFixed(1);
  const described = lines.map(({ name, values }) => `${name}: ${unit === "ms" ? `at most ${Math.max(0, ...values.map((value) => value ?? 0)).toFixed(0)} ms` : total(values)}`).join("; ");
  return h("figure", { class: "chart" },
    h("figcaption", {}, h("h2", {}, title), h("p", { class: "faint" }, `${described}. One point for each ${seconds} seconds, from `, time(begun), ` on. The top of the chart is ${top}${unit === "ms" ? " ms" : ""}.`)),
    s("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${title}: ${described}`, preserveAspectRatio: "none" },
      s("path", { class: "axis", d: `M0 ${HEIGHT - 1}H${WIDTH}` }),
      lines.map(({ values, dashes }, index) => s("path", { class: `line line-${index}`, d: path(values), "stroke-dasharray": dashes }))),
    h("ul", { class: "legend" }, lines.map(({ name, dashes }, index) =>
      h("li", {}, s("svg", { viewBox: "0 0 30 6", width: "30", height: "6", "aria-hidden": "true" }, s("path", { class: `line line-${index}`, d: "M0 3H30", "stroke-dasharray": dashes })), ` ${name}`))));
}

const KINDS = { requirement: "a requirement that was not met", rule: "a rule", other: "another reason", watched: "watch mode: nothing was stopped" };

/** What objected most often to the calls of agents. */
function findingsOf(findings, leftOut) {
  return h("section", { "aria-label": "Findings" },
    h("h2", {}, "What objected most often"),
    findings.length === 0
      ? h("p", {}, "Nothing so far, in what you may read.")
      : h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "What objected most often" },
        h("table", {},
          h("caption", {}, "Reasons by which calls were asked about or denied. A line is that of the policy at that time."),
          h("thead", {}, h("tr", {}, ["Times", "Client", "Tool", "Reason", "Line of the policy", "Last"].map((title) => h("th", { scope: "col" }, title)))),
          h("tbody", {}, findings.map((finding) =>
            h("tr", {},
              h("td", {}, finding.count),
              h("td", {}, h("a", { href: `#policy/${encodeURIComponent(finding.client)}` }, finding.client)),
              h("td", {}, h("code", {}, finding.tool)),
              h("td", {}, KINDS[finding.kind] ?? finding.kind),
              h("td", {}, finding.place),
              h("td", {}, time(finding.last))))))),
    leftOut > 0 ? h("p", { class: "faint" }, `${leftOut} further ones are not distinguished.`) : null);
}

function draw(content, { begun, seconds, intervals, findings, findings_left_out: leftOut }) {
  const line = (name, member, dashes) => ({ name, dashes, values: intervals.map((interval) => interval[member]) });
  const sum = (member) => intervals.reduce((all, interval) => all + interval[member], 0);
  show(
    content,
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Sums" },
      h("table", {},
        h("caption", {}, "Since the start of the gateway, all clients together"),
        h("thead", {}, h("tr", {}, ["Requests", "Refused or failed", "Calls permitted", "Calls asked about", "Calls denied", "Replies withheld", "Regions hidden"].map((title) => h("th", { scope: "col" }, title)))),
        h("tbody", {}, h("tr", {}, ["requests", "failed", "permitted", "asked", "denied", "withheld", "hidden"].map((member) => h("td", {}, sum(member))))))),
    chart("Verdicts", "calls", [line("permitted", "permitted", null), line("asked about", "asked", "6 3"), line("denied", "denied", "2 2")], seconds, begun),
    chart("Findings", "findings", [line("requirements not met", "requirements", null), line("rules", "rules", "6 3"), line("other reasons", "other_findings", "2 2"), line("replies withheld", "withheld", "8 2 2 2"), line("watch mode", "watched", "1 4")], seconds, begun),
    findingsOf(findings, leftOut),
    chart("Hidden regions", "regions", [line("hidden from models", "hidden", null)], seconds, begun),
    chart("Requests", "requests", [line("all", "requests", null), line("refused or failed", "failed", "4 3")], seconds, begun),
    chart("Time of a request, with what it waited for a model and for people", "ms", [line("mean", "mean_ms", null), line("slowest", "slowest_ms", "4 3")], seconds, begun));
}

export async function view(content, { left, session }) {
  if (session.tenants.length > 0) {
    show(content, h("p", {}, "The figures are those of all clients together, so only people of all tenants see them."));
    return;
  }
  const load = async () => {
    const figures = await request("GET", "/ui/api/figures");
    if (!left.aborted) draw(content, figures);
  };
  await load();
  const timer = setInterval(() => { if (!document.hidden && !content.contains(document.activeElement)) load().catch(() => {}); }, PAUSE);
  left.addEventListener("abort", () => clearInterval(timer));
}
