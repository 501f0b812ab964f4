//! `flowgate audit verify --config`: whether every verdict of a log comes to the same again.

use std::path::Path;

use flowgate_gateway::audit::Records;
use flowgate_gateway::model_routes::recheck::{Logged, Rechecked, recheck};

use crate::command::serve;
use crate::input::{self, InputError};
use crate::output::Output;
use crate::visible;

/// How many conversations are named.
const NAMED: usize = 20;

/// Runs the command; returns the exit code.
pub(super) fn run(file: &Path, config: &Path, output: &mut Output) -> Result<u8, InputError> {
    let failed = |error: &dyn std::fmt::Display| InputError(format!("{}: {error}", config.display()));
    let config = serve::model_routes(config)?;
    let mut logged = Logged::default();
    for record in Records::new(input::open(file)?, None) {
        let record = record.map_err(|problem| InputError(format!("{}: {problem}", file.display())))?;
        logged.add(&record);
    }
    let rechecked = recheck(config, logged).map_err(|error| failed(&error))?;
    let Rechecked { same, unkept, gone, differ } = rechecked;
    let (color, mark) = if differ.is_empty() { ("32", "✓") } else { ("31", "✗") };
    let mark = output.paint(color, mark);
    output.line(&format!("{mark} {same} verdicts come to the same again"));
    if unkept > 0 {
        output.line(&format!("  unkept    {unkept} of turns whose answers did not go out"));
    }
    if gone > 0 {
        output.line(&format!(
            "  gone      {gone} of conversations that were deleted, or began anew under another policy"
        ));
    }
    for difference in differ.iter().take(NAMED) {
        output.line(&format!("  differs   {}", visible::short(&difference.to_string(), 400)));
    }
    if differ.len() > NAMED {
        output.line(&format!("  differs   {} more", differ.len() - NAMED));
    }
    Ok(u8::from(!differ.is_empty()))
}
