//! Runs `flowgate approvals`: a person answers the questions of a running gateway in a terminal, by the same HTTP
//! routes as the gateway's web page for people.
//!
//! A person can allow a call only after the command has displayed it. At a terminal, the person confirms the call.
//! Without a terminal, the person passes the digest of the question that `show` has printed; the gateway rejects a
//! decision whose digest differs from that of the question.
//!
//! * `decisions` asks for the decision at the terminal, and sends it.
//! * `watch` runs `flowgate approvals watch`, which shows questions as they are asked.
//! * `grants` lists what was allowed for longer than one call, and withdraws it.

mod decisions;
mod grants;
mod watch;

use std::io::{IsTerminal as _, stdin, stdout};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::ValueEnum as _;
use flowgate::monitor::PersonDecision;
use serde_json::Value;

use crate::args::{ApprovalsCommand, ApprovalsFormat, GatewayArgs, QuestionStateArg};
use crate::escaping;
use crate::gateway_client::{GatewayClient, GatewayError, question_path};
use crate::input::InputError;
use crate::output::{Console, plural};
use crate::question_text;
use crate::typed_lines::TypedLines;
use decisions::{LastingTerms, TypedDecision, confirm, decide};

/// Runs a subcommand of `flowgate approvals`, and returns its exit code.
pub(crate) fn run(command: &ApprovalsCommand, output: &mut Console) -> Result<u8, InputError> {
    let done = match command {
        ApprovalsCommand::List { state, format, gateway } => list(*state, *format, gateway, output)?,
        ApprovalsCommand::Show { id, format, gateway } => show(id, *format, gateway, output)?,
        ApprovalsCommand::Allow {
            id,
            conversation,
            lasting,
            days,
            calls_a_day,
            sum_a_day,
            digest,
            format,
            gateway,
        } => {
            let decision = match (conversation, lasting) {
                (true, _) => PersonDecision::AllowForConversation,
                (_, true) => PersonDecision::AllowLasting,
                _ => PersonDecision::AllowOnce,
            };
            let terms = LastingTerms { days: *days, calls_a_day: *calls_a_day, sum_a_day: sum_a_day.clone() };
            allow(id, &TypedDecision { decision, terms }, digest.as_deref(), *format, gateway, output)?
        }
        ApprovalsCommand::Deny { id, format, gateway } => deny(id, *format, gateway, output)?,
        ApprovalsCommand::Watch { format, gateway } => watch::run(*format, gateway, output)?,
        ApprovalsCommand::Grants { format, gateway } => grants::list(*format, gateway, output)?,
        ApprovalsCommand::Withdraw { id, format, gateway } => grants::withdraw(id, *format, gateway, output)?,
    };
    // The message of a gateway that refuses the request is printed, and the exit code is 1.
    done.or_else(|error| error.report(output))
}

/// The result of an operation: the exit code. The outer error is an invalid command line or file; the inner error says
/// that the gateway refused the request, or could not be reached.
type OperationResult = Result<Result<u8, GatewayError>, InputError>;

/// Runs `flowgate approvals list`: prints the questions in the requested `state`, and their number. Each question has
/// its title, its summary, and what became of it. Nothing has become of an open question yet: if certain people must
/// approve it, prints who of them still has to. With JSON, prints the gateway's answer. The exit code is 0.
fn list(
    state: QuestionStateArg,
    format: ApprovalsFormat,
    options: &GatewayArgs,
    output: &mut Console,
) -> OperationResult {
    let gateway = GatewayClient::new(options, output)?;
    let name = state.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
    let answer = match gateway.get(&format!("/api/v1/approvals?state={name}")) {
        Ok(answer) => answer,
        // The outer `Result` is for errors of the input; the caller prints an error of the gateway.
        Err(error) => return Ok(Err(error)),
    };
    if format == ApprovalsFormat::Json {
        print_json(&answer, output);
        return Ok(Ok(0));
    }
    let questions = questions_of(&answer);
    for question in questions {
        output.line(&question_text::title(question));
        let call = question.get("call").unwrap_or(&Value::Null);
        let summary = question_text::text(call, "summary");
        if !summary.is_empty() {
            output.line(&format!("    {}", escaping::line(summary)));
        }
        if state != QuestionStateArg::Open {
            output.line(&format!("    {}", question_text::outcome(question)));
        } else if let Some(approvals) = question_text::approvals(question) {
            output.line(&format!("    {approvals}"));
        }
    }
    let left_out = answer.get("left_out").and_then(Value::as_u64).unwrap_or_default();
    let more = if left_out > 0 {
        format!(", and {left_out} more that the gateway did not list")
    } else {
        String::new()
    };
    output.line(&format!("{} {name}{more}", plural(questions.len(), "question")));
    Ok(Ok(0))
}

/// Runs `flowgate approvals show`: prints the question `id` of the gateway. The exit code is 0.
fn show(id: &str, format: ApprovalsFormat, options: &GatewayArgs, output: &mut Console) -> OperationResult {
    let gateway = GatewayClient::new(options, output)?;
    Ok(gateway.get(&question_path(id)).map(|question| {
        print_question(&question, format, output);
        0
    }))
}

/// Runs `flowgate approvals allow`: sends `decision`, which allows a call, on the question `id`. `digest` is the digest
/// of the question, which `show` has printed for the person. Without it, the question is shown, and the person confirms
/// the call at the terminal. The exit code is 1 if the person may not allow the call, or does not confirm it.
///
/// # Errors
/// If there is neither a digest nor a terminal, or the options cannot be used.
fn allow(
    id: &str,
    decision: &TypedDecision,
    digest: Option<&str>,
    format: ApprovalsFormat,
    options: &GatewayArgs,
    output: &mut Console,
) -> OperationResult {
    let gateway = GatewayClient::new(options, output)?;
    if let Some(digest) = digest {
        return Ok(send(&gateway, id, digest, decision, format, output));
    }
    if !(stdin().is_terminal() && stdout().is_terminal()) {
        return Err(InputError(
            "the question cannot be shown without a terminal, and nothing is allowed unseen: run `flowgate approvals show ID --format json`, and \
             pass the digest that it prints with `--digest`"
                .to_owned(),
        ));
    }
    // Begins before the question is shown, so that `confirm` can discard the lines that were typed until then.
    let lines = TypedLines::start_reading();
    let question = match gateway.get(&question_path(id)) {
        Ok(question) => question,
        // The outer `Result` is for errors of the input; the caller prints an error of the gateway.
        Err(error) => return Ok(Err(error)),
    };
    question_text::print(&question, now(), output);
    if let Some(why) = decision.objection(&question) {
        output.error(&why);
        return Ok(Ok(1));
    }
    if !confirm(&lines, decision, output) {
        output.note("nothing is decided");
        return Ok(Ok(1));
    }
    let digest = question_text::text(&question, "digest");
    Ok(send(&gateway, id, digest, decision, format, output))
}

/// Runs `flowgate approvals deny`: denies the call of the question `id`. The person need not have read the question, so
/// the denial is sent with the digest that the question has now.
fn deny(id: &str, format: ApprovalsFormat, options: &GatewayArgs, output: &mut Console) -> OperationResult {
    let gateway = GatewayClient::new(options, output)?;
    let question = match gateway.get(&question_path(id)) {
        Ok(question) => question,
        // The outer `Result` is for errors of the input; the caller prints an error of the gateway.
        Err(error) => return Ok(Err(error)),
    };
    let digest = question_text::text(&question, "digest").to_owned();
    Ok(send(&gateway, id, &digest, &PersonDecision::Deny.into(), format, output))
}

/// Sends a decision on the question `id` with this `digest`, and prints what became of the question, or whose approval
/// it still waits for; with JSON, prints the question as it is then. Returns 0, the exit code.
fn send(
    gateway: &GatewayClient,
    id: &str,
    digest: &str,
    decision: &TypedDecision,
    format: ApprovalsFormat,
    output: &mut Console,
) -> Result<u8, GatewayError> {
    let question = decide(gateway, id, digest, decision)?;
    match format {
        ApprovalsFormat::Json => print_json(&question, output),
        ApprovalsFormat::Text => {
            // After an approval that is not the last one, the question is still open.
            let became = match question_text::approvals(&question) {
                Some(approvals) => format!("your approval is noted: {approvals}"),
                None => question_text::outcome(&question),
            };
            let call = question.get("call").unwrap_or(&Value::Null);
            output.line(&format!("{}: {became}", escaping::line(question_text::text(call, "tool"))));
        }
    }
    Ok(0)
}

/// Prints a question in the requested format.
fn print_question(question: &Value, format: ApprovalsFormat, output: &mut Console) {
    match format {
        ApprovalsFormat::Json => print_json(question, output),
        ApprovalsFormat::Text => question_text::print(question, now(), output),
    }
}

/// Prints a JSON document of the gateway on several lines, with control characters escaped.
fn print_json(value: &Value, output: &mut Console) {
    output.line(&escaping::json(value));
}

/// Returns the questions in an answer of the gateway's route `/api/v1/approvals`; none if the answer has another form.
fn questions_of(answer: &Value) -> &[Value] {
    answer.get("questions").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// Returns the time in milliseconds since 1970; 0 if the clock is set before that.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
