//! Reads the compound commands of shell scripts: groups, conditions, loops and functions.

use std::ops::Range;
use std::rc::Rc;

use super::parser::{ListEnd, Parser, plain_text};
use super::syntax::{CommandList, Group, Part, Pipeline, SimpleCommand, Stage};

impl Parser<'_> {
    /// Reads the rest of a compound command after its keyword.
    pub(super) fn compound(&mut self, keyword: &str) -> Stage {
        let mut head = SimpleCommand::default();
        match keyword {
            "{" => {
                let list = self.list(ListEnd::Word("}"));
                self.group(list, false, head)
            }
            "if" => {
                let list = self.list(ListEnd::Word("fi"));
                self.group(list, false, head)
            }
            "while" | "until" => {
                let list = self.list(ListEnd::Word("done"));
                self.group(list, false, head)
            }
            "for" | "select" => {
                self.skip_blank();
                let mut binding = None;
                if self.starts_with("((") {
                    match self.arithmetic(self.at + 2) {
                        Some(expression) => head.words.push(expression),
                        None => self.note_syntax_error(),
                    }
                } else if let Some(variable) = self.word() {
                    self.skip_blank_and_lines();
                    let mut values = None;
                    if self.peek_keyword() == "in" {
                        self.at += 2;
                        values = Some(self.words_of_line());
                    }
                    if let [Part::Text { text, quoted: false }] = variable.parts.as_slice() {
                        binding = Some((text.clone(), values));
                    }
                }
                self.skip_blank();
                if self.starts_with(";") {
                    self.at += 1;
                }
                self.skip_blank_and_lines();
                // `for x in y; { … }` is an older form.
                let end = if self.peek_keyword() == "{" { "}" } else { "done" };
                self.at += usize::from(end == "}");
                let list = self.list(ListEnd::Word(end));
                match self.group(list, false, head) {
                    Stage::Group(group) => Stage::Group(Box::new(Group { binding, ..*group })),
                    stage => stage,
                }
            }
            "case" => self.case(),
            "function" => {
                self.skip_blank();
                let name = self.word().map(|word| plain_text(&word)).unwrap_or_default();
                self.skip_blank();
                if self.starts_with("(") {
                    self.at += 1;
                    self.skip_blank();
                    self.skip_expected(")");
                }
                self.function(name)
            }
            _ => {
                self.skip_blank();
                while self.peek_keyword() != "]]" {
                    let start = self.at;
                    match self.peek_operator() {
                        Some(operator) => self.at += operator.len(),
                        None => head.words.extend(self.word()),
                    }
                    if self.at == start {
                        self.note_syntax_error();
                        break;
                    }
                    self.skip_blank();
                }
                self.at = (self.at + 2).min(self.end);
                self.group(CommandList::default(), false, head)
            }
        }
    }

    /// Reads the rest of a `case`.
    fn case(&mut self) -> Stage {
        let mut head = SimpleCommand::default();
        let mut pipelines = Vec::new();
        self.skip_blank();
        head.words.extend(self.word());
        self.skip_blank_and_lines();
        self.skip_expected("in");
        loop {
            self.skip_blank_and_lines();
            if self.peek_keyword() == "esac" {
                self.at += 4;
                break;
            }
            if self.starts_with("(") {
                self.at += 1;
            }
            // The patterns up to the parenthesis.
            loop {
                self.skip_blank_and_lines();
                let start = self.at;
                match self.peek_operator() {
                    Some(")") => {
                        self.at += 1;
                        break;
                    }
                    Some("|") => self.at += 1,
                    Some(operator) => {
                        self.note_syntax_error();
                        self.at += operator.len();
                    }
                    None => head.words.extend(self.word()),
                }
                if self.at == start {
                    self.note_syntax_error();
                    break;
                }
            }
            if self.rest().is_empty() {
                self.note_syntax_error();
                break;
            }
            let list = self.list(ListEnd::CaseItem);
            pipelines.push(Pipeline { span: list_span(&list, self.at), stages: vec![self.bare_group(list)] });
            for operator in [";;&", ";;", ";&"] {
                if self.starts_with(operator) {
                    self.at += operator.len();
                    break;
                }
            }
        }
        self.group(Rc::new(pipelines), false, head)
    }

    /// Reads the body of a function.
    pub(super) fn function(&mut self, name: String) -> Stage {
        self.skip_blank_and_lines();
        let keyword = self.peek_keyword();
        let body = if self.starts_with("(") {
            self.at += 1;
            self.nested(|parser| parser.list(ListEnd::Parenthesis))
        } else if matches!(keyword, "{" | "if" | "while" | "until" | "for" | "select" | "case" | "[[") {
            self.at += keyword.len();
            let start = self.at;
            let stage = self.nested(|parser| parser.compound(keyword));
            stage.map(|stage| Rc::new(vec![Pipeline { span: start..self.at, stages: vec![stage] }]))
        } else {
            self.note_syntax_error();
            None
        };
        Stage::Function(name, body.unwrap_or_default())
    }

    fn bare_group(&self, list: CommandList) -> Stage {
        Stage::Group(Box::new(Group {
            list,
            is_subshell: false,
            binding: None,
            head: SimpleCommand::default(),
        }))
    }

    /// Makes a group, with the redirections that follow it.
    pub(super) fn group(&mut self, list: CommandList, is_subshell: bool, mut head: SimpleCommand) -> Stage {
        loop {
            self.skip_blank();
            match self.peek_operator() {
                Some(operator) if operator.contains(['<', '>']) => {
                    self.at += operator.len();
                    let redirect = self.redirect(operator);
                    head.redirects.push(redirect);
                }
                _ => {
                    let rest = self.rest();
                    let digits = rest.bytes().take(4).take_while(u8::is_ascii_digit).count();
                    if digits == 0 || !rest.get(digits..).is_some_and(|rest| rest.starts_with(['<', '>'])) {
                        return Stage::Group(Box::new(Group { list, is_subshell, binding: None, head }));
                    }
                    self.at += digits;
                }
            }
        }
    }
}

fn list_span(list: &CommandList, or: usize) -> Range<usize> {
    let start = list.first().map_or(or, |pipeline| pipeline.span.start);
    start..list.last().map_or(or, |pipeline| pipeline.span.end).max(start)
}
