//! Parses compound commands: groups, `if`, loops, `case`, `[[ … ]]`, arithmetic, and functions. The
//! [`parser`](super::parser) calls it where a command begins.

use super::lexer::{ScriptReader, is_name};
use super::limits::ShellReadError;
use super::syntax::{CommandForm, CompoundKind, Script, Word};

impl ScriptReader<'_, '_> {
    /// Parses a compound command, or a function that the keyword `function` defines. Returns `None` if neither is next,
    /// so that a simple command must follow.
    pub(super) fn compound(&mut self) -> Result<Option<CommandForm>, ShellReadError> {
        use CompoundKind::{Choice, Group, Loop, Subshell, Test};
        let form = |kind, words, bodies| Ok(Some(CommandForm::Compound { kind, words, bodies }));
        let start = self.at;
        if self.take_operator("((") {
            let scripts = self.arithmetic(b')', start)?;
            return form(Test, Vec::new(), scripts);
        }
        if self.take_operator("(") {
            let body = self.list()?;
            self.skip_blanks()?;
            return if self.take_operator(")") {
                form(Subshell, Vec::new(), vec![body])
            } else {
                Err(ShellReadError::Syntax)
            };
        }
        if self.take_keyword("{") {
            let body = self.list()?;
            self.expect_keyword("}")?;
            return form(Group, Vec::new(), vec![body]);
        }
        if self.take_keyword("if") {
            let bodies = self.branches()?;
            return form(Choice, Vec::new(), bodies);
        }
        if self.take_keyword("while") || self.take_keyword("until") {
            let condition = self.list()?;
            let body = self.loop_body()?;
            return form(Loop, Vec::new(), vec![condition, body]);
        }
        if self.take_keyword("for") || self.take_keyword("select") {
            return self.for_loop();
        }
        if self.take_keyword("case") {
            return self.case();
        }
        if self.take_keyword("[[") {
            return self.condition(start);
        }
        if self.take_keyword("function") {
            return self.function_after_keyword().map(Some);
        }
        // The word after `coproc` is a name or a command, and only the rest of the line decides which.
        if self.after_keyword("coproc").is_some() {
            return Err(ShellReadError::Syntax);
        }
        Ok(None)
    }

    /// Parses an `if` command after its keyword, up to `fi`. Returns the scripts of the conditions and of the branches, in
    /// their order. A second `else`, which a shell rejects, is accepted, since only the scripts matter.
    fn branches(&mut self) -> Result<Vec<Script>, ShellReadError> {
        let mut bodies = vec![self.list()?];
        self.expect_keyword("then")?;
        bodies.push(self.list()?);
        loop {
            if self.take_keyword("elif") {
                bodies.push(self.list()?);
                self.expect_keyword("then")?;
            } else if !self.take_keyword("else") {
                self.expect_keyword("fi")?;
                return Ok(bodies);
            }
            bodies.push(self.list()?);
        }
    }

    /// Parses the definition of a function after the keyword `function`: its name, brackets that may be absent, and its
    /// body.
    fn function_after_keyword(&mut self) -> Result<CommandForm, ShellReadError> {
        self.skip_blanks()?;
        let name = self.word()?.ok_or(ShellReadError::Syntax)?;
        self.skip_blanks()?;
        if self.take_operator("(") {
            self.skip_blanks()?;
            if !self.take_operator(")") {
                return Err(ShellReadError::Syntax);
            }
        }
        self.function(&name)
    }

    /// Parses the body of the function `name`, after the brackets of its definition. Returns the definition. Fails if
    /// the body is not a compound command that can be read.
    pub(super) fn function(&mut self, name: &Word) -> Result<CommandForm, ShellReadError> {
        self.skip_lines()?;
        self.facts.defines_function = true;
        self.limits.enter()?;
        let body = self.command()?;
        self.limits.leave();
        // A simple command cannot be the body of a function.
        if !matches!(body.form, CommandForm::Compound { .. }) {
            return Err(ShellReadError::Syntax);
        }
        Ok(CommandForm::Function { name: name.plain_text(), body: Box::new(body) })
    }

    /// Parses the body of a loop, `do … done` or `{ … }`. Fails if there is none.
    fn loop_body(&mut self) -> Result<Script, ShellReadError> {
        self.skip_lines()?;
        let end = if self.take_keyword("{") {
            "}"
        } else {
            self.expect_keyword("do")?;
            "done"
        };
        let body = self.list()?;
        self.expect_keyword(end)?;
        Ok(body)
    }

    /// Parses a `for` or `select` loop after its keyword: `for name in words; do … done`, the same without `in`, or the
    /// arithmetic form `for ((…; …; …))`. The words of the result are those after `in`, which the variable takes. The
    /// result is never `None`, as for [`Self::condition`]. Fails if the text is not such a loop.
    fn for_loop(&mut self) -> Result<Option<CommandForm>, ShellReadError> {
        self.skip_blanks()?;
        let start = self.at;
        let mut words = Vec::new();
        let mut bodies = Vec::new();
        if self.take_operator("((") {
            bodies = self.arithmetic(b')', start)?;
            self.skip_blanks()?;
            // The semicolon may be absent.
            self.take_operator(";");
        } else {
            let name = self.word()?.ok_or(ShellReadError::Syntax)?;
            if !name.plain_text().is_some_and(|name| is_name(&name)) {
                return Err(ShellReadError::Syntax);
            }
            self.skip_blanks()?;
            if !self.take_operator(";") {
                self.skip_lines()?;
                if self.take_keyword("in") {
                    loop {
                        self.skip_blanks()?;
                        match self.word()? {
                            Some(word) => words.push(word),
                            None => break,
                        }
                    }
                    if self.byte() != Some(b'\n') && !self.take_operator(";") {
                        return Err(ShellReadError::Syntax);
                    }
                }
            }
        }
        bodies.push(self.loop_body()?);
        Ok(Some(CommandForm::Compound { kind: CompoundKind::Loop, words, bodies }))
    }

    /// Parses a `case` command after its keyword. The words of the result are the compared word and all patterns. The
    /// result is never `None`, as for [`Self::condition`]. Fails if a part of the command, such as `esac`, is missing.
    fn case(&mut self) -> Result<Option<CommandForm>, ShellReadError> {
        self.skip_blanks()?;
        let mut words = vec![self.word()?.ok_or(ShellReadError::Syntax)?];
        let mut bodies = Vec::new();
        self.expect_keyword("in")?;
        loop {
            self.skip_lines()?;
            if self.take_keyword("esac") {
                return Ok(Some(CommandForm::Compound { kind: CompoundKind::Choice, words, bodies }));
            }
            // The bracket before the patterns may be absent.
            self.take_operator("(");
            // Between `case` and `)`, words can be patterns such as `@(a|b)`.
            let reads_patterns = std::mem::replace(&mut self.reads_patterns, true);
            loop {
                self.skip_blanks()?;
                words.push(self.word()?.ok_or(ShellReadError::Syntax)?);
                self.skip_blanks()?;
                if !self.take_operator("|") {
                    break;
                }
            }
            self.reads_patterns = reads_patterns;
            if !self.take_operator(")") {
                return Err(ShellReadError::Syntax);
            }
            bodies.push(self.list()?);
            self.skip_lines()?;
            let ended = [";;&", ";;", ";&"].iter().any(|end| self.take_operator(end));
            if !ended && self.after_keyword("esac").is_none() {
                return Err(ShellReadError::Syntax);
            }
        }
    }

    /// Parses `[[ … ]]` after its opening brackets; `start` is their offset. Operators and parentheses are skipped,
    /// since only the words can contain scripts. The result is never `None`; it is an `Option` because
    /// [`Self::compound`] returns it unchanged. Fails if the brackets are not closed, or at a `;`.
    fn condition(&mut self, start: usize) -> Result<Option<CommandForm>, ShellReadError> {
        // In `[[ … ]]`, words can be patterns such as `@(a|b)`.
        let reads_patterns = std::mem::replace(&mut self.reads_patterns, true);
        let mut words = Vec::new();
        loop {
            self.skip_lines()?;
            if self.take_keyword("]]") {
                break;
            }
            match self.byte() {
                None | Some(b';') => return Err(ShellReadError::Syntax),
                Some(b'(' | b')' | b'|' | b'&') => self.at += 1,
                // `<` and `>` compare texts, except in `<(…)` and `>(…)`, which are words.
                Some(b'<' | b'>') if self.byte_at(self.after_joins(self.at + 1)) != Some(b'(') => {
                    self.at += 1
                }
                Some(_) => {
                    let word = self.word()?.ok_or(ShellReadError::Syntax)?;
                    // These operators evaluate their operands as arithmetic; `-v` and `-R` take the name of a variable,
                    // whose index may be evaluated.
                    let evaluates = ["-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-v", "-R"];
                    if word.plain_text().is_some_and(|text| evaluates.contains(&text.as_str())) {
                        self.facts.arithmetic.get_or_insert(self.location.locate(&(start..self.at)));
                    }
                    words.push(word);
                }
            }
        }
        self.reads_patterns = reads_patterns;
        Ok(Some(CommandForm::Compound { kind: CompoundKind::Test, words, bodies: Vec::new() }))
    }
}
