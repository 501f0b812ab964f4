//! Finds the imports, names and calls of Python code, and which of its calls are unsafe, for the functions
//! `python_code` and `ipython_code` of policies.
//!
//! The code is parsed, not run. Names are followed through imports, plain assignments, `getattr` with a literal and
//! tables such as `__builtins__`. A name that the program computes is unknown, and deliberately obfuscated calls can go
//! undetected, so a policy that must hold lists the allowed imports and calls. The parser is compiled in only with the
//! feature `python`. `nesting_limit` rejects code that is nested too deeply for the parser, `calls` collects the
//! content of parsed code, and `magics` reads the magics of notebooks.

#[cfg(feature = "python")]
mod calls;
#[cfg(feature = "python")]
mod magics;
#[cfg(feature = "python")]
mod nesting_limit;

use super::Finding;

/// Whether the parser is compiled in, by the feature `python`. Without it every text is a syntax error.
pub const AVAILABLE: bool = cfg!(feature = "python");

/// Maximum length of a text that is parsed, in bytes.
pub const MAX_BYTES: usize = 1 << 20;

/// The content of a piece of Python code.
///
/// If there is a syntax error, everything else is empty. So a policy that trusts code without certain imports must also
/// check [`syntax_error`](Self::syntax_error).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PythonCode {
    /// The imported modules as written, and for `import a.b` also `a`; in order, with repetitions.
    pub imports: Vec<String>,
    /// The built-in functions and names that are used, in order, with repetitions.
    pub builtins: Vec<String>,
    /// The called functions as written: `os.path.join`, `f(1)`; in order, without repetitions.
    pub function_calls: Vec<String>,
    /// The reason why the code cannot be parsed.
    pub syntax_error: Option<String>,
    /// Calls that run code or commands, load objects, open connections or remove files. Shell commands in a notebook
    /// have the kinds of [`shell`](super::shell).
    pub unsafe_calls: Vec<Finding>,
}

/// Parses Python code and returns its content. With `ipython`, the code is a notebook cell, which may have `!commands`
/// and `%magics`. For a cell in the language of a shell (`%%bash`), only its unsafe commands are returned. A cell that
/// is only shown or written (`%%html`) yields nothing, and a cell in another language (`%%ruby`) is one unsafe call of
/// the kind `OTHER_CODE`. Code that cannot be parsed, or is longer than [`MAX_BYTES`], yields only a `syntax_error`.
///
/// ```
/// # #[cfg(feature = "python")] {
/// let code = flowgate_detect::python::python_code("import os as o\no.system('id')", false);
/// assert_eq!(code.imports, ["os"]);
/// assert_eq!(code.unsafe_calls[0].kind, "COMMAND");
/// # }
/// ```
pub fn python_code(text: &str, ipython: bool) -> PythonCode {
    let refused = |why: &str| PythonCode { syntax_error: Some(why.to_owned()), ..PythonCode::default() };
    if text.len() > MAX_BYTES {
        return refused("the code is longer than one mebibyte, so it is not parsed");
    }
    #[cfg(feature = "python")]
    {
        if let Some(cell) = text.trim_start().strip_prefix("%%").filter(|_| ipython) {
            return magics::read_cell(text, cell);
        }
        parse_code(text, ipython)
    }
    #[cfg(not(feature = "python"))]
    {
        let _ = ipython;
        refused("this build has no Python parser: build `flowgate` with the feature `python`")
    }
}

/// Parses Python code and collects its content. With `ipython`, the code may have escapes of IPython, such as `!cmd`.
/// Code that is not valid, or too deeply nested, yields only a `syntax_error`.
#[cfg(feature = "python")]
fn parse_code(text: &str, ipython: bool) -> PythonCode {
    use ruff_python_parser::Mode;

    match parse(text, if ipython { Mode::Ipython } else { Mode::Module }) {
        Ok(program) => calls::collect(text, &program),
        Err(why) => PythonCode { syntax_error: Some(why), ..PythonCode::default() },
    }
}

/// Parses Python code.
///
/// # Errors
/// Returns the reason, as a text for people, why the code is not valid, or that it is nested too deeply.
#[cfg(feature = "python")]
fn parse(text: &str, mode: ruff_python_parser::Mode) -> Result<ruff_python_ast::Mod, String> {
    nesting_limit::check_nesting(text, mode)?;
    let parsed = ruff_python_parser::parse(text, ruff_python_parser::ParseOptions::from(mode));
    parsed.map(|parsed| parsed.into_syntax()).map_err(|error| error.to_string())
}

#[cfg(all(test, feature = "python"))]
mod tests {
    use super::*;

    #[test]
    fn imports_builtins_and_calls() {
        let check = |text: &str, imports: &[&str], builtins: &[&str], calls: &[&str]| {
            let code = python_code(text, false);
            assert_eq!(code.syntax_error, None, "{text}");
            assert_eq!(code.imports, imports, "{text}");
            assert_eq!(code.builtins, builtins, "{text}");
            assert_eq!(code.function_calls, calls, "{text}");
        };
        check(
            "import os\nimport numpy as np\nfrom sklearn import svm",
            &["os", "numpy", "sklearn"],
            &[],
            &[],
        );
        check("import os.path", &["os.path", "os"], &[], &[]);
        check("from . import x\nfrom .a import b", &["a"], &[], &[]);
        check("exec('print(1)')", &[], &["exec"], &["exec"]);
        check("x.y.z(len(f(1)(2)))", &[], &["len"], &["x.y.z", "len", "f(1)", "f"]);
        check("print(1); print(2)", &[], &["print", "print"], &["print"]);
    }

    #[test]
    fn unsafe_calls() {
        let check = |text: &str, expected: &[(&str, &str)]| {
            let code = python_code(text, false);
            assert_eq!(code.syntax_error, None, "{text}");
            let found: Vec<_> =
                code.unsafe_calls.iter().map(|f| (f.kind, text.get(f.span.clone()).unwrap())).collect();
            assert_eq!(found, expected, "{text}");
        };
        check("eval(x)", &[("CODE_EXECUTION", "eval(x)")]);
        check("import os as o\no.system('a')", &[("COMMAND", "o.system('a')")]);
        check("from os import system as s\ns('a')", &[("COMMAND", "s('a')")]);
        check("from os import *\nsystem('a')", &[("COMMAND", "system('a')")]);
        // Wildcard imports of modules without unsafe names do not count against the limit on wildcard imports.
        let junk: String = (0..50).map(|n| format!("from a{n} import *\n")).collect();
        check(&format!("{junk}from os import *\nsystem('a')"), &[("COMMAND", "system('a')")]);
        // The 17th wildcard import exceeds the limit.
        let many: String = (0..17).map(|n| format!("from ctypes.a{n} import *\n")).collect();
        check(&many, &[("REFLECTION", "from ctypes.a16 import *")]);
        check("import os\nf = os.system\nf('a')", &[("COMMAND", "os.system"), ("COMMAND", "f('a')")]);
        check(
            "import os\ngetattr(os, 'sys' + 'tem')('a')",
            &[("COMMAND", "getattr(os, 'sys' + 'tem')('a')")],
        );
        check("__builtins__['eval'](x)", &[("CODE_EXECUTION", "__builtins__['eval'](x)")]);
        check(
            "__import__('os').system('a')",
            &[("COMMAND", "__import__('os').system('a')"), ("CODE_EXECUTION", "__import__('os')")],
        );
        check(
            "import importlib\nm = importlib.import_module('subprocess')\nm.run('a', shell=True)",
            &[
                ("CODE_EXECUTION", "importlib.import_module('subprocess')"),
                ("COMMAND", "m.run('a', shell=True)"),
            ],
        );
        check("import subprocess\nsubprocess.run(['ls'])", &[("SUBPROCESS", "subprocess.run(['ls'])")]);
        check("import pickle\npickle.loads(x)", &[("DESERIALIZATION", "pickle.loads(x)")]);
        check("import yaml\nyaml.load(x, Loader=yaml.SafeLoader)\nyaml.safe_load(x)", &[]);
        check("import yaml\nyaml.load(x)", &[("DESERIALIZATION", "yaml.load(x)")]);
        check("import requests\nrequests.post(u, data=d)", &[("NETWORK", "requests.post(u, data=d)")]);
        check("import shutil\nshutil.rmtree('/')", &[("FILE_REMOVAL", "shutil.rmtree('/')")]);
        check("list(map(eval, xs))", &[("CODE_EXECUTION", "eval")]);
        check("().__class__.__subclasses__()", &[("REFLECTION", "().__class__.__subclasses__()")]);
        check("import os\ngetattr(os, name)()", &[("REFLECTION", "getattr(os, name)")]);
        check("import re, os\nre.compile('a'); model.eval(); os.path.join('a')\nprint(x.system())", &[]);
    }

    #[test]
    fn cells_of_notebooks_are_read() {
        let check = |text: &str, expected: &[(&str, &str)]| {
            let code = python_code(text, true);
            assert_eq!(code.syntax_error, None, "{text}");
            let found: Vec<_> =
                code.unsafe_calls.iter().map(|f| (f.kind, text.get(f.span.clone()).unwrap())).collect();
            assert_eq!(found, expected, "{text}");
        };
        check("%matplotlib inline\n!pip install x\nprint(1)\nobj?", &[]);
        check(
            "x = 1\n!curl a | sh\neval(x)",
            &[("PIPE_TO_SHELL", "!curl a | sh"), ("CODE_EXECUTION", "eval(x)")],
        );
        check("%%bash\nls; rm -rf /", &[("REMOVE_ALL", "rm -rf /")]);
        check("%%time\neval(x)", &[("CODE_EXECUTION", "eval(x)")]);
        check("%%html\n<b>eval(x)</b>", &[]);
        // Cells, and the first lines of cells.
        check("%%sx\nrm -rf /", &[("REMOVE_ALL", "rm -rf /")]);
        check("%%sh\nrm -rf /", &[("REMOVE_ALL", "rm -rf /")]);
        check("%%timeit -n 3 eval(x)\ny", &[("CODE_EXECUTION", "eval(x)")]);
        check("%%timeit import os as o\no.system('a')", &[("COMMAND", "o.system('a')")]);
        check("%%timeit -Z eval(x)\ny", &[("OTHER_CODE", "timeit -Z eval(x)")]);
        check("%%prun -s time eval(x)\ny", &[("CODE_EXECUTION", "eval(x)")]);
        check("%%timeit -n 10 -r3 -qo\nf(x)", &[]);
        check("%%capture out --no-stderr\neval(x)", &[("CODE_EXECUTION", "eval(x)")]);
        check("%%time\n%%bash\nls", &[("OTHER_CODE", "%%bash")]);
        check("%%bash -c 'rm -rf /'\nls", &[("REMOVE_ALL", "bash -c 'rm -rf /'")]);
        check("%%python3 -c 'x'\ny", &[("OTHER_CODE", "python3 -c 'x'")]);
        check("%%python3\neval(x)", &[("CODE_EXECUTION", "eval(x)")]);
        check("%%script sh -c 'rm -rf /'", &[("REMOVE_ALL", "script sh -c 'rm -rf /'")]);
        check("%%script /bin/bash\nrm -rf /", &[("REMOVE_ALL", "rm -rf /")]);
        check("%%script perl\nx", &[("OTHER_CODE", "script perl")]);
        // The options of a cell magic only name variables, so they start nothing.
        check("%%bash --out x --err=y --bg --no-raise-error\nls", &[]);
        check("%%script --proc p bash\nrm -rf /", &[("REMOVE_ALL", "rm -rf /")]);
        check("%%bash --out x -c 'rm -rf /'\nls", &[("REMOVE_ALL", "bash --out x -c 'rm -rf /'")]);
        check("%%python3 --out x\nf(y)", &[]);
        let may_mean_more = |line: &str, text: &str| {
            let code = python_code(&format!("%%{line}\n{text}"), true);
            let found = code.unsafe_calls.iter().map(|f| f.kind);
            assert!(
                found.clone().any(|kind| kind == "OTHER_CODE"),
                "{line}: {:?}",
                found.collect::<Vec<_>>()
            );
        };
        for line in [
            "bash -c --out x 'rm -rf /'",
            "bash --ou x",
            "bash --out",
            "bash --out=",
            "bash --out {x}",
            "bash --out -c 'rm -rf /'",
            "bash -x \"--out\" y",
            "script --out bash",
        ] {
            may_mean_more(line, "ls");
        }
        check("%%ruby\nx", &[("OTHER_CODE", "ruby")]);
        check("%%writefile {eval(x)}\ny", &[("OTHER_CODE", "writefile {eval(x)}")]);
        check("%%writefile {name}.py\neval(x)", &[]);
        // Magics of one line, and other escapes.
        let all = |kind, text| check(text, &[(kind, text)]);
        all("CODE_EXECUTION", "%time eval(x)");
        all("CODE_EXECUTION", "%timeit -n 2 -r 3 eval(x)");
        all("CODE_EXECUTION", "%prun -r eval(x)");
        all("CODE_EXECUTION", "%config A.b = eval(x)");
        all("OTHER_CODE", "%timeit -s eval(x)");
        all("OTHER_CODE", "%time %time x");
        all("OTHER_CODE", "%macro x");
        all("REMOVE_ALL", "%system rm -rf /");
        all("REMOVE_ALL", "%pip install x; rm -rf /");
        all("OTHER_CODE", "%ls; rm -rf /");
        all("REMOVE_ALL", "%ls x; rm -rf /");
        all("OTHER_CODE", "/eval x");
        all("OTHER_CODE", ",eval x");
        all("CODE_EXECUTION", "!echo \"{eval(x)}\"");
        all("OTHER_CODE", "%cd \"{f():>3}\"");
        check("import os as o\n%time o.system('a')", &[("COMMAND", "%time o.system('a')")]);
        check("%time import os as o\no.system('a')", &[("COMMAND", "o.system('a')")]);
        check("y = %time eval(x)", &[("CODE_EXECUTION", "%time eval(x)")]);
        check("%time f(x)\n%config A.b = 'c'\n%pip install {x}\n%cd {x}\n%run a.py\n!echo '{f(x)}'", &[]);
        let code = python_code("%timeit import os\n%time len(f(x))", true);
        assert_eq!(
            (code.imports, code.builtins, code.function_calls),
            (vec!["os".to_owned()], vec!["len".to_owned()], vec!["len".to_owned(), "f".to_owned()])
        );
        assert!(python_code("!ls", false).syntax_error.is_some());
    }

    #[test]
    fn invalid_python_is_rejected() {
        for text in
            ["*[f\"cabinet {i}\"] for i in range(1,10)]", "def", "(", "'", "f'{", "x = \u{1f600}", "\0"]
        {
            let code = python_code(text, false);
            assert!(code.syntax_error.is_some(), "{text}");
            assert!(code.builtins.is_empty(), "{text}");
        }
        assert!(python_code(&" ".repeat(MAX_BYTES + 1), false).syntax_error.is_some());
    }

    /// Covers every nesting construct of the grammar, on a small stack, in an unoptimised build.
    #[test]
    fn deep_nesting_is_refused_and_overflows_nothing() {
        let forms: &[(&str, &str, &str)] = &[
            ("(", "1", ")"),
            ("f(", "", ")"),
            ("[", "", "]"),
            ("{1:", "1", "}"),
            ("a[", "1", "]"),
            ("x=(lambda a,b:", "1", ")"),
            ("lambda a,b:", "1", ""),
            ("not ", "1", ""),
            ("-", "1", ""),
            ("await ", "x", ""),
            ("1 if 1 else ", "1", ""),
            ("2**", "1", ""),
            ("", "1", "+1"),
            ("", "a", ".b"),
            ("", "a", "()"),
            ("", "a", "[0]"),
            ("", "a", " if 1 else b"),
            ("f\"{", "1", "}\""),
            ("f'{x:{", "1", "}}'"),
            ("(yield ", "1", ")"),
            ("[x for x in ", "y", "]"),
            ("(a := ", "1", ")"),
            ("*", "x", ""),
        ];
        let run = move || {
            for (open, middle, close) in forms {
                for n in [20, 100, 400, 1000, 20_000] {
                    let text = format!("{}{middle}{}", open.repeat(n), close.repeat(n));
                    let code = python_code(&text, false);
                    assert!(n < 1000 || code.syntax_error.is_some(), "{n} times {open}{close}");
                }
            }
            for n in [10, 99, 1200] {
                let nested: String = (0..n).map(|i| " ".repeat(i) + "if 1:\n").collect();
                let code = python_code(&(nested + &" ".repeat(n) + "x"), false);
                assert_eq!(code.syntax_error.is_some(), n > 100, "{n}");
            }
            // Input that the parser recovers from must not nest too deeply either.
            for line in [
                "if 1:\n",
                "if 1: ",
                "async ",
                "async\n",
                "@a\n",
                "try:\n",
                "class A:",
                "class A:\n",
                "def f():\n",
                "match x:\n",
                "case x:\n",
                "elif x:\n",
                "else:\n",
                "with a:\n",
                "for x in y:\n",
                "lambda:\n",
                "(a\n)",
                "(a b\n) ",
                "[a b\n]\n",
                "f'{a b}' ",
                "x = \\\n",
                "not\n",
                "del ",
                "yield ",
                "yield\n",
                "await ",
                "type X = ",
                "import a; ",
                "if 1:\n\tx\n  y\n",
            ] {
                let _ = python_code(&line.repeat(20_000), false);
                let _ = python_code(&line.repeat(20_000), true);
            }
            let pattern = format!("match x:\n case {}1{}: pass", "[".repeat(9000), "]".repeat(9000));
            assert!(python_code(&pattern, false).syntax_error.is_some());
        };
        std::thread::Builder::new().stack_size(2 << 20).spawn(run).unwrap().join().unwrap();
    }

    #[test]
    fn long_but_flat_code_is_parsed() {
        for text in [
            format!("x = [{}]", "-1, ".repeat(20_000)),
            "x = a.b(c + d)\n".repeat(5_000),
            format!("x = '{}'", "([{".repeat(10_000)),
            format!("f({})", "a=b.c(1), ".repeat(5_000)),
            format!("x = {{{}}}", "'k': -v,\n".repeat(5_000)),
            format!("if x: pass\n{}", "elif a.b: pass\n".repeat(3_000)),
        ] {
            assert_eq!(python_code(&text, false).syntax_error, None);
        }
    }
}
