//! Collects the imports, names and calls of a parsed Python program, and reports unsafe calls. `python` parses the
//! program and calls [`collect`]. Names are resolved through imports and assignments, so that `o.system` is known to be
//! `os.system` after `import os as o`.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::LazyLock;

use ruff_python_ast::visitor::{self, Visitor};
use ruff_python_ast::{Expr, ExprCall, ExprContext, IpyEscapeKind, Mod, Operator, Stmt};
use ruff_python_parser::Mode;
use ruff_text_size::{Ranged, TextRange};

use super::magics::{MagicContent, UNREAD, expansions, line_magic};
use super::{PythonCode, parse};
use crate::{Finding, MAX_FINDINGS, shell};

/// Returns the imports, names, calls and unsafe calls of a program; `text` is its source.
pub(super) fn collect(text: &str, program: &Mod) -> PythonCode {
    // Any other kind of program is a single expression, which this crate never parses.
    let Mod::Module(module) = program else { return PythonCode::default() };
    let mut walk = CallCollector { text, ..CallCollector::default() };
    walk.visit_body(&module.body);
    // Sorts the calls by their position; of calls that begin at the same position, the enclosing one comes first.
    walk.code.unsafe_calls.sort_by_key(|finding| (finding.span.start, usize::MAX - finding.span.end));
    walk.code.unsafe_calls.truncate(MAX_FINDINGS);
    walk.code
}

/// Walks the syntax tree of a program and collects its content.
#[derive(Default)]
struct CallCollector<'t> {
    /// The source of the program.
    text: &'t str,
    /// The result.
    code: PythonCode,
    /// The functions in `code.function_calls`.
    called: BTreeSet<String>,
    /// The full names of local names: `o` maps to `os` after `import os as o`. Scopes are ignored.
    aliases: BTreeMap<String, String>,
    /// Modules with unsafe names and a wildcard import.
    stars: Vec<String>,
    /// The ends of expressions that were reported, or judged as the function of a call: they are not reported again.
    reported: BTreeSet<u32>,
}

impl<'t> Visitor<'t> for CallCollector<'t> {
    /// Records the modules that a statement imports, and what a name denotes after an import or an assignment to one
    /// name. Reports what an escape of IPython, such as `!cmd`, runs.
    fn visit_stmt(&mut self, statement: &'t Stmt) {
        match statement {
            Stmt::Import(import) => {
                for alias in &import.names {
                    let name = alias.name.as_str();
                    self.import(name);
                    match &alias.asname {
                        Some(local) => self.alias(local.as_str(), name.to_owned()),
                        // `import a.b` binds the name `a`.
                        None => {
                            let top = name.split('.').next().unwrap_or_default();
                            self.alias(top, top.to_owned());
                        }
                    }
                }
            }
            Stmt::ImportFrom(import) => {
                // `from . import x` names no module.
                let Some(module) = &import.module else { return };
                self.import(module.as_str());
                for alias in &import.names {
                    let name = alias.name.as_str();
                    if name == "*" {
                        self.star(module.as_str(), import.range);
                    } else {
                        let local = alias.asname.as_ref().map_or(name, |local| local.as_str());
                        self.alias(local, format!("{module}.{name}"));
                    }
                }
            }
            Stmt::Assign(assign) => {
                // The value is visited before the name is rebound, since the value may use the earlier meaning of the
                // name.
                visitor::walk_stmt(self, statement);
                if let ([Expr::Name(name)], Some(value)) =
                    (assign.targets.as_slice(), self.resolve(&assign.value))
                {
                    self.alias(name.id.as_str(), value);
                }
            }
            Stmt::IpyEscapeCommand(command) => {
                self.report_escape(command.kind, &command.value, command.range)
            }
            _ => visitor::walk_stmt(self, statement),
        }
    }

    /// Records calls and names, and reports unsafe ones. If the name of a called function is unsafe, the name is marked
    /// as reported even if the arguments make the call safe: the call has been judged, so the name alone must not be
    /// reported as a reference.
    fn visit_expr(&mut self, expr: &'t Expr) {
        match expr {
            Expr::Call(call) => {
                self.record_call(call);
                let name = self.resolve(&call.func);
                if name.as_deref().and_then(unsafe_name).is_some() {
                    self.mark_reported(&call.func);
                }
                match name.and_then(|name| unsafe_call(&name, call)) {
                    Some(kind) => self.report(kind, expr.range()),
                    // A call can also return an unsafe function, as `getattr(os, "system")` does.
                    None => self.report_unsafe_reference(expr),
                }
            }
            Expr::Name(name) => {
                if BUILTIN_NAMES.contains(name.id.as_str()) {
                    self.code.builtins.push(name.id.to_string());
                }
                if name.ctx == ExprContext::Load {
                    self.report_unsafe_reference(expr);
                }
            }
            Expr::Attribute(attribute) if attribute.ctx == ExprContext::Load => {
                self.report_unsafe_reference(expr)
            }
            Expr::Subscript(subscript) if subscript.ctx == ExprContext::Load => {
                self.report_unsafe_reference(expr)
            }
            Expr::IpyEscapeCommand(command) => {
                self.report_escape(command.kind, &command.value, command.range)
            }
            _ => {}
        }
        visitor::walk_expr(self, expr);
    }
}

impl<'t> CallCollector<'t> {
    /// Records an imported module, and for `a.b.c` also its outermost package `a`.
    fn import(&mut self, name: &str) {
        self.code.imports.push(name.to_owned());
        if let Some((top, _)) = name.split_once('.') {
            self.code.imports.push(top.to_owned());
        }
    }

    /// Records that the local name now denotes `name`, and no longer what it denoted before. A name that denotes
    /// itself, as after `import os`, needs no entry. A name of 100 bytes or more, which no unsafe name has, is not
    /// recorded either: chains of assignments could make it grow without bound.
    fn alias(&mut self, local: &str, name: String) {
        if name.len() < 100 && local != name {
            self.aliases.insert(local.to_owned(), name);
        } else {
            self.aliases.remove(local);
        }
    }

    /// Records a wildcard import of a module, if a name in it is unsafe. Every name is later looked up in each of these
    /// modules, so their number is limited, and a further one is reported as `REFLECTION`.
    fn star(&mut self, module: &str, location: TextRange) {
        let prefix = format!("{module}.");
        // Either an entry such as `ctypes.*` covers all names of the module, or there are entries for some of them.
        let has_unsafe_names = unsafe_name(&prefix).is_some()
            || NAMES.keys().any(|name| name.trim_start_matches('*').starts_with(&prefix));
        if !has_unsafe_names || self.stars.iter().any(|star| star == module) {
            return;
        }
        if self.stars.len() < 16 {
            self.stars.push(module.to_owned());
        } else {
            self.report("REFLECTION", location);
        }
    }

    /// Records the called function as written. Several calls of it are recorded once. After [`MAX_FINDINGS`] functions,
    /// records no more.
    fn record_call(&mut self, call: &ExprCall) {
        let range = range(call.func.range());
        let name = self.text.get(range).unwrap_or_default().trim();
        self.record_name(name);
    }

    /// Records the name of a called function, once.
    fn record_name(&mut self, name: &str) {
        if self.code.function_calls.len() < MAX_FINDINGS && !self.called.contains(name) {
            self.called.insert(name.to_owned());
            self.code.function_calls.push(name.to_owned());
        }
    }

    /// Adds an unsafe call. Up to twice [`MAX_FINDINGS`] are recorded, since `collect` sorts them before it truncates
    /// them.
    fn report(&mut self, kind: &'static str, location: TextRange) {
        if self.code.unsafe_calls.len() < 2 * MAX_FINDINGS {
            self.code.unsafe_calls.push(Finding { kind, span: range(location) });
        }
    }

    /// Marks an expression as reported, so that it is not reported again on its own. The end of the expression
    /// identifies it.
    fn mark_reported(&mut self, function: &Expr) {
        self.reported.insert(function.range().end().to_u32());
    }

    /// Reports what an escape of IPython runs: a call (`/f x`), a shell command (`!cmd`, `%sx cmd`), or code (`%time
    /// f()`). `kind` is the form of the escape, and `command` the text after its first characters. Each finding covers
    /// the whole escape, `location`.
    fn report_escape(&mut self, kind: IpyEscapeKind, command: &str, location: TextRange) {
        let content = match kind {
            IpyEscapeKind::Shell | IpyEscapeKind::ShCap => MagicContent::Shell(command),
            IpyEscapeKind::Magic => line_magic(command),
            // `f?` shows the help for `f`, and runs nothing.
            IpyEscapeKind::Help | IpyEscapeKind::Help2 => return,
            // A cell magic inside a cell, or a call whose arguments are not in parentheses (`/f x`): what it runs is not
            // read.
            _ => MagicContent::Unread,
        };
        match content {
            MagicContent::Unread => return self.report(UNREAD, location),
            MagicContent::Code(code) => return self.read_code(code, location),
            MagicContent::Nothing => {}
            MagicContent::Shell(command) => {
                for issue in shell::find(command) {
                    self.report(issue.kind.as_str(), location);
                }
            }
        }
        // IPython evaluates the text between braces in a shell command, and in the arguments of a magic, as Python,
        // even if the command or the magic itself is harmless.
        for expression in expansions(command) {
            self.read_code(expression, location);
        }
    }

    /// Reads the code in an escape of IPython. Code that is not valid Python, for example because it contains another
    /// escape, is reported as not read.
    fn read_code(&mut self, code: &str, location: TextRange) {
        let Ok(Mod::Module(module)) = parse(code.trim_start(), Mode::Module) else {
            return self.report(UNREAD, location);
        };
        // The names that are known here are known in the code too, and the names that the code binds stay known.
        let mut inner = CallCollector {
            text: code.trim_start(),
            aliases: std::mem::take(&mut self.aliases),
            stars: std::mem::take(&mut self.stars),
            ..CallCollector::default()
        };
        inner.visit_body(&module.body);
        (self.aliases, self.stars) = (inner.aliases, inner.stars);
        self.code.imports.extend(inner.code.imports);
        self.code.builtins.extend(inner.code.builtins);
        for name in inner.code.function_calls {
            self.record_name(&name);
        }
        for finding in inner.code.unsafe_calls {
            self.report(finding.kind, location);
        }
    }

    /// Reports a reference to an unsafe function without a call, since the function may be called elsewhere. A name
    /// that is computed at run time could denote any function, so a lookup of such a name is `REFLECTION`. Kinds that
    /// only a call makes unsafe, such as `NETWORK`, are not reported.
    fn report_unsafe_reference(&mut self, expr: &Expr) {
        // Expressions that were reported are recorded by their end (see `mark_reported`).
        if self.reported.contains(&expr.range().end().to_u32()) {
            return;
        }
        // Whether the expression looks up a computed name, in an object or in a table of names.
        let looks_up_computed = match expr {
            Expr::Call(call) => {
                let function = self.resolve(&call.func);
                function.as_deref() == Some("getattr")
                    && call.arguments.args.get(1).is_some_and(|name| literal(name).is_none())
            }
            Expr::Subscript(subscript) => {
                let table = self.resolve(&subscript.value);
                matches!(table.as_deref(), Some("__builtins__" | "globals()" | "sys.modules"))
                    && literal(&subscript.slice).is_none()
            }
            _ => false,
        };
        let kind = if looks_up_computed {
            Some("REFLECTION")
        } else {
            self.resolve(expr).and_then(|name| unsafe_name(&name))
        };
        if let Some(kind) = kind.filter(|kind| !matches!(*kind, "NETWORK" | "FILE_REMOVAL" | "SUBPROCESS")) {
            self.report(kind, expr.range());
            self.mark_reported(expr);
        }
    }

    /// Returns the full name of what an expression denotes, as [`Self::resolve_within`] does.
    fn resolve(&self, expr: &Expr) -> Option<String> {
        // An unsafe name has fewer parts than 12, so an expression that nests deeper denotes none.
        self.resolve_within(expr, 12)
    }

    /// Returns the full name of what an expression denotes, such as `os.system` for `getattr(o, 'system')` after
    /// `import os as o`. The owner of an attribute is `?` if its name is not known. `None` if the expression denotes
    /// nothing with a name, or if the program computes the name. Parts that nest deeper than `depth` count as computed.
    fn resolve_within(&self, expr: &Expr, depth: usize) -> Option<String> {
        let depth = depth.checked_sub(1)?;
        match expr {
            Expr::Name(name) => Some(self.full_name(name.id.as_str())),
            Expr::Attribute(attribute) => {
                // The owner is `?` if it is computed: some attributes, such as `__subclasses__`, are unsafe whatever
                // their owner.
                let of = self.resolve_within(&attribute.value, depth).unwrap_or_else(|| "?".to_owned());
                Some(member(&of, attribute.attr.as_str()))
            }
            Expr::Subscript(subscript) => {
                let table = self.resolve_within(&subscript.value, depth)?;
                let key = literal(&subscript.slice)?;
                // Any other table must be the `__dict__` of an object; the key then names a member of the object.
                match table.as_str() {
                    "__builtins__" | "globals()" | "locals()" | "sys.modules" => Some(self.full_name(&key)),
                    table => Some(member(table.strip_suffix(".__dict__")?, &key)),
                }
            }
            Expr::Call(call) => {
                let function = self.resolve_within(&call.func, depth)?;
                let argument = |n: usize| call.arguments.args.get(n);
                match function.as_str() {
                    "getattr" => {
                        let of = self.resolve_within(argument(0)?, depth)?;
                        Some(member(&of, &literal(argument(1)?)?))
                    }
                    "__import__" | "importlib.import_module" | "importlib.__import__" => {
                        literal(argument(0)?)
                    }
                    "vars" => Some(format!("{}.__dict__", self.resolve_within(argument(0)?, depth)?)),
                    "globals" | "locals" => Some(format!("{function}()")),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// Returns the full name of a local name. It follows from the import of the name or the assignment to it, or else
    /// from a wildcard import, if the name is unsafe in that module. Any other name counts as a built-in name.
    fn full_name(&self, name: &str) -> String {
        if let Some(full) = self.aliases.get(name) {
            return full.clone();
        }
        let starred = self.stars.iter().map(|module| format!("{module}.{name}"));
        starred
            .into_iter()
            .find(|full| unsafe_name(full).is_some())
            .unwrap_or_else(|| member("builtins", name))
    }
}

/// Returns the full name of the attribute `name` of the object or module `of`: `os.system`. Attributes of `builtins`
/// have no prefix: `eval`.
fn member(of: &str, name: &str) -> String {
    match of {
        "builtins" | "__builtins__" | "__builtin__" => name.to_owned(),
        of => format!("{of}.{name}"),
    }
}

/// Converts a location of the parser to a range of bytes.
fn range(range: TextRange) -> Range<usize> {
    range.start().to_usize()..range.end().to_usize()
}

/// Returns the value of a string literal, or of a concatenation of literals; `None` for another expression.
fn literal(expr: &Expr) -> Option<String> {
    match expr {
        Expr::StringLiteral(string) => Some(string.value.to_str().to_owned()),
        Expr::BinOp(sum) if sum.op == Operator::Add => Some(literal(&sum.left)? + &literal(&sum.right)?),
        _ => None,
    }
}

/// Returns the kind of danger of a call of the function `name`, such as `COMMAND`; `None` if the call is harmless. Some
/// functions are unsafe only with certain arguments, such as `yaml.load` without a safe loader.
fn unsafe_call(name: &str, call: &ExprCall) -> Option<&'static str> {
    let keyword = |name: &str| {
        call.arguments.keywords.iter().find(|k| k.arg.as_ref().is_some_and(|a| a.as_str() == name))
    };
    let is_true =
        |name: &str| keyword(name).is_some_and(|k| matches!(&k.value, Expr::BooleanLiteral(b) if b.value));
    let last_name = |expr: &Expr| match expr {
        Expr::Attribute(attribute) => attribute.attr.to_string(),
        Expr::Name(name) => name.id.to_string(),
        _ => String::new(),
    };
    match name {
        "yaml.load" | "yaml.load_all" => {
            let loader = keyword("Loader")
                .map(|k| last_name(&k.value))
                .or_else(|| call.arguments.args.get(1).map(last_name));
            let is_safe = loader
                .is_some_and(|loader| matches!(loader.as_str(), "SafeLoader" | "CSafeLoader" | "BaseLoader"));
            (!is_safe).then_some("DESERIALIZATION")
        }
        // With `weights_only`, only data is loaded.
        "torch.load" => (!is_true("weights_only")).then_some("DESERIALIZATION"),
        // Without `allow_pickle`, only data is loaded.
        "numpy.load" => is_true("allow_pickle").then_some("DESERIALIZATION"),
        // The value of `shell` may be true if it is not a literal, or if it is in an unpacked dictionary.
        name if unsafe_name(name) == Some("SUBPROCESS") => {
            // An unpacked dictionary, `**options`, is an argument without a name.
            let has_unpacked = call.arguments.keywords.iter().any(|k| k.arg.is_none());
            let may_use_shell =
                keyword("shell").is_some_and(|k| !matches!(&k.value, Expr::BooleanLiteral(b) if !b.value));
            Some(if may_use_shell || has_unpacked { "COMMAND" } else { "SUBPROCESS" })
        }
        name => unsafe_name(name),
    }
}

/// Returns the kind of danger of a function by its full name, such as `COMMAND` for `os.system`; `None` if the function
/// is not known as unsafe. An entry of the table that ends with `*` matches all names with that prefix.
fn unsafe_name(name: &str) -> Option<&'static str> {
    if name
        .rsplit('.')
        .next()
        .is_some_and(|last| matches!(last, "__subclasses__" | "__globals__" | "__code__"))
    {
        // These attributes lead to other code on any object.
        return Some("REFLECTION");
    }
    NAMES.get(name).copied().or_else(|| {
        // In `NAMES`, the `*` of an entry is moved to the front. This range contains exactly these entries, since `~`
        // sorts after all letters.
        let mut prefixes = NAMES
            .range("*".to_owned()..="*~".to_owned())
            .filter(|(prefix, _)| name.starts_with(prefix.trim_start_matches('*')));
        prefixes.next().map(|(_, kind)| *kind)
    })
}

/// The kinds of [`UNSAFE`] by name. An entry such as `os.exec*` is stored as `*os.exec`, so that all such entries sort
/// together.
static NAMES: LazyLock<BTreeMap<String, &'static str>> = LazyLock::new(|| {
    let rows =
        UNSAFE.iter().flat_map(|(kind, names)| names.split_ascii_whitespace().map(move |name| (name, *kind)));
    rows.map(|(name, kind)| match name.strip_suffix('*') {
        Some(prefix) => (format!("*{prefix}"), kind),
        None => (name.to_owned(), kind),
    })
    .collect()
});

/// The built-in names of Python, as a set.
static BUILTIN_NAMES: LazyLock<BTreeSet<&str>> =
    LazyLock::new(|| BUILTINS.split_ascii_whitespace().collect());

/// The unsafe functions: each kind with its full names. A name with a final `*` matches all names that begin with it.
const UNSAFE: &[(&str, &str)] = &[
    (
        "CODE_EXECUTION",
        "eval exec compile execfile __import__ importlib.import_module importlib.__import__ runpy.run_path \
         runpy.run_module code.interact code.InteractiveInterpreter code.InteractiveConsole types.FunctionType \
         types.CodeType timeit.timeit pandas.eval numexpr.evaluate",
    ),
    (
        "COMMAND",
        "os.system os.popen* os.exec* os.spawn* os.posix_spawn* os.startfile posix.system pty.spawn commands.* \
         popen2.* platform.popen asyncio.create_subprocess_shell subprocess.getoutput subprocess.getstatusoutput \
         get_ipython.system",
    ),
    (
        "SUBPROCESS",
        "subprocess.run subprocess.call subprocess.Popen subprocess.check_call subprocess.check_output \
         asyncio.create_subprocess_exec",
    ),
    (
        "DESERIALIZATION",
        "pickle.load pickle.loads pickle.Unpickler cPickle.load cPickle.loads _pickle.load _pickle.loads dill.load \
         dill.loads cloudpickle.load cloudpickle.loads marshal.load marshal.loads shelve.open jsonpickle.decode \
         joblib.load pandas.read_pickle yaml.unsafe_load yaml.unsafe_load_all yaml.full_load torch.load yaml.load",
    ),
    ("NATIVE_CODE", "ctypes.* cffi.FFI _ctypes.*"),
    (
        "NETWORK",
        "socket.socket socket.create_connection requests.* httpx.* urllib.request.* urllib2.urlopen urllib3.* \
         http.client.* aiohttp.* ftplib.* smtplib.* telnetlib.* paramiko.* websocket.* websockets.*",
    ),
    ("FILE_REMOVAL", "shutil.rmtree os.remove os.unlink os.rmdir os.removedirs"),
];

/// The built-in names of Python 3.
const BUILTINS: &str = "\
ArithmeticError AssertionError AttributeError BaseException BaseExceptionGroup BlockingIOError BrokenPipeError
BufferError BytesWarning ChildProcessError ConnectionAbortedError ConnectionError ConnectionRefusedError
ConnectionResetError DeprecationWarning EOFError Ellipsis EncodingWarning EnvironmentError Exception ExceptionGroup
FileExistsError FileNotFoundError FloatingPointError FutureWarning GeneratorExit IOError ImportError ImportWarning
IndentationError IndexError InterruptedError IsADirectoryError KeyError KeyboardInterrupt LookupError MemoryError
ModuleNotFoundError NameError NotADirectoryError NotImplemented NotImplementedError OSError OverflowError
PendingDeprecationWarning PermissionError ProcessLookupError RecursionError ReferenceError ResourceWarning RuntimeError
RuntimeWarning StopAsyncIteration StopIteration SyntaxError SyntaxWarning SystemError SystemExit TabError TimeoutError
TypeError UnboundLocalError UnicodeDecodeError UnicodeEncodeError UnicodeError UnicodeTranslateError UnicodeWarning
UserWarning ValueError Warning ZeroDivisionError __build_class__ __debug__ __doc__ __import__ __loader__ __name__
__package__ __spec__ abs aiter all anext any ascii bin bool breakpoint bytearray bytes callable chr classmethod compile
complex copyright credits delattr dict dir divmod enumerate eval exec exit filter float format frozenset getattr globals
hasattr hash help hex id input int isinstance issubclass iter len license list locals map max memoryview min next object
oct open ord pow print property quit range repr reversed round set setattr slice sorted staticmethod str sum super tuple
type vars zip";
