// Renders texts with markdown-it: one JSON string per line in, one JSON array per line out, the page and the addresses that linkify-it finds in
// the text itself.
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';
import MarkdownIt from 'markdown-it';
import { LinkifyIt } from 'linkify-it';

const tlds = createRequire(import.meta.url)('tlds');

const options = { fuzzyLink: true, fuzzyEmail: true, fuzzyIP: true };
const markdown = new MarkdownIt({ html: true, linkify: true, typographer: true, breaks: true });
// Every address is of interest, also those that a browser would not be given.
markdown.validateLink = () => true;
markdown.linkify.tlds(tlds).set(options);
const linkify = new LinkifyIt(options).tlds(tlds);
for (const scheme of ['xmpp:', 'tel:', 'javascript:', 'data:', 'file:', 'magnet:']) {
  const validate = (text, at) => /^[^\s*~`]+/.exec(text.slice(at))?.[0].length ?? 0;
  markdown.linkify.add(scheme, { validate });
  linkify.add(scheme, { validate });
}

for await (const line of createInterface({ input: process.stdin })) {
  const text = JSON.parse(line);
  const found = (linkify.match(text) ?? []).map((match) => match.url);
  process.stdout.write(`${JSON.stringify([markdown.render(text), found])}\n`);
}
