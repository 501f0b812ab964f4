//! Resolves `import` and `from ... import` statements, and calls of functions in imported modules. Policies for
//! invariant-ai, the policy analyzer of *AI Agents with Formal Security Guarantees*, import functions from its modules.
//! `MODULES` lists these modules with the functions and types in them, and `UNAVAILABLE` the functions that Flowgate
//! does not have; all other functions are built into Flowgate. The compiler calls this module for each `import`
//! statement, and for each call of an imported or unknown function.
//!
//! All functions are available without an import; an import only adds another name. A policy cannot import code,
//! whereas invariant-ai imports any Python module. Imports of files (`import "PATH"`) are resolved by the loader.

use std::collections::HashMap;

use super::super::diagnostic::Span;
use super::super::plan::{CompiledExpr, Type};
use super::super::syntax::Name;
use super::{CompileResult, Compiler};
use crate::builtin::FUNCTIONS;
use crate::value::Value;

/// The imports of a policy.
#[derive(Debug, Default)]
pub(super) struct Imports {
    /// The built-in functions, by the names that the policy gives them.
    pub(super) functions: HashMap<String, &'static str>,
    /// The types, by the names that the policy gives them.
    pub(super) types: HashMap<String, Type>,
    /// The paths of modules, by the names that the policy gives them.
    modules: HashMap<String, &'static str>,
}

/// The modules that a policy can import, each with the names of its functions and types.
const MODULES: &[(&str, &[&str])] = &[
    ("invariant", LANGUAGE),
    ("invariant.builtins", LANGUAGE),
    ("invariant.nodes", LANGUAGE),
    ("invariant.message", LANGUAGE),
    ("invariant.errors", LANGUAGE),
    ("invariant.quantifiers", LANGUAGE),
    ("invariant.detectors", DETECTORS),
    ("invariant.detectors.pii", DETECTORS),
    ("invariant.detectors.code", DETECTORS),
    ("invariant.detectors.copyright", DETECTORS),
    ("invariant.detectors.fuzzy_matching", DETECTORS),
    ("invariant.detectors.moderation", DETECTORS),
    ("invariant.detectors.prompt_injection", DETECTORS),
    ("invariant.detectors.secrets", DETECTORS),
    ("invariant.detectors.unicode", DETECTORS),
    ("invariant.parsers", &["html_code", "links"]),
    ("invariant.parsers.html", &["html_code", "links"]),
    ("invariant.access_control", &["should_allow_rbac"]),
    ("json", &["loads"]),
];

/// The names that the modules of invariant-ai's language have: types, keywords and functions.
const LANGUAGE: &[&str] = &[
    "Message",
    "ToolCall",
    "ToolOutput",
    "Tool",
    "ToolParameter",
    "Function",
    "TextChunk",
    "Image",
    "Input",
    "Event",
    "Violation",
    "PolicyViolation",
    "count",
    "forall",
    "any",
    "empty",
    "match",
    "find",
    "json_loads",
    "len",
    "min",
    "max",
    "sum",
    "print",
    "tuple",
    "tool_call",
    "server",
    "text",
    "image",
    "LLM",
    "should_allow_rbac",
];

/// The names that the modules of invariant-ai's detectors have.
const DETECTORS: &[&str] = &[
    "pii",
    "secrets",
    "prompt_injection",
    "unicode",
    "moderated",
    "copyright",
    "python_code",
    "ipython_code",
    "semgrep",
    "CodeIssue",
    "fuzzy_contains",
];

/// Functions of invariant-ai that Flowgate does not have, each with the reason.
const UNAVAILABLE: &[(&str, &str)] = &[
    ("llm", "the function asks a model, which a policy cannot do"),
    ("llm_confirm", "the function asks a model, which a policy cannot do"),
    ("is_similar", "the function asks a model for embeddings, which a policy cannot do"),
    ("embedding_similarity", "the function asks a model for embeddings, which a policy cannot do"),
    ("ocr", "the function starts a program, which a policy cannot do"),
    ("get_files", "the function reads files, which a policy cannot do"),
    ("get_tree_files", "the function reads files, which a policy cannot do"),
    ("get_file_content", "the function reads files, which a policy cannot do"),
    ("get_file_contents", "the function reads files, which a policy cannot do"),
    ("is_sensitive", "the function reads files, which a policy cannot do"),
    ("is_sensitive_dir", "the function reads files, which a policy cannot do"),
];

impl Compiler<'_> {
    /// Resolves one `import` statement, and records the names that it adds. `import MODULE as ALIAS` has an `alias` and
    /// no `names`; `from MODULE import NAME as ALIAS, ...` has `names`, each with its optional alias. Reports a module
    /// or a name that Flowgate does not have.
    pub(super) fn import(
        &mut self,
        module: &Name,
        alias: Option<&Name>,
        names: Option<&[(Name, Option<Name>)]>,
    ) -> CompileResult<()> {
        for (name, _) in names.unwrap_or_default() {
            let unavailable = UNAVAILABLE.iter().find(|(known, _)| *known == name.text);
            if let Some((_, why)) = unavailable {
                let message = format!("`{}` is not available: {why}", name.text);
                return self.fail(
                    "unavailable",
                    &name.span,
                    message,
                    "declare an `extern` predicate, and name the HTTP service or the WebAssembly module that answers it, with `--predicate` or in [predicates]",
                );
            }
        }
        let Some((path, known)) = MODULES.iter().find(|(path, _)| *path == module.text) else {
            let message = format!("the module `{}` cannot be imported", module.text);
            // The full list is long, so only modules with at most one dot are listed: the modules below them add no
            // further names.
            let known: Vec<&str> =
                MODULES.iter().map(|(path, _)| *path).filter(|path| path.matches('.').count() < 2).collect();
            let help =
                format!("these modules can be imported, and some of their submodules: {}", known.join(", "));
            return self.fail("unavailable", &module.span, message, help);
        };
        let Some(names) = names else {
            let local = alias.unwrap_or(module);
            self.imports.modules.insert(local.text.clone(), path);
            return Ok(());
        };
        for (name, alias) in names {
            if !known.contains(&name.text.as_str()) {
                return self.unknown_name(&format!("name in `{path}`:"), &name.text, &name.span, known);
            }
            let local = alias.as_ref().unwrap_or(name).text.clone();
            if let Some(canonical) = function(&name.text) {
                self.imports.functions.insert(local, canonical);
            // The type of the findings of `semgrep`, which are maps here.
            } else if name.text == "CodeIssue" {
                self.imports.types.insert(local, Type::Dict);
            // Nothing is recorded for a type without an alias, which is known by its name already, or for a keyword
            // such as `forall`, whose alias has no effect.
            } else if let (Some(_), Some(ty)) = (alias, self.named_type(&name.text)) {
                self.imports.types.insert(local, ty);
            }
        }
        Ok(())
    }

    /// Returns the built-in function that `module.name` refers to; `None` if the policy does not import the module.
    /// Fails if the module has no such function.
    pub(super) fn function_in_module(
        &mut self,
        module: &str,
        name: &Name,
    ) -> CompileResult<Option<&'static str>> {
        let Some(path) = self.imports.modules.get(module).copied() else { return Ok(None) };
        let known =
            MODULES.iter().find(|(known, _)| *known == path).map_or(&[] as &[&str], |(_, names)| names);
        match function(&name.text).filter(|_| known.contains(&name.text.as_str())) {
            Some(canonical) => Ok(Some(canonical)),
            // The message is `unknown name in MODULE: NAME`.
            None => self.unknown_name(&format!("name in `{path}`:"), &name.text, &name.span, known),
        }
    }

    /// Fails, with the reason, if `name` is a function of invariant-ai that Flowgate does not have, such as one that
    /// asks a model. Returns `Ok` for any other name; the caller then reports an unknown function.
    pub(super) fn report_unavailable(&mut self, name: &str, span: &Span) -> CompileResult<()> {
        match UNAVAILABLE.iter().find(|(known, _)| *known == name) {
            Some((_, why)) => {
                let message = format!("`{name}` is not available: {why}");
                self.fail(
                    "unavailable",
                    span,
                    message,
                    "declare an `extern` predicate, and name the HTTP service or the WebAssembly module that answers it, with `--predicate` or in [predicates]",
                )
            }
            None => Ok(()),
        }
    }
}

/// Returns whether a call of a built-in function parses Python, which not every build can. For `semgrep`, this depends
/// on the language in its second argument. If the language is computed, returns false, and the evaluation decides.
pub(super) fn parses_python(function: &str, arguments: &[CompiledExpr]) -> bool {
    match function {
        "python_code" | "ipython_code" => true,
        "semgrep" => {
            matches!(arguments.get(1), Some(CompiledExpr::Constant(Value::Str(lang))) if &**lang == "python")
        }
        _ => false,
    }
}

/// Returns the name of the built-in function that a name in a module of invariant-ai denotes; `None` if it denotes no
/// function.
fn function(name: &str) -> Option<&'static str> {
    // `loads` is the function of Python's module `json`.
    let name = if name == "loads" { "json_loads" } else { name };
    // The functions that take a pattern are not in the table.
    ["match", "find", "fullmatch"]
        .into_iter()
        .find(|known| *known == name)
        .or_else(|| FUNCTIONS.find(name).map(|(_, function)| function.name))
}
