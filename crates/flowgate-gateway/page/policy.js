// The view of policies: the text of a client's policy with how often each statement applied, a dry run of an edited text on
// stored conversations, and a reload of the files.

import { announce, h, show } from "./dom.js";
import { request } from "./api.js";

const OUTCOMES = { permitted: "permitted", asked: "asked about", refused: "refused" };

const plural = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;

/** Says which conversations the counts, or the verdicts, are of. */
function basisOf({ replayed, carried_over: carried, not_carried_over, too_large, diverged }) {
  const left = [];
  if (not_carried_over > 0) left.push(`${not_carried_over} began under another policy or other settings`);
  if (too_large > 0) left.push(`${too_large} ${too_large === 1 ? "is" : "are"} too large`);
  if (diverged > 0) left.push(`${diverged} cannot be replayed`);
  const notes = [];
  if (carried > 0) {
    const which = carried === replayed ? (carried === 1 ? "it" : "all of them") : `${carried} of them`;
    notes.push(`${which} began under another policy or other settings: the calls that ran are judged, and those that were stopped then are missing`);
  }
  if (left.length > 0) notes.push(`left out: ${left.join(", ")}`);
  return `the last ${plural(replayed, "stored conversation")}${notes.length > 0 ? ` (${notes.join("; ")})` : ""}`;
}

/** Says how often a statement applied. */
function hitsOf(statement) {
  if (statement.applied === null) return "";
  if (statement.applied === 0 && statement.failed === 0) return "never applied";
  const parts = [`applied ${statement.applied}×`];
  if (statement.objected > 0) parts.push(statement.kind === "require" ? `not met ${statement.objected}×` : `objected ${statement.objected}×`);
  if (statement.failed > 0) parts.push(`failed ${statement.failed}×`);
  return parts.join(", ");
}

/** The lines of a file, each with its number and the counts of the statement that begins there. */
function linesOf({ path, text }, statements) {
  const own = new Map(statements.filter(({ file }) => file === path).map((statement) => [statement.line, statement]));
  const name = path ?? "the policy's own file";
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Text of ${name}` },
    h("table", { class: "policy" },
      h("caption", {}, path ?? "The policy"),
      h("thead", {}, h("tr", {}, ["Line", "Text", "Hits"].map((title) => h("th", { scope: "col" }, title)))),
      h("tbody", {}, text.replace(/\n$/, "").split("\n").map((line, index) => {
        const statement = own.get(index + 1);
        const isUnused = statement?.applied === 0 && statement.failed === 0;
        return h("tr", { class: isUnused ? "unused" : null, id: path === null ? `line-${index + 1}` : null },
          h("th", { scope: "row" }, index + 1),
          h("td", {}, h("pre", {}, line)),
          h("td", {}, statement ? hitsOf(statement) : null));
      }))));
}

/** The statements that never applied, each with a way to its line. */
function unusedOf(statements) {
  const unused = statements.filter(({ applied, failed }) => applied === 0 && failed === 0);
  if (unused.length === 0) return null;
  return h("details", {},
    h("summary", {}, `${plural(unused.length, "statement")} never applied`),
    h("ul", {}, unused.map(({ file, line, text }) => h("li", {}, h("code", {}, text), ` (${file ? `${file}, ` : ""}line ${line})`))));
}

function reasonsOf(verdict) {
  const place = ({ file, line }) => (line === null ? "" : ` (${file ? `${file}, ` : ""}line ${line})`);
  return [
    h("strong", {}, OUTCOMES[verdict.outcome]),
    verdict.reasons.length > 0 ? h("ul", {}, verdict.reasons.map((reason) => h("li", {}, `${reason.message}${place(reason)}`))) : null,
  ];
}

function changesOf(client, changes) {
  return h("ul", { class: "changes" }, changes.map((change) => h("li", { class: "card" },
    h("h3", {}, h("code", {}, change.tool), " in ",
      h("a", { href: `#conversations/${encodeURIComponent(client)}/${encodeURIComponent(change.conversation)}` }, `conversation ${change.conversation}`)),
    h("pre", {}, change.arguments, change.is_cut ? " […]" : ""),
    h("dl", { class: "arguments" },
      h("dt", {}, "Under the policy in force"), h("dd", {}, reasonsOf(change.before)),
      h("dt", {}, "Under the edited policy"), h("dd", {}, reasonsOf(change.after))),
    change.differs ? h("p", { class: "faint" }, "The conversation itself had another verdict, such as after an earlier approval.") : null)));
}

function resultOf(client, answer, goTo) {
  const diagnostic = ({ file, line, column, message, help, code }) => h("li", {},
    file === null ? h("button", { type: "button", class: "link", click: () => goTo(line) }, `Line ${line}, column ${column}`) : `${file}, line ${line}, column ${column}`,
    `: ${message} `, h("span", { class: "faint" }, `[${code}]`),
    help ? h("p", { class: "help" }, `Help: ${help}`) : null);
  const warnings = answer.warnings.length > 0 ? [h("h3", {}, "Warnings"), h("ul", {}, answer.warnings.map(diagnostic))] : null;
  if (answer.errors.length > 0) {
    return [h("h2", {}, `The edited policy has ${plural(answer.errors.length, "error")}`), h("ul", { class: "diagnostics" }, answer.errors.map(diagnostic)), warnings];
  }
  const { changed, changes, calls, differing, stopped_before: before, stopped_after: after } = answer;
  return [
    h("h2", {}, changed === 0 ? "No verdict would change" : `${plural(changed, "verdict")} would change`),
    h("p", {}, `${plural(calls, "call")} of ${basisOf(answer.conversations)} ${calls === 1 ? "was" : "were"} judged under both policies.`,
      before !== after ? ` Rules stop ${plural(after, "message or answer")}, where they stop ${before} now.` : ""),
    differing > 0 ? h("p", { class: "faint" }, `For ${plural(differing, "call")}, the replay under the policy in force has another verdict than the conversation had.`) : null,
    warnings,
    changesOf(client, changes),
    changes.length < changed ? h("p", {}, `${changed - changes.length} further changes are left out.`) : null,
  ];
}

/** The editor of a text, with line numbers, and the dry run of it. */
function editorOf(usage) {
  const own = usage.files.find(({ path }) => path === null);
  const numbers = h("pre", { class: "numbers", "aria-hidden": "true" });
  const text = h("textarea", { id: "edited", rows: "20", wrap: "off", spellcheck: "false", autocomplete: "off", autocapitalize: "off", "aria-describedby": "edited-help" });
  text.value = own.text;
  const number = () => {
    numbers.textContent = text.value.split("\n").map((_, index) => index + 1).join("\n");
    numbers.scrollTop = text.scrollTop;
  };
  text.addEventListener("input", number);
  text.addEventListener("scroll", () => { numbers.scrollTop = text.scrollTop; });
  number();
  const goTo = (line) => {
    const start = text.value.split("\n").slice(0, line - 1).reduce((sum, before) => sum + before.length + 1, 0);
    const end = text.value.indexOf("\n", start);
    text.focus();
    text.setSelectionRange(start, end < 0 ? text.value.length : end);
    text.scrollTop = Math.max(0, ((line - 5) * text.scrollHeight) / text.value.split("\n").length);
  };
  const last = h("input", { id: "last", type: "number", min: "1", max: "50", value: "20", inputmode: "numeric", required: true });
  const run = h("button", { type: "submit", class: "main" }, "Dry run");
  const result = h("section", { "aria-label": "Result of the dry run", "aria-live": "off" });
  const download = () => {
    const address = URL.createObjectURL(new Blob([text.value], { type: "text/plain" }));
    h("a", { href: address, download: usage.file.split(/[/\\]/).pop() || "policy.flow" }).click();
    setTimeout(() => URL.revokeObjectURL(address), 1000);
  };
  const submit = async (event) => {
    event.preventDefault();
    run.disabled = true;
    show(result, h("p", {}, "The conversations are being judged…"));
    try {
      const answer = await request("POST", "/api/v1/policies/dry-run", { client: usage.client, policy: text.value, last: Number(last.value) });
      show(result, resultOf(usage.client, answer, goTo));
      announce(answer.errors.length > 0 ? `The edited policy has ${plural(answer.errors.length, "error")}.` : `${plural(answer.changed, "verdict")} would change.`);
    } catch (refusal) {
      show(result, h("p", { role: "alert" }, `The dry run failed: ${refusal.message}.`));
    }
    run.disabled = false;
  };
  return h("form", { class: "card", submit },
    h("h2", {}, "Try an edited policy"),
    h("p", { id: "edited-help" }, "The edited text is compiled, and the stored conversations are judged under it as they happened. Nothing is stored, and the policy in force does not change. ",
      "To put the text in force, download it, replace ", h("code", {}, usage.file), " on the machine of the gateway, and reload the configuration."),
    h("p", {}, h("label", { for: "edited" }, "Text of the policy")),
    h("div", { class: "editor" }, numbers, text),
    h("p", {}, h("label", { for: "last" }, "Stored conversations, the last"), " ", last),
    h("p", { class: "buttons" }, run, h("button", { type: "button", click: download }, "Download the text")),
    result);
}

/** The order to read the configuration and the policies again. `after` shows the view again. */
function reloadOf(after) {
  const result = h("p", { "aria-live": "off" });
  const run = h("button", { type: "button", click: () => reload() }, "Reload the configuration");
  const reload = async () => {
    run.disabled = true;
    try {
      const { added, removed, changed, needs_restart: sections } = await request("POST", "/api/v1/policies/reload", {});
      const parts = [["New clients", added], ["Removed clients", removed], ["Clients with another policy or settings", changed], ["Sections that need a restart", sections]];
      const said = parts.filter(([, names]) => names.length > 0).map(([title, names]) => `${title}: ${names.join(", ")}.`);
      await after(`Reloaded. ${said.length > 0 ? said.join(" ") : "No client has changed."}`);
    } catch (refusal) {
      run.disabled = false;
      show(result, h("span", { role: "alert" }, `Not reloaded, and the present configuration stays in force: ${refusal.message}.`));
    }
  };
  return h("section", { class: "card", "aria-label": "Reload" },
    h("h2", {}, "Put changed files in force"),
    h("p", {}, "The gateway reads its configuration, policies and key files again. If something cannot be used, nothing changes. A conversation that began under another policy goes on with the labels of the new one."),
    h("p", { class: "buttons" }, run),
    result);
}

export async function view(content, context, reloaded = "") {
  const { left, session } = context;
  const [, chosen] = location.hash.slice(1).split("/").map(decodeURIComponent);
  const { policies } = await request("GET", "/api/v1/policies");
  if (left.aborted) return;
  if (policies.length === 0) {
    show(content, h("p", {}, "There is no client whose policy you may see."));
    return;
  }
  const client = policies.some((policy) => policy.client === chosen) ? chosen : policies[0].client;
  const select = h("select", { id: "policy-client" }, policies.map((policy) => h("option", { value: policy.client, selected: policy.client === client }, policy.client)));
  select.addEventListener("change", () => { location.hash = `#policy/${encodeURIComponent(select.value)}`; });
  const place = h("div", {}, h("p", {}, "The statements are being counted…"));
  show(content, reloaded ? h("p", {}, reloaded) : null, h("p", {}, h("label", { for: "policy-client" }, "Client"), " ", select), place);
  if (reloaded) announce(reloaded);
  const usage = await request("GET", `/api/v1/policies/usage?${new URLSearchParams({ client })}`);
  if (left.aborted) return;
  const isCounted = usage.conversations !== null;
  show(
    place,
    h("p", {}, "The policy of the file ", h("code", {}, usage.file), usage.mode === "watch" ? ", in watch mode: it stops nothing. " : ". ",
      isCounted ? `How often its statements applied to ${plural(usage.calls, "call")} and the texts of ${basisOf(usage.conversations)}:` : "Your clearance does not cover all texts of this client, so its statements are not counted."),
    isCounted ? unusedOf(usage.statements) : null,
    usage.files.map((file) => linesOf(file, usage.statements)),
    isCounted && session.role !== "viewer" ? editorOf(usage) : null,
    session.role === "admin" && session.tenants.length === 0 ? reloadOf((said) => view(content, context, said)) : null);
}
