// Lists the fields of requests that the official clients for JavaScript define, like known_fields.py for those in Python: its classes have
// nearly the same names there. The list is `crates/flowgate-lm/tests/client-fields-npm.txt`.
//
// Arguments: the folder with the installed packages, and the file that `known_fields.py --classes` has written.

import fs from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";

const [, , folder, classesFile] = process.argv;
const require = createRequire(path.join(path.resolve(folder), "package.json"));
const ts = require("typescript");

// For each form, the package and its files.
const PACKAGES = {
  "chat-completions": ["openai", "resources"],
  responses: ["openai", "resources"],
  embeddings: ["openai", "resources"],
  messages: ["@anthropic-ai/sdk", "resources"],
  "generate-content": ["@google/genai", "dist/genai.d.ts"],
};
// Interfaces with other names than the classes: `form | object | class`.
const NAMES = {
  "chat-completions | file of a file part | FileFile": "ChatCompletionContentPart.File.File",
  "chat-completions | file part | File": "ChatCompletionContentPart.File",
  "chat-completions | function of a tool call | Function": "ChatCompletionMessageFunctionToolCall.Function",
  "chat-completions | function of request.tool_choice | Function": "ChatCompletionNamedToolChoice.Function",
  "chat-completions | request | CompletionCreateParamsStreaming": "ChatCompletionCreateParamsStreaming",
  "generate-content | inline data | Blob": "Blob_2",
  "responses | request.stream_options | StreamOptions": "ResponseCreateParams.StreamOptions",
  "responses | format of a custom tool | Text": "CustomToolInputFormat.Text",
  "responses | format of a custom tool | Grammar": "CustomToolInputFormat.Grammar",
  "responses | function tool | ToolFunction": "NamespaceTool.Function",
  "responses | item with additional tools | AdditionalTools": "ResponseInputItem.AdditionalTools",
  "responses | message of the user | Message": "ResponseInputItem.Message",
  "responses | reference to an item | ItemReference": "ResponseInputItem.ItemReference",
};
// The settings of a request and of its generation are one class, also with what concerns the client itself, or another API.
const NOT_SENT = ["abortSignal", "automaticContinuation", "automaticFunctionCalling", "generationOutputConfig", "httpOptions", "imageConfig", "modelArmorConfig"];

function filesBelow(at) {
  if (!fs.statSync(at).isDirectory()) return [at];
  return fs.readdirSync(at).sort().flatMap((name) => filesBelow(path.join(at, name))).filter((file) => file.endsWith(".d.ts"));
}

/** Returns the declarations of a package by their names, those in a namespace with its name, and what determines their fields. */
function declarations(name, within) {
  // What is in beta comes last: of several declarations with one name, the first counts, except that Anthropic's beta is of the same form.
  const isBeta = (file) => Number(file.includes("/beta/"));
  const files = filesBelow(path.join(folder, "node_modules", name, within)).sort((one, other) => isBeta(one) - isBeta(other));
  const program = ts.createProgram(files, { skipLibCheck: true, noLib: true, types: [] });
  const found = new Map();
  const visit = (node, prefix) => {
    if ((ts.isInterfaceDeclaration(node) || ts.isTypeAliasDeclaration(node) || ts.isClassDeclaration(node)) && node.name) {
      const key = prefix + node.name.text;
      found.set(key, [...(found.get(key) ?? []), node]);
    }
    if (ts.isModuleDeclaration(node) && node.body) return ts.forEachChild(node.body, (child) => visit(child, `${prefix}${node.name.text}.`));
    return ts.forEachChild(node, (child) => visit(child, prefix));
  };
  for (const file of files) visit(program.getSourceFile(file), "");
  const checker = program.getTypeChecker();
  const fields = (node) => {
    const type = checker.getTypeAtLocation(node);
    return (type.isUnion() ? type.types : [type]).flatMap((part) => checker.getPropertiesOfType(part).map((symbol) => symbol.name));
  };
  return { found, fields };
}

const read = {};
const of = (form) => (read[PACKAGES[form][0]] ??= declarations(...PACKAGES[form]));

/** Returns the fields of the interface with the name of a Python class. */
function fieldsOf(form, object, name) {
  const { found, fields } = of(form);
  const renamed = NAMES[`${form} | ${object} | ${name}`];
  const nested = (wanted) => [...found].find(([key]) => key.endsWith(`.${wanted}`))?.[1];
  const candidates = renamed ? [renamed] : [name, name.replace(/Params?$/, "")];
  const nodes = candidates.map((candidate) => found.get(candidate) ?? nested(candidate)).find(Boolean);
  if (!nodes) throw new Error(`${form}, ${object}: there is no interface ${candidates.join(" or ")}; name it in NAMES`);
  return (form === "messages" ? nodes : nodes.slice(0, 1)).flatMap(fields);
}

const versions = ["openai", "@anthropic-ai/sdk", "@google/genai"].map((name) => `${name} ${JSON.parse(fs.readFileSync(path.join(folder, "node_modules", name, "package.json"), "utf8")).version}`);
const lines = [`# ${versions.join(", ")}; written by compat/clients/fields`];
for (const [form, objects] of Object.entries(JSON.parse(fs.readFileSync(classesFile, "utf8")))) {
  for (const [object, names] of Object.entries(objects)) {
    const all = new Set(names.flatMap((name) => fieldsOf(form, object, name)));
    // A header is no field of the body.
    all.delete("betas");
    if (names.includes("GenerateContentConfig")) for (const other of [...NOT_SENT, ...fieldsOf(form, object, "GenerationConfig")]) all.delete(other);
    lines.push(...[...all].sort().map((field) => `${form} | ${object} | ${field}`));
  }
}
process.stdout.write(`${lines.join("\n")}\n`);
