//! The commands, one file each.

mod replay;

use clap::CommandFactory;
use flowgate_guard::influence;

use crate::args::{Args, Command};
use crate::input::InputError;
use crate::output::Output;

/// Runs a command; returns the exit code.
pub fn run(command: Command, output: &mut Output) -> Result<u8, InputError> {
    match command {
        Command::Replay { policies, influence, format, list_permitted, list_questions, jobs, corpora } => {
            let options = replay::Options {
                policies: &policies,
                influence: &influence,
                format,
                list_permitted,
                list_questions,
                jobs,
                corpora: &corpora,
            };
            replay::run(&options, output)
        }
        Command::Methods => {
            let rows = influence::METHODS.iter().map(|method| vec![method.name().to_owned(), method.doc().to_owned()]);
            output.table(&["method", "what it says and guarantees"], &rows.collect::<Vec<_>>());
            Ok(0)
        }
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Args::command(), "flowgate", &mut script);
            output.raw(&script);
            Ok(0)
        }
        Command::Man => {
            let mut page = Vec::new();
            let rendered = clap_mangen::Man::new(Args::command()).render(&mut page);
            rendered.map_err(|error| InputError(format!("the manual page cannot be printed: {error}")))?;
            output.raw(&page);
            Ok(0)
        }
        _ => Ok(0),
    }
}
