// Builds elements. A text becomes a text node, never markup, so nothing of a trace can act on the page.

const SVG = "http://www.w3.org/2000/svg";

/** Sets a property (a function is a listener of an event; `data-` and `aria-` names and the rest are attributes). */
function set(element, name, value) {
  if (value === undefined || value === null || value === false) return;
  if (typeof value === "function") element.addEventListener(name, value);
  else element.setAttribute(name, value === true ? "" : String(value));
}

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) set(element, name, value);
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}

/** Returns an element of HTML with these properties and children (nodes or texts). */
export function h(tag, properties = {}, ...children) {
  return fill(document.createElement(tag), properties, children);
}

/** Returns an element of SVG. */
export function s(tag, properties = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

/** Replaces the children of an element. */
export function show(element, ...children) {
  element.replaceChildren();
  return fill(element, {}, children);
}

/** Gives an element these children, and touches only what differs: a child that stays where it is keeps its focus and its layout. */
export function update(element, ...children) {
  const wanted = children.flat(Infinity).filter((child) => child instanceof Node);
  const kept = new Set(wanted);
  for (const child of [...element.childNodes]) if (!kept.has(child)) child.remove();
  let at = element.firstChild;
  for (const child of wanted) {
    if (child === at) at = at.nextSibling;
    else element.insertBefore(child, at);
  }
}

/** Returns a value of a call as text: a text as it is, anything else as JSON. */
export function textOf(value) {
  return typeof value === "string" ? value : JSON.stringify(value, null, 2);
}

/** Returns an element with a date, in the browser's language. */
export function time(milliseconds) {
  const date = new Date(milliseconds);
  return h("time", { datetime: date.toISOString() }, date.toLocaleString());
}

const polite = () => document.getElementById("announcements");

/** Lets a screen reader say a sentence, and shows it at the bottom of the page. */
export function announce(sentence) {
  polite().textContent = sentence;
}

/**
 * Returns the parts of a sentence of the gateway: what is between backticks as code, the rest as text. Only for sentences of
 * the gateway and of policies: the exact text of a value must stay as it is. A backtick without a partner stays.
 */
export function sentence(text) {
  return text.split(/(`[^`\n]+`)/).map((part) => (/^`[^`\n]+`$/.test(part) ? h("code", {}, part.slice(1, -1)) : part));
}
