//! Runs `flowgate man`: prints the manual page of a command, or writes the pages of all commands to a folder.
//! `clap_mangen` writes the pages from the declarations in `args`.

use std::path::Path;

use clap::CommandFactory;

use crate::args::Args;
use crate::input::{InputError, describe_io_error};
use crate::output::{Console, plural};

/// Runs `flowgate man`: prints the page of one command, or writes the pages of all commands to the folder `out`. `names`
/// has the words of the command, such as `audit` and `verify`; it is empty for `flowgate` itself. Returns 0.
pub(crate) fn run(names: &[String], out: Option<&Path>, output: &mut Console) -> Result<u8, InputError> {
    let mut root = Args::command();
    root.build();
    if let Some(folder) = out {
        let failed = |error: std::io::Error| {
            InputError(format!("{}: {}", folder.display(), describe_io_error(&error)))
        };
        std::fs::create_dir_all(folder).map_err(failed)?;
        let mut count = 0;
        for (name, page) in pages(&root, "flowgate")? {
            std::fs::write(folder.join(format!("{name}.1")), page).map_err(failed)?;
            count += 1;
        }
        output.line(&format!("{} in {}", plural(count, "manual page"), folder.display()));
        return Ok(0);
    }
    let (mut command, mut title) = (&root, "flowgate".to_owned());
    for name in names {
        command = command.find_subcommand(name).ok_or_else(|| {
            let known: Vec<&str> = subcommands(command).map(clap::Command::get_name).collect();
            InputError(match known.as_slice() {
                [] => format!("`{title}` has no commands below it; leave out `{name}`"),
                known => format!("{title} has no command `{name}`; write one of {}", known.join(", ")),
            })
        })?;
        title = format!("{title}-{}", command.get_name());
    }
    output.write_bytes(&page(command, &title)?);
    Ok(0)
}

/// Returns the commands below a command, except `help`.
fn subcommands(command: &clap::Command) -> impl Iterator<Item = &clap::Command> {
    command.get_subcommands().filter(|command| command.get_name() != "help")
}

/// Returns the pages of a command and of all its subcommands, each with its name, such as `flowgate-check`.
fn pages(command: &clap::Command, title: &str) -> Result<Vec<(String, Vec<u8>)>, InputError> {
    let mut pages_by_name = vec![(title.to_owned(), page(command, title)?)];
    for subcommand in subcommands(command) {
        pages_by_name.extend(pages(subcommand, &format!("{title}-{}", subcommand.get_name()))?);
    }
    Ok(pages_by_name)
}

/// Returns the manual page of a command, in the format of `man`. `title` is the name of the command on the page, such
/// as `flowgate-check`.
fn page(command: &clap::Command, title: &str) -> Result<Vec<u8>, InputError> {
    let mut page = Vec::new();
    let rendered = clap_mangen::Man::new(command.clone()).title(title).render(&mut page);
    rendered.map_err(|error| InputError(format!("the manual page of {title} cannot be printed: {error}")))?;
    Ok(page)
}
