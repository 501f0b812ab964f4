// Begins the page: asks for a key, or shows the views to the person whose session it is.

import { announce, h, show } from "./dom.js";
import { hasProvider, hasSession, logIn, logOut, onEnd, request, takeLink, takeLogin } from "./api.js";
import * as conversations from "./conversations.js";
import * as coverage from "./coverage.js";
import * as decided from "./decided.js";
import * as rates from "./rates.js";
import * as freezes from "./freezes.js";
import * as grants from "./grants.js";
import * as policy from "./policy.js";
import * as questions from "./questions.js";

const page = document.getElementById("page");
let closing = new AbortController();

/** The views, by the part of the address after `#`: the title, and the function that shows it. */
const VIEWS = new Map([
  ["questions", { title: "Questions", ...questions }],
  ["decided", { title: "Decided", ...decided }],
  ["grants", { title: "Grants", ...grants }],
  ["freezes", { title: "Freezes", ...freezes }],
  ["conversations", { title: "Conversations", ...conversations }],
  ["policy", { title: "Policy", ...policy }],
  ["rates", { title: "Rates", ...rates }],
  ["coverage", { title: "Coverage", ...coverage }],
]);

function chosenView() {
  const name = location.hash.slice(1).split("/")[0];
  return VIEWS.has(name) ? name : VIEWS.keys().next().value;
}

/** Shows the form that asks for a key; `sentence` says why it is asked for again. */
function showLogin(sentence = "") {
  closing.abort();
  const key = h("input", { id: "key", type: "password", autocomplete: "current-password", required: true, "aria-describedby": "login-help login-error" });
  const error = h("p", { id: "login-error", role: "alert" }, sentence);
  const button = h("button", { type: "submit", class: "main" }, "Log in");
  const provider = h("p", {});
  hasProvider().then((can) => {
    if (can) show(provider, h("a", { href: "/ui/login" }, "Log in with the account of your organisation"));
  }, () => {});
  const submit = async (event) => {
    event.preventDefault();
    button.disabled = true;
    try {
      const session = await logIn(key.value.trim());
      key.value = "";
      showPage(session);
    } catch (refusal) {
      error.textContent = `Not logged in: ${refusal.message}.`;
      button.disabled = false;
      key.focus();
    }
  };
  show(
    page,
    h("main", { class: "login" },
      h("h1", {}, "Flowgate"),
      h("form", { submit },
        h("label", { for: "key" }, "Your key"),
        key,
        h("p", { id: "login-help", class: "faint" }, "The key of a person, which ", h("code", {}, "[people.NAME]"), " of the gateway's configuration names. It is sent once, and not stored."),
        button,
        provider,
        error)));
  key.focus();
}

/** Shows the views of a person who is logged in. */
function showPage(session) {
  closing = new AbortController();
  const links = new Map([...VIEWS].map(([name, { title }]) => [name, h("a", { href: `#${name}` }, title, h("span", { class: "count" }))]));
  const main = h("main", { id: "main", tabindex: "-1" });
  const leave = async () => {
    await logOut();
    showLogin("You are logged out.");
  };
  const reads = session.may_read === null ? "may read everything" : `may read up to ${session.may_read.join(", ")}`;
  const tenants = session.tenants.length === 0 ? "all tenants" : `tenants ${session.tenants.join(", ")}`;
  const skip = (event) => {
    event.preventDefault();
    main.focus();
  };
  show(
    page,
    h("a", { class: "skip", href: "#main", click: skip }, "Skip to the content"),
    h("header", {},
      h("p", { class: "brand" }, "Flowgate"),
      h("nav", { "aria-label": "Views" }, h("ul", {}, [...links.values()].map((link) => h("li", {}, link)))),
      h("p", { class: "who" },
        h("span", { class: "name" }, `${session.person} (${session.role})`, h("button", { type: "button", click: leave }, "Log out")),
        h("span", {}, `${tenants}, ${reads}`))),
    main,
    h("p", { id: "announcements", role: "status", "aria-live": "polite" }));
  const context = {
    session,
    signal: closing.signal,
    /** Shows a number beside the link to a view; 0 shows none. */
    count: (name, number) => {
      const count = links.get(name).querySelector(".count");
      count.textContent = number === 0 ? "" : ` ${number}`;
    },
  };
  let leaving = new AbortController();
  closing.signal.addEventListener("abort", () => leaving.abort());
  const showView = () => {
    leaving.abort();
    leaving = new AbortController();
    const chosen = chosenView();
    for (const [name, link] of links) {
      if (name === chosen) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    document.title = `${VIEWS.get(chosen).title} – Flowgate`;
    const { title, view } = VIEWS.get(chosen);
    const content = h("div", { "aria-busy": "true" });
    show(main, h("h1", {}, title), content);
    const failed = (refusal) => show(content, h("p", { role: "alert" }, `This cannot be shown: ${refusal.message}.`));
    Promise.resolve(view(content, { ...context, left: leaving.signal })).catch(failed).finally(() => content.removeAttribute("aria-busy"));
  };
  // What was announced in one view is old news in the next one.
  window.addEventListener("hashchange", () => { announce(""); showView(); main.focus(); }, { signal: closing.signal });
  for (const { begin } of VIEWS.values()) begin?.(context);
  showView();
  announce(`Logged in as ${session.person}.`);
}

const notLoggedIn = (refusal) => showLogin(`Not logged in: ${refusal.message}.`);
onEnd(() => showLogin("The session has ended: log in again."));
if (location.hash === "#login") {
  history.replaceState(null, "", "/ui/");
  takeLogin().then(showPage, notLoggedIn);
} else if (location.hash.startsWith("#link/")) {
  const link = location.hash.slice("#link/".length);
  // The token leaves the address and the history of the browser before it is used.
  history.replaceState(null, "", "/ui/");
  takeLink(link).then(showPage, notLoggedIn);
} else if (hasSession()) request("GET", "/ui/api/session").then(showPage, (refusal) => showLogin(refusal.status === 401 ? "" : `Not logged in: ${refusal.message}.`));
else showLogin();
