//! The functions of a script, and what the effect of a call depends on.

use std::collections::BTreeSet;
use std::rc::Rc;

use super::expansion::constant_text;
use super::flow::{Flow, ScriptLocation};
use super::syntax::{CommandList, Redirect, SimpleCommand, Stage, SyntaxWord};

/// A function of the script.
#[derive(Clone)]
pub(super) struct Function {
    pub(super) body: CommandList,
    pub(super) location: ScriptLocation,
    pub(super) names: Rc<Names>,
    /// What it prints.
    pub(super) printed: Flow,
}

/// What the effect of a function depends on.
#[derive(Default)]
pub(super) struct Names {
    pub(super) variables: BTreeSet<String>,
    /// The words that can be names of functions.
    pub(super) programs: BTreeSet<String>,
}

impl Names {
    pub(super) fn add_list(&mut self, list: &CommandList) {
        for stage in list.iter().flat_map(|pipeline| &pipeline.stages) {
            match stage {
                Stage::Command(command) => self.add_command(command),
                Stage::Group(group) => {
                    self.add_command(&group.head);
                    group
                        .binding
                        .iter()
                        .filter_map(|(_, values)| values.as_ref())
                        .flatten()
                        .for_each(|word| self.add_word(word));
                    self.add_list(&group.list);
                }
                Stage::Function(_, body) => self.add_list(body),
            }
        }
    }

    fn add_command(&mut self, command: &SimpleCommand) {
        self.programs.extend(command.words.iter().filter_map(constant_text));
        command
            .words
            .iter()
            .chain(command.redirects.iter().map(Redirect::word))
            .for_each(|word| self.add_word(word));
    }

    fn add_word(&mut self, word: &SyntaxWord) {
        word.visit_variables(&mut |name| {
            self.variables.insert(name.to_owned());
        });
        word.visit_lists(&mut |list, _| self.add_list(list));
    }
}
