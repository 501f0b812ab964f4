//! Runs the command that the arguments name. `main` calls the function `run`, which calls the module of that command.
//! Each command has a module, except those that only print a list or a script: these run in the function itself.

mod analyze;
#[cfg(feature = "run")]
mod approvals;
mod attack;
#[cfg(feature = "gateway")]
mod audit;
#[cfg(feature = "bench")]
mod bench;
mod check;
#[cfg(feature = "gateway")]
mod database;
mod demo;
#[cfg(feature = "run")]
mod doctor;
#[cfg(any(feature = "local", feature = "run"))]
mod estimated_influence;
mod explain;
#[cfg(feature = "run")]
mod hook;
#[cfg(feature = "run")]
mod init;
#[cfg(feature = "run")]
mod keys;
mod labels;
#[cfg(all(feature = "bench", any(feature = "local", feature = "run")))]
mod lm;
#[cfg(feature = "run")]
mod login_link;
mod man;
#[cfg(feature = "run")]
mod mcp;
mod replay;
mod report;
#[cfg(feature = "run")]
mod run;
#[cfg(feature = "run")]
mod scan;
#[cfg(feature = "run")]
mod scoring_server;
#[cfg(feature = "local")]
mod screen;
#[cfg(feature = "gateway")]
mod serve;
mod suggest;
#[cfg(feature = "gateway")]
mod trace;
#[cfg(feature = "run")]
mod wrap;

use clap::CommandFactory;
use flowgate_guard::method::MethodRegistry;

use crate::args::{Args, Command};
use crate::input::InputError;
use crate::output::Console;

/// Runs the command with its options, and returns its exit code. Commands that only print a list, or a script for a
/// shell, run here.
pub(crate) fn run(command: Command, output: &mut Console) -> Result<u8, InputError> {
    match command {
        Command::Replay {
            policies,
            influence,
            model,
            methods,
            grant,
            format,
            list_permitted,
            list_questions,
            parameters,
            jobs,
            deny_warnings,
            corpora,
        } => {
            let options = replay::ReplayOptions {
                policies: &policies,
                influence: &influence,
                model: &model,
                methods: &methods,
                grants: grant.is_some(),
                format,
                list_permitted,
                list_questions,
                parameters: parameters.values(),
                jobs,
                deny_warnings,
                corpora: &corpora,
            };
            replay::run(&options, output)
        }
        Command::Check {
            policy,
            traces,
            influence,
            format,
            content,
            objections,
            deny_warnings,
            tools,
            parameters,
            answering,
        } => {
            let (policy, traces) = (policy.as_path(), traces.as_slice());
            check::run(
                &check::CheckOptions {
                    policy,
                    traces,
                    influence: &influence,
                    format,
                    content,
                    objections,
                    deny_warnings,
                    tools: &tools,
                    parameters,
                    answering,
                },
                output,
            )
        }
        Command::Analyze { policy, traces, parameters, answering, compat, format } => {
            let parameters = parameters.into_iter().collect();
            let (policy, traces) = (policy.as_path(), traces.as_slice());
            analyze::run(
                &analyze::AnalyzeOptions { policy, traces, parameters, answering, compat, format },
                output,
            )
        }
        #[cfg(feature = "run")]
        Command::Explain { question: Some(question), gateway, content, .. } => {
            explain::question::run(&question, &gateway, content, output)
        }
        Command::Explain {
            policy, trace, call, influence, content, against, parameters, answering, ..
        } => {
            // Without `--question`, the argument parser requires a policy and a trace, so the defaults are never used.
            let (policy, trace) = (policy.unwrap_or_default(), trace.unwrap_or_default());
            let (policy, trace, call) = (policy.as_path(), trace.as_path(), call.as_deref());
            let (influence, against) = (influence.as_str(), against.as_slice());
            let options = explain::ExplainOptions {
                policy,
                trace,
                call,
                influence,
                content,
                against,
                parameters,
                answering,
            };
            explain::run(&options, output)
        }
        Command::Suggest { policy, traces, influence, against, parameters, answering } => {
            let (policy, traces) = (policy.as_path(), traces.as_slice());
            let (influence, against) = (influence.as_str(), against.as_slice());
            let options =
                suggest::SuggestOptions { policy, traces, influence, against, parameters, answering };
            suggest::run(&options, output)
        }
        #[cfg(all(feature = "bench", any(feature = "local", feature = "run")))]
        Command::Lm { lm } => lm::run(&lm, output),
        #[cfg(feature = "local")]
        Command::Screen { screen } => screen::run(&screen, output),
        #[cfg(feature = "bench")]
        Command::Bench { bench } => bench::run(&bench, output),
        #[cfg(feature = "run")]
        Command::Init(options) => init::run(&options, output),
        #[cfg(feature = "run")]
        Command::Doctor(options) => doctor::run(&options, output),
        #[cfg(feature = "run")]
        Command::Scan(options) => scan::run(&options, output),
        #[cfg(feature = "run")]
        Command::Wrap(options) => wrap::wrap(&options, output),
        #[cfg(feature = "run")]
        Command::Unwrap(options) => wrap::unwrap(&options, output),
        Command::Attack(options) => attack::run(&options, output),
        Command::Labels(options) => labels::run(&options, output),
        Command::Report(options) => report::run(&options, output),
        #[cfg(feature = "run")]
        Command::Approvals { approvals } => approvals::run(&approvals, output),
        #[cfg(feature = "run")]
        Command::LoginLink(options) => login_link::run(&options, output),
        #[cfg(feature = "run")]
        Command::Keys { keys } => keys::run(&keys, output),
        Command::Demo => demo::run(output),
        #[cfg(feature = "run")]
        Command::Mcp(options) => mcp::run(&options, output),
        #[cfg(feature = "run")]
        Command::Hook(options) => hook::run(&options, output),
        #[cfg(feature = "gateway")]
        Command::Serve(options) => serve::run(&options, output),
        #[cfg(feature = "gateway")]
        Command::Audit { audit } => audit::run(&audit, output),
        #[cfg(feature = "gateway")]
        Command::Database { database } => database::run(&database, output),
        #[cfg(feature = "gateway")]
        Command::Trace { trace } => trace::run(&trace, output),
        #[cfg(feature = "run")]
        Command::Run(options) => run::run(&options, output),
        Command::Functions => {
            let rows = flowgate::policy::functions().map(|(name, (least, most), doc)| {
                let arguments = if least == most { least.to_string() } else { format!("{least} to {most}") };
                vec![name.to_owned(), arguments, doc.to_owned()]
            });
            output.table(&["function", "arguments", "what it gives"], &rows.collect::<Vec<_>>());
            Ok(0)
        }
        Command::Methods => {
            let methods = MethodRegistry::builtin();
            let rows = methods
                .influence_methods()
                .iter()
                .map(|method| vec![method.name().to_owned(), method.doc().to_owned()]);
            output.table(&["method", "what it says and guarantees"], &rows.collect::<Vec<_>>());
            Ok(0)
        }
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Args::command(), "flowgate", &mut script);
            output.write_bytes(&script);
            Ok(0)
        }
        Command::Man { command, out } => man::run(&command, out.as_deref(), output),
    }
}
