//! Parses the statements of a file. [`super::body`] parses the conditions at the end of a statement, and
//! [`super::consent`] the clauses about approvals. A statement about several regions becomes one statement for each, so
//! that the compiler handles one region at a time. [`super::parse_range`] calls [`Parser::file`].

use super::super::diagnostic::Diagnostic;
use super::super::grant_scope::GrantClause;
use super::super::lexer::{STATEMENTS, Token};
use super::super::syntax::{
    Action, DimensionOrder, Expr, ExprKind, Independence, Name, PolicyFile, Statement, StatementKind,
    ToolName,
};
use super::{ParseResult, Parser, ReportedParseError};

/// The most regions of one statement: its conditions are copied for each.
const MAX_TARGETS: usize = 50;

/// Returns one statement for each of `targets`, the regions that the source names in one statement. `statement` creates
/// the statement about one region.
fn for_each(targets: Vec<Expr>, statement: impl FnMut(Expr) -> StatementKind) -> Vec<StatementKind> {
    targets.into_iter().map(statement).collect()
}

impl Parser<'_> {
    /// Parses a file: a list of statements. A statement with an error is omitted as a whole, even if the parser could
    /// continue after the error: without one of its conditions, it would apply too widely. The span of a statement is
    /// its first line, which messages show.
    pub(super) fn file(&mut self) -> PolicyFile {
        let mut file = PolicyFile::default();
        while self.peek() != Token::End {
            // Between statements.
            if matches!(self.peek(), Token::Newline | Token::Dedent) {
                self.advance();
                continue;
            }
            if matches!(self.peek(), Token::Indent | Token::BadIndent) {
                self.expected("a statement at the beginning of a line", Some("remove the indentation"));
                self.advance();
                self.skip_statement();
                continue;
            }
            let start = self.next_span().start;
            let errors_before = self.error_count();
            match self.statement() {
                Ok(kinds) if self.error_count() == errors_before => {
                    let line_end = self.source.get(start..).and_then(|text| text.find('\n'));
                    let end = line_end.map_or(self.source.len(), |length| start + length);
                    file.statements
                        .extend(kinds.into_iter().map(|kind| Statement { kind, span: start..end }));
                }
                // The statement has an error after which the parser could continue.
                Ok(_) => {}
                Err(ReportedParseError) => self.skip_statement(),
            }
        }
        file
    }

    /// Parses one statement, by its first word. A statement about several regions is returned as one statement for each
    /// region, with the same label and conditions.
    fn statement(&mut self) -> ParseResult<Vec<StatementKind>> {
        let word = self.peek_word().to_owned();
        match word.as_str() {
            // Definitions are tested first, since a constant or a predicate may be called `label`.
            _ if self.is_definition() => self.definition().map(|kind| vec![kind]),
            "label" => {
                self.advance();
                let targets = self.targets("a region to label")?;
                self.expect_word("as", "write `label REGION as LABEL if:`")?;
                let (label, independence) = (self.label_expression()?, self.independence()?);
                let body = self.body()?;
                Ok(for_each(targets, |target| StatementKind::Label {
                    target,
                    label: label.clone(),
                    independence: independence.clone(),
                    body: body.clone(),
                }))
            }
            "payload" => {
                self.advance();
                let (targets, body) = (self.targets("an argument of the call")?, self.body()?);
                Ok(for_each(targets, |target| StatementKind::Payload { target, body: body.clone() }))
            }
            "consent" => {
                self.advance();
                let label = self.label_expression()?;
                self.expect_word("for", "write `consent LABEL for ARGUMENT if:`")?;
                let targets = self.targets("an argument of the call")?;
                let (limits, body) = (self.consent_limits()?, self.body()?);
                Ok(for_each(targets, |target| StatementKind::Consent {
                    label: label.clone(),
                    target,
                    limits: limits.clone(),
                    body: body.clone(),
                }))
            }
            "role" => {
                self.advance();
                let targets = self.targets("an argument of the call")?;
                self.expect_word("is", "write `role ARGUMENT is ROLE if:`")?;
                let (role, body) = (self.name("a role, such as `recipient`")?, self.body()?);
                Ok(for_each(targets, |target| StatementKind::Role {
                    target,
                    role: role.clone(),
                    body: body.clone(),
                }))
            }
            "require" => self.require(),
            _ => self.single_statement(&word).map(|kind| vec![kind]),
        }
    }

    /// Parses a statement that begins with `word`, if statements of its kind are about one region, as `endorse`, or
    /// about none, as `lattice` or a rule. Reports an unknown word. [`Self::statement`] parses the statements that can
    /// be about several regions.
    fn single_statement(&mut self, word: &str) -> ParseResult<StatementKind> {
        match word {
            "lattice" => self.lattice(),
            "store" => self.store(),
            "default" => {
                self.advance();
                let label = self.label_expression()?;
                self.end_of_line()?;
                Ok(StatementKind::Default { label })
            }
            "endorse" | "unsafe" => {
                let is_unsafe = self.eat_word("unsafe");
                self.expect_word("endorse", "write `unsafe endorse ARGUMENT as LABEL if:`")?;
                let target = self.target("an argument of the call")?;
                if self.peek() == Token::Comma {
                    let help = "write one `endorse` for each argument, since the conditions of an `endorse` apply to one value";
                    return Err(self.expected("`as`", Some(help)));
                }
                self.expect_word("as", "write `endorse ARGUMENT as LABEL if:`")?;
                let label = self.label_expression()?;
                Ok(StatementKind::Endorse { is_unsafe, target, label, body: self.body()? })
            }
            "raise" => self.rule(Action::Deny),
            "ask" => self.rule(Action::Ask),
            "log" => self.rule(Action::Log),
            "extern" => self.external(),
            // `import "PATH"` imports a file; `import a.b` and `from a.b import c` import a module of functions.
            "import" if self.peek_at(1) == Token::Str => {
                self.advance();
                let span = self.advance();
                let ExprKind::Str(path) = self.literal(&span)? else {
                    let message = "the path of the import is an f-string".to_owned();
                    let diagnostic = Diagnostic::error("import", span, message);
                    let help = "write it without `f`, such as `import \"shared/contacts.flow\"`";
                    return Err(self.report(diagnostic.help(help)));
                };
                self.end_of_line()?;
                Ok(StatementKind::ImportFile { path })
            }
            "import" | "from" => {
                self.advance();
                let mut module = self.name("a module")?;
                while self.eat(Token::Dot) {
                    let part = self.name("a module")?;
                    module.text = format!("{}.{}", module.text, part.text);
                    module.span.end = part.span.end;
                }
                self.import(word == "from", module)
            }
            word => {
                let near = super::super::diagnostic::nearest(word, STATEMENTS);
                let help = match near {
                    Some(near) if !word.is_empty() => format!("did you mean `{near}`?"),
                    _ => format!("statements begin with one of: {}", STATEMENTS.join(", ")),
                };
                Err(self.expected("a statement", Some(&help)))
            }
        }
    }

    /// Parses `require LABEL [for ARGUMENTS] [decided by everything] [grant SCOPE [by class]] [else deny] if:`. Returns
    /// one requirement for each argument, or one on the whole call. `decided by everything` makes a requirement strict:
    /// the decision to call counts as one that depends on everything that the agent has seen. With `else deny`, a call
    /// that exceeds the requirement is denied, and no person is asked for an approval.
    fn require(&mut self) -> ParseResult<Vec<StatementKind>> {
        self.advance();
        let label = self.label_expression()?;
        let targets =
            if self.eat_word("for") { Some(self.targets("an argument of the call")?) } else { None };
        // The optional clauses, which can only be in this order.
        let is_strict = self.eat_word("decided");
        if is_strict {
            let help = "write `require LABEL decided by everything if:`";
            self.expect_word("by", help)?;
            self.expect_word("everything", help)?;
        }
        let grant = self.grant()?;
        let denies = self.eat_word("else");
        if denies {
            self.expect_word("deny", "write `require LABEL else deny if:`")?;
        }
        let body = self.body()?;
        let requirement = |target: Option<Expr>| StatementKind::Require {
            label: label.clone(),
            target,
            is_strict,
            grant,
            denies,
            body: body.clone(),
        };
        Ok(match targets {
            Some(targets) => for_each(targets, |target| requirement(Some(target))),
            None => vec![requirement(None)],
        })
    }

    /// Parses `extern NAME(PARAMETERS) -> TYPE`, such as `extern is_spam(text: str) -> bool`: the declaration of a
    /// predicate that is answered outside the policy. Each parameter needs a type.
    fn external(&mut self) -> ParseResult<StatementKind> {
        self.advance();
        let help = "write `extern NAME(PARAMETER: TYPE) -> TYPE`, such as `-> bool`";
        let name = self.name("the name of a predicate")?;
        self.expect(Token::ParenOpen, "`(`")?;
        let mut parameters = Vec::new();
        while self.peek() != Token::ParenClose {
            let parameter = self.name("a parameter")?;
            if !self.eat(Token::Colon) {
                return Err(self.expected("`:` and a type", Some(help)));
            }
            parameters.push((parameter, self.name("a type")?));
            if !self.eat(Token::Comma) {
                break;
            }
        }
        self.expect(Token::ParenClose, "`)`")?;
        if !self.eat(Token::Arrow) {
            return Err(self.expected("`->` and a type", Some(help)));
        }
        let result = self.name("a type")?;
        self.end_of_line()?;
        Ok(StatementKind::Extern { name, parameters, result })
    }

    /// Parses the rest of an import after the name of the module: of `import a.b as c` or, with `has_names`, of
    /// `from a.b import c as d, e`.
    fn import(&mut self, has_names: bool, module: Name) -> ParseResult<StatementKind> {
        // Parses `as NAME`, if it is next.
        let alias = |parser: &mut Self| {
            if parser.eat_word("as") { parser.name("a name").map(Some) } else { Ok(None) }
        };
        if !has_names {
            let alias = alias(self)?;
            self.end_of_line()?;
            return Ok(StatementKind::Import { module, alias, names: None });
        }
        self.expect_word("import", "write `from MODULE import NAME, NAME`")?;
        let in_parentheses = self.eat(Token::ParenOpen);
        let mut names = Vec::new();
        while names.is_empty() || self.eat(Token::Comma) {
            // In parentheses, a comma may follow the last name.
            if in_parentheses && self.peek() == Token::ParenClose {
                break;
            }
            names.push((self.name("a name to import")?, alias(self)?));
        }
        if in_parentheses {
            self.expect(Token::ParenClose, "`)`")?;
        }
        self.end_of_line()?;
        Ok(StatementKind::Import { module, alias: None, names: Some(names) })
    }

    /// Returns whether the line defines a constant (`NAME :=`) or a predicate (`NAME(...) :=`). The name may be any
    /// word, even one that begins statements, such as `label`.
    fn is_definition(&self) -> bool {
        if self.peek() != Token::Name {
            return false;
        }
        match self.peek_at(1) {
            Token::Define => true,
            Token::ParenOpen => {
                // A predicate: `:=` follows the closing parenthesis. Parameters contain no parentheses.
                let mut ahead = 2;
                while !matches!(self.peek_at(ahead), Token::ParenClose | Token::Newline | Token::End) {
                    ahead += 1;
                }
                self.peek_at(ahead + 1) == Token::Define
            }
            _ => false,
        }
    }

    /// Parses the definition of a constant, `NAME := VALUE`, or of a predicate, `NAME(PARAMETERS) := CONDITIONS`.
    fn definition(&mut self) -> ParseResult<StatementKind> {
        let name = self.name("a name")?;
        // A constant. Its value can be on the next line, indented more.
        if self.eat(Token::Define) {
            let is_indented = self.eat(Token::Newline) && self.eat(Token::Indent);
            let value = self.expression()?;
            self.end_of_line()?;
            if is_indented && !self.eat(Token::Dedent) {
                return Err(
                    self.expected("the end of the block", Some("write the constant as one expression"))
                );
            }
            return Ok(StatementKind::Constant { name, value });
        }
        // A predicate; the types of its parameters are optional.
        self.expect(Token::ParenOpen, "`(`")?;
        let mut parameters = Vec::new();
        while self.peek() != Token::ParenClose {
            let parameter = if self.peek() == Token::ToolPrefix {
                // A parameter called `tool`: the lexer has read its colon as the start of a pattern.
                let span = self.advance();
                let name = Name { text: "tool".to_owned(), span };
                (name, Some(self.name("a type")?))
            } else {
                let name = self.name("a parameter")?;
                let ty = if self.eat(Token::Colon) { Some(self.name("a type")?) } else { None };
                (name, ty)
            };
            parameters.push(parameter);
            if !self.eat(Token::Comma) {
                break;
            }
        }
        self.expect(Token::ParenClose, "`)`")?;
        self.expect(Token::Define, "`:=`")?;
        let body = self.block_or_line()?;
        Ok(StatementKind::Predicate { name, parameters, body })
    }

    /// Parses `lattice NAME [(PURPOSE)]: ORDER`, where the order is `set`, `set of a, b`, `readers`, `approvers`,
    /// `time` or a list of chains such as `a < b < c`.
    fn lattice(&mut self) -> ParseResult<StatementKind> {
        self.advance();
        let name = self.name("the name of a dimension")?;
        let purpose = if self.eat(Token::ParenOpen) {
            let purpose = self.name("`integrity` or `secrecy`")?;
            self.expect(Token::ParenClose, "`)`")?;
            Some(purpose)
        } else {
            None
        };
        self.expect(Token::Colon, "`:`")?;
        let order = self.dimension_order()?;
        self.end_of_line()?;
        Ok(StatementKind::Lattice { name, purpose, order })
    }

    /// Parses the order of a dimension, which follows the colon of a `lattice` statement.
    fn dimension_order(&mut self) -> ParseResult<DimensionOrder> {
        // An element can be called `set`, `readers`, `approvers` or `time` too, so the token after the word decides.
        let order = match (self.peek_word(), self.peek_at(1)) {
            ("set", Token::Newline | Token::End) => {
                self.advance();
                DimensionOrder::Set(None)
            }
            ("set", Token::Name) => {
                self.advance();
                self.expect_word("of", "write `set of a, b`")?;
                let mut names = vec![self.name("an element")?];
                while self.eat(Token::Comma) {
                    names.push(self.name("an element")?);
                }
                DimensionOrder::Set(Some(names))
            }
            ("readers", Token::Newline | Token::End) => {
                self.advance();
                DimensionOrder::Readers
            }
            ("approvers", Token::Newline | Token::End) => {
                self.advance();
                DimensionOrder::Approvers
            }
            ("time", Token::Newline | Token::End) => {
                self.advance();
                DimensionOrder::Time
            }
            _ => {
                let mut chains = Vec::new();
                loop {
                    let mut chain = vec![self.name("an element")?];
                    while self.eat(Token::Less) {
                        chain.push(self.name("an element")?);
                    }
                    chains.push(chain);
                    if !self.eat(Token::Comma) {
                        break;
                    }
                }
                DimensionOrder::Edges(chains)
            }
        };
        Ok(order)
    }

    /// Parses `store NAME: written by TOOL, TOOL, read by TOOL`, the declaration of external state that tools share.
    fn store(&mut self) -> ParseResult<StatementKind> {
        self.advance();
        let name = self.name("the name of a store")?;
        self.expect(Token::Colon, "`:`")?;
        let (mut written, mut read) = (Vec::new(), Vec::new());
        let help = "write `store NAME: written by TOOL, TOOL, read by TOOL`";
        loop {
            // `written by` or `read by`, in any order, each with a list of tools.
            let list = match self.peek_word() {
                "written" => &mut written,
                "read" => &mut read,
                _ => return Err(self.expected("`written by` or `read by`", Some(help))),
            };
            self.advance();
            self.expect_word("by", help)?;
            loop {
                list.push(self.store_tool()?);
                // A comma continues the list, unless two words such as `read by` follow it.
                let second_after_comma = self.tokens.get(self.position + 2);
                let is_by = second_after_comma.is_some_and(|(_, span)| self.text(span) == "by");
                let begins_other_list = self.peek_at(1) == Token::Name && is_by;
                if self.peek() != Token::Comma || begins_other_list {
                    break;
                }
                self.advance();
            }
            self.eat(Token::Comma);
            if matches!(self.peek(), Token::Newline | Token::End) {
                break;
            }
        }
        self.end_of_line()?;
        Ok(StatementKind::Store { name, written, read })
    }

    /// Parses a tool pattern of a `store` statement, with or without the prefix `tool:`.
    fn store_tool(&mut self) -> ParseResult<Expr> {
        if matches!(self.peek(), Token::Tool | Token::ToolQuoted) {
            return self.tool_reference();
        }
        let start = self.next_span().start;
        let mut end = start;
        // Without the prefix, `bank/get_*` is several tokens. They belong to one name as long as no space separates
        // them.
        while matches!(
            self.peek(),
            Token::Name | Token::Star | Token::Slash | Token::Minus | Token::Dot | Token::Int
        ) && (end == start || self.next_span().start == end)
        {
            end = self.advance().end;
        }
        if end == start {
            return Err(self.expected("a tool", None));
        }
        let name = ToolName::Glob(self.text(&(start..end)).to_owned());
        let tool = super::super::syntax::ToolRef { name, arguments: None };
        self.node(start, ExprKind::Tool(tool))
    }

    /// Parses a rule: the word for its action (which the caller has recognized), the message, a grant (only after
    /// `ask`), and the body.
    fn rule(&mut self, action: Action) -> ParseResult<StatementKind> {
        self.advance();
        // Not `expression`, which would read the `if` before the conditions as that of a choice between two messages.
        let message = self.disjunction()?;
        let grant = if action == Action::Ask { self.grant()? } else { GrantClause::default() };
        Ok(StatementKind::Rule { action, message, grant, body: self.body()? })
    }

    /// Parses the optional clause by which a `label` statement says that a region of an output does not depend on what
    /// the call passed: `independent of arguments`, or, for some of the arguments,
    /// `independent of arguments.NAME, arguments.NAME`.
    fn independence(&mut self) -> ParseResult<Independence> {
        const HELP: &str = "write `label REGION as LABEL independent of arguments if:`";
        if !self.eat_word("independent") {
            return Ok(Independence::Undeclared);
        }
        self.expect_word("of", HELP)?;
        self.expect_word("arguments", HELP)?;
        if !matches!(self.peek(), Token::Dot | Token::BracketOpen) {
            return Ok(Independence::OfAll);
        }
        let mut names = vec![self.argument_name()?];
        while self.eat(Token::Comma) {
            let help = "write `independent of arguments.NAME, arguments.NAME`";
            if names.len() == MAX_TARGETS {
                let help = format!("name at most {MAX_TARGETS} arguments in one statement");
                return Err(self.expected("the end of the list", Some(&help)));
            }
            self.expect_word("arguments", help)?;
            names.push(self.argument_name()?);
        }
        Ok(Independence::OfNamed(names))
    }

    /// Parses the name of an argument after the word `arguments`: `.NAME` or `["NAME"]`.
    fn argument_name(&mut self) -> ParseResult<Name> {
        if self.eat(Token::Dot) {
            return self.name("the name of an argument");
        }
        let help = "write `arguments.NAME` or `arguments[\"NAME\"]`";
        if !self.eat(Token::BracketOpen) {
            return Err(self.expected("`.`", Some(help)));
        }
        let span = self.next_span();
        let what = "the name of an argument in quotation marks";
        if self.peek() != Token::Str {
            return Err(self.expected(what, Some(help)));
        }
        // An f-string is a text literal, too, but not a constant.
        let ExprKind::Str(text) = *self.atom()?.kind else { return Err(self.expected(what, Some(help))) };
        self.expect(Token::BracketClose, "`]`")?;
        Ok(Name { text, span })
    }

    /// Parses a region: a path such as `out.content`, or a call such as `capture(...)`. A word that continues the
    /// statement, such as `as`, is an error, since the region before it is missing. `what` names the region in an error
    /// message.
    pub(super) fn target(&mut self, what: &str) -> ParseResult<Expr> {
        if self.peek() != Token::Name || matches!(self.peek_word(), "as" | "if" | "for") {
            let help = "write a path from a variable, such as `out.content[*].subject`";
            return Err(self.expected(what, Some(help)));
        }
        self.postfix()
    }

    /// Parses the regions that a statement is about, separated by commas. `what` names them in an error message.
    fn targets(&mut self, what: &str) -> ParseResult<Vec<Expr>> {
        let mut targets = vec![self.target(what)?];
        while self.eat(Token::Comma) {
            if targets.len() == MAX_TARGETS {
                let help = format!(
                    "write at most {MAX_TARGETS} regions in one statement, and the others in another"
                );
                return Err(self.expected("the end of the list", Some(&help)));
            }
            targets.push(self.target(what)?);
        }
        Ok(targets)
    }

    /// Parses a label: elements of dimensions, such as `untrusted` or `readers("ann")`, separated by commas.
    fn label_expression(&mut self) -> ParseResult<Vec<Expr>> {
        let mut parts = vec![self.postfix()?];
        while self.eat(Token::Comma) {
            parts.push(self.postfix()?);
        }
        Ok(parts)
    }
}
