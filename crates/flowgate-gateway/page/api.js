// Requests to the gateway. The browser adds the cookie of the session, and this module its token.

const TOKEN = "flowgate-token";
let ended = () => {};

/** The session ends if the gateway refuses it; then this function is called. */
export function onEnd(callback) {
  ended = callback;
}

export const hasSession = () => localStorage.getItem(TOKEN) !== null;

/** An answer other than a success: its status, and the sentence of the gateway. */
export class Refusal extends Error {
  constructor(status, sentence) {
    super(sentence);
    this.status = status;
  }
}

async function send(method, path, headers, body) {
  let response;
  try {
    response = await fetch(path, { method, headers, body, credentials: "same-origin", redirect: "error" });
  } catch {
    throw new Refusal(0, "the gateway does not answer");
  }
  if (response.ok) return response;
  const { detail } = await response.json().catch(() => ({}));
  const refusal = new Refusal(response.status, detail ?? `the gateway answered with ${response.status}`);
  throw refusal;
}

/** Sends a request with the session, and returns the JSON of the answer. */
export async function request(method, path, value) {
  return (await withSession(method, path, value)).json();
}

async function withSession(method, path, value, more = {}) {
  const headers = { "x-flowgate-page": localStorage.getItem(TOKEN) ?? "", ...more };
  if (value !== undefined) headers["content-type"] = "application/json";
  try {
    return await send(method, path, headers, value === undefined ? undefined : JSON.stringify(value));
  } catch (refusal) {
    if (refusal.status === 401) {
      localStorage.removeItem(TOKEN);
      ended();
    }
    throw refusal;
  }
}

/** Begins a session with the key of a person; returns who that is. */
export async function logIn(key) {
  const response = await send("POST", "/ui/api/session", { authorization: `Bearer ${key}` });
  const { token, ...session } = await response.json();
  localStorage.setItem(TOKEN, token);
  return session;
}

/** Takes the session of a login at an identity provider that this browser has completed; returns who that is. */
export async function takeLogin() {
  const response = await send("POST", "/ui/api/session", { "x-flowgate-login": "1" });
  const { token, ...session } = await response.json();
  localStorage.setItem(TOKEN, token);
  return session;
}

/** Takes the session of a login link with this token; returns who that is. */
export async function takeLink(link) {
  const response = await send("POST", "/ui/api/session", { "x-flowgate-login-link": link });
  const { token, ...session } = await response.json();
  localStorage.setItem(TOKEN, token);
  return session;
}

/** Whether people can log in at an identity provider. */
export async function hasProvider() {
  const response = await fetch("/ui/api/session", { credentials: "omit", redirect: "error" });
  return response.headers.has("x-flowgate-login");
}

export async function logOut() {
  await request("DELETE", "/ui/api/session").catch(() => {});
  localStorage.removeItem(TOKEN);
}

const wait = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

/**
 * Calls `onQuestion` with each question that changes, from now on, and `onOpen` each time that the stream begins: what
 * changed before is not in it. Reconnects until `signal` aborts.
 */
export async function questions(signal, onOpen, onQuestion, onLost) {
  for (let pause = 500; !signal.aborted; pause = Math.min(pause * 2, 10_000)) {
    try {
      const response = await withSession("GET", "/api/v1/approvals/events");
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      signal.addEventListener("abort", () => reader.cancel().catch(() => {}));
      let text = "";
      let isOpen = false;
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        // The first bytes, an event or a comment, show that the gateway has begun to watch.
        if (!isOpen) {
          isOpen = true;
          pause = 500;
          await onOpen();
        }
        text += value;
        const events = text.split("\n\n");
        text = events.pop();
        for (const event of events) {
          const data = event.split("\n").filter((line) => line.startsWith("data: "));
          if (data.length > 0) onQuestion(JSON.parse(data.map((line) => line.slice(6)).join("\n")));
        }
      }
    } catch (failure) {
      if (failure.status === 401 || signal.aborted) return;
    }
    onLost();
    await wait(pause);
  }
}
