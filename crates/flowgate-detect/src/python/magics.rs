//! Determines what the magics of IPython run: `%time f()`, `%sx ls`, `%%bash`. `python` calls [`read_cell`] for a cell
//! that begins with `%%`, and [`calls`](super::calls) calls [`line_magic`] for `%` in other code.
//!
//! An unknown magic can run anything, so it is reported as code that is not read.

use std::ops::Range;

use super::{PythonCode, parse_code};
use crate::{Finding, shell};

/// The kind of a finding for code that is not read, as [`shell`] names it.
pub(super) const UNREAD: &str = "OTHER_CODE";

/// What a magic runs.
pub(super) enum MagicContent<'t> {
    /// Nothing that the text contains.
    Nothing,
    /// A shell command.
    Shell(&'t str),
    /// Python code.
    Code(&'t str),
    /// Something that is not read.
    Unread,
}

/// Line magics that run nothing that the text contains. `%run` runs a file.
const HARMLESS: &[&str] = &[
    "autoreload",
    "cd",
    "colors",
    "dhist",
    "dirs",
    "env",
    "gui",
    "hist",
    "history",
    "load_ext",
    "lsmagic",
    "matplotlib",
    "pdb",
    "pdef",
    "pdoc",
    "pfile",
    "pinfo",
    "popd",
    "precision",
    "psearch",
    "psource",
    "pushd",
    "pwd",
    "pylab",
    "quickref",
    "reload_ext",
    "reset",
    "run",
    "set_env",
    "tb",
    "unload_ext",
    "who",
    "who_ls",
    "whos",
    "xdel",
    "xmode",
];

/// Line magics that run the program of their name in a shell, with their arguments.
const PROGRAMS: &[&str] =
    &["cat", "conda", "cp", "less", "ls", "mamba", "man", "mkdir", "more", "mv", "pip", "rm", "rmdir", "uv"];

/// Cell magics whose cell is only shown or written.
const SHOWN: &[&str] = &["html", "HTML", "markdown", "latex", "svg", "SVG", "writefile", "file"];

/// The options whose value is the name of a variable. The cell magics that run a program take them.
const VARIABLE_OPTIONS: [&str; 3] = ["--err", "--out", "--proc"];
/// The options without a value. The cell magics that run a program take them.
const FLAG_OPTIONS: [&str; 2] = ["--bg", "--no-raise-error"];

/// Returns what a line magic runs. `text` is the line after `%`.
pub(super) fn line_magic(text: &str) -> MagicContent<'_> {
    let (name, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    match name {
        "sx" | "system" => MagicContent::Shell(rest),
        _ if PROGRAMS.contains(&name) => MagicContent::Shell(text),
        // `%config` executes its argument as an assignment.
        "config" => MagicContent::Code(rest.trim_start()),
        "time" | "timeit" | "prun" => {
            code_after_options(name, rest).map_or(MagicContent::Unread, MagicContent::Code)
        }
        _ if HARMLESS.contains(&name) => MagicContent::Nothing,
        _ => MagicContent::Unread,
    }
}

/// Returns the code after the options of the magic `magic` (`time`, `timeit` or `prun`); `line` is the text after its
/// name. `None` if an option is unknown, since it could take a part of the code as its value.
fn code_after_options<'t>(magic: &str, line: &'t str) -> Option<&'t str> {
    // The one-character options without a value, and those with one.
    let (flags, values) = match magic {
        "timeit" => ("tcqo", "nrpv"),
        "prun" => ("rq", "DlsT"),
        _ => ("", ""),
    };
    let mut rest = line.trim_start();
    while let Some(options) = rest.strip_prefix('-') {
        let (word, after) = options.split_once(char::is_whitespace).unwrap_or((options, ""));
        rest = after.trim_start();
        for (at, letter) in word.char_indices() {
            if values.contains(letter) {
                // The value is the rest of the word, or else the next word.
                if at + 1 == word.len() {
                    rest = rest.split_once(char::is_whitespace).map_or("", |(_, after)| after.trim_start());
                }
                break;
            }
            if !flags.contains(letter) {
                return None;
            }
        }
    }
    Some(rest)
}

/// Returns the first word of a line, and the text after it; both may be empty.
fn split_word(line: &str) -> (&str, &str) {
    let line = line.trim_start();
    line.split_once(char::is_whitespace).unwrap_or((line, ""))
}

/// Returns the arguments of the program that a cell magic runs. `line` is the first line of the cell after the name of
/// the magic; the options of the magic itself (`--out x`), which start nothing, are removed from its beginning. IPython
/// also removes such options between the arguments of the program, even abbreviated ones, which can change the meaning
/// of these arguments. So the result is `None` if one of the arguments may be such an option.
fn without_magic_options(line: &str) -> Option<&str> {
    let is_variable = |word: &str| {
        word.chars().all(|c| c.is_alphanumeric() || c == '_')
            && word.chars().next().is_some_and(|c| !c.is_numeric())
    };
    let mut rest = line;
    loop {
        let (word, after) = split_word(rest);
        if FLAG_OPTIONS.contains(&word) {
            rest = after;
        } else if VARIABLE_OPTIONS.contains(&word) {
            let (variable, after) = split_word(after);
            if !is_variable(variable) {
                return None;
            }
            rest = after;
        } else if let Some((option, variable)) = word.split_once('=')
            && VARIABLE_OPTIONS.contains(&option)
        {
            if !is_variable(variable) {
                return None;
            }
            rest = after;
        } else {
            break;
        }
    }
    let may_be_option = |word: &str| {
        // IPython removes quotes and backslashes, too.
        let plain: String = word.chars().filter(|c| !matches!(c, '"' | '\'' | '\\')).collect();
        let name = plain.split_once('=').map_or(plain.as_str(), |(name, _)| name);
        let mut known = VARIABLE_OPTIONS.iter().chain(&FLAG_OPTIONS);
        // `--` alone is no option.
        name.len() > 2 && known.any(|option| option.starts_with(name))
    };
    (!rest.split_whitespace().any(may_be_option)).then_some(rest)
}

/// Returns the content of a cell that begins with a magic. `cell` is the text after `%%`, at the end of the whole
/// `text`.
pub(super) fn read_cell(text: &str, cell: &str) -> PythonCode {
    let (first, body) = cell.split_once('\n').unwrap_or((cell, ""));
    let name = first.split(char::is_whitespace).next().unwrap_or_default();
    let line = first.get(name.len()..).unwrap_or_default();
    // The offsets of the first line and of the rest of the cell in the whole text.
    let cell_start = text.len() - cell.len();
    let first_line_end = cell_start + first.len();
    let body_start = text.len() - body.len();
    let first_line = cell_start..first_line_end;
    let unread = || Finding { kind: UNREAD, span: first_line.clone() };
    // `in_line` returns the unsafe commands of the first line, read as the shell command `command`; `in_body` returns
    // those of the rest of the cell.
    let in_line = |command: &str| findings(command, |_| first_line.clone());
    let in_body = || findings(body, |span| span.start + body_start..span.end + body_start);
    // Reads the text from this byte on as Python code.
    let code_from = |start: usize| {
        let mut code = parse_code(text.get(start..).unwrap_or_default(), true);
        for finding in &mut code.unsafe_calls {
            finding.span = finding.span.start + start..finding.span.end + start;
        }
        code
    };
    let mut code = PythonCode::default();
    let is_program = matches!(name, "python" | "python3" | "bash" | "sh" | "script");
    // The first line without the options of the magic; `None` if options may be among the arguments of the program. The
    // whole line is then judged, and also reported as not read below.
    let own_line = if is_program { without_magic_options(line) } else { Some(line) };
    let program_line = own_line.unwrap_or(line);
    match name {
        // The rest of the first line is Python code as well, and runs before the code in the cell.
        "time" | "timeit" | "prun" => match code_after_options(name, line) {
            Some(setup) => return code_from(first_line_end - setup.len()),
            None => {
                code = code_from(body_start);
                code.unsafe_calls.push(unread());
            }
        },
        "capture" => code = code_from(body_start),
        // The rest of the line contains the arguments of the program, which reads the cell from its standard input.
        "python" | "python3" => {
            code = code_from(body_start);
            code.unsafe_calls.extend(in_line(&format!("{name} {program_line}")));
        }
        "bash" | "sh" => {
            code.unsafe_calls = in_line(&format!("{name} {program_line}"));
            code.unsafe_calls.extend(in_body());
        }
        "script" => {
            let program = split_word(program_line).0;
            let program = program.rsplit('/').next().unwrap_or_default();
            code.unsafe_calls = in_line(program_line);
            if matches!(program, "sh" | "bash" | "zsh" | "dash" | "ksh" | "ash") {
                code.unsafe_calls.extend(in_body());
            } else {
                code.unsafe_calls.push(unread());
            }
        }
        "sx" | "system" | "!" => code.unsafe_calls = in_body(),
        _ if SHOWN.contains(&name) => {}
        _ => code.unsafe_calls.push(unread()),
    }
    if own_line.is_none() || expansions(line).next().is_some() {
        code.unsafe_calls.push(unread());
    }
    code.unsafe_calls.sort_by_key(|finding| (finding.span.start, usize::MAX - finding.span.end));
    code.unsafe_calls.dedup();
    code
}

/// Returns the unsafe commands of a script as findings. `place` converts a span in the script to a span in the whole
/// text.
fn findings(script: &str, place: impl Fn(Range<usize>) -> Range<usize>) -> Vec<Finding> {
    let issues = shell::find(script).into_iter();
    issues.map(|issue| Finding { kind: issue.kind.as_str(), span: place(issue.span) }).collect()
}

/// Returns the expressions between braces that may call something. In the arguments of magics and in shell commands,
/// IPython evaluates the text between braces as Python and replaces it by its value.
pub(super) fn expansions(text: &str) -> impl Iterator<Item = &str> {
    text.split('{')
        .skip(1)
        .map(|rest| rest.split_once('}').map_or(rest, |(inside, _)| inside))
        .filter(|inside| inside.contains('('))
}
