//! Reads tool scripts, the programs in JavaScript by which a model calls tools: determines which tools a program calls
//! with which arguments, or reports that this cannot be read. The function `tool_script` of policies calls
//! [`tool_script`].
//!
//! Some agents (Codex in its code mode) offer the model one tool, whose argument is a program, and the program calls
//! the other tools: `text((await tools.exec_command({cmd: "ls"})).output)`. A policy must judge these calls, so the
//! program must be read as JavaScript reads it. This module reads the part of the language for which this is certain;
//! everything else counts as not read. It reads:
//!
//! * declarations, blocks, `if`, `for (const x of …)`, `await`, arrow functions as callbacks of `map` and similar;
//! * texts with escapes, templates, `String.raw`, lists and maps whose keys are written out;
//! * `tools.NAME(…)`, `text(…)`, `Promise.all`, `JSON.stringify` and a few more functions without other effects.
//!
//! The arguments of each call must be known from the program alone, and whether a tool is called must not depend on
//! what another tool has returned. Otherwise the program counts as not read. If it is read, every call that it can make
//! is in [`ToolScript::calls`], and its output depends on nothing but the results of these calls.
//!
//! It does not read, among others, assignments, `while`, `try`, functions with names, regular expressions, spreads,
//! properties with computed names, and functions with a lasting or hidden effect (`store`, `load`, `notify`,
//! `ALL_TOOLS`). `lexer` divides the program into tokens, `reader` reads statements, `expression` reads expressions,
//! and `callback` reads methods and the functions that they call. `operand` defines the values. Node also runs the rows
//! of `tests/tool_scripts.json`, in `compat/agents`.

mod callback;
mod expression;
mod lexer;
mod operand;
mod reader;

use std::ops::Range;

pub use operand::ScriptValue;
use reader::Reader;

/// A call of a tool in a program.
#[derive(Debug, Clone, PartialEq)]
pub struct ScriptCall {
    /// The name of the tool, as the program has it.
    pub tool: String,
    /// The argument; an empty map if there is none.
    pub argument: ScriptValue,
    /// The bytes of the call's name.
    pub span: Range<usize>,
}

/// Why a program is not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScriptUnreadReason {
    /// The program exceeds a limit on length, depth or work.
    Limit,
    /// The text is not a program, or uses a part of the language that is not read.
    Syntax,
    /// The program uses an unknown name or function.
    Name,
    /// The argument of a tool is computed from what a tool has returned.
    Arguments,
    /// Whether a tool is called depends on what a tool has returned.
    Condition,
}

impl ScriptUnreadReason {
    /// Returns the name of the reason, such as `limit`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Limit => "limit",
            Self::Syntax => "syntax",
            Self::Name => "name",
            Self::Arguments => "arguments",
            Self::Condition => "condition",
        }
    }
}

/// What a program calls.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ToolScript {
    /// The calls in the order of the program, up to the first place that is not read. If everything was read, these are
    /// all calls.
    pub calls: Vec<ScriptCall>,
    /// Why, and from which place on, the program is not read; `None` if all of it was.
    pub unread: Option<(ScriptUnreadReason, Range<usize>)>,
}

/// Reads a tool script: returns the calls that it makes, and the reason if a part of it is not read.
///
/// ```
/// use flowgate_detect::tool_script::tool_script;
///
/// let script = tool_script("const r = await tools.exec_command({cmd: 'ls'}); text(r.output);");
/// assert_eq!(script.calls.first().unwrap().tool, "exec_command");
/// assert_eq!(script.unread, None);
/// assert!(tool_script("eval('tools.exec_command(x)')").unread.is_some());
/// ```
#[must_use]
pub fn tool_script(text: &str) -> ToolScript {
    Reader::new(text).read()
}
