//! Runs `flowgate doctor`: examines a configuration of the gateway, a policy, or the MCP servers and hooks of an MCP
//! client. Prints what is wrong, and a statement of the policy or a command that corrects it.
//!
//! * `sample` reports which parts of a sample request a policy hides.
//! * `permissions` finds files that other users can read or write.
//! * `gateway` examines a configuration of the gateway, and `online` asks the servers of models whether they answer.
//! * `servers` examines the MCP servers of an MCP client, and `hooks` its hooks; `guard_policy` reads the policy that a
//!   server or a hook names.

#[cfg(feature = "gateway")]
mod gateway;
mod guard_policy;
mod hooks;
#[cfg(feature = "gateway")]
mod online;
mod permissions;
mod sample;
mod servers;

use std::path::Path;
use std::sync::Arc;

use flowgate::policy::Policy;

use crate::args::DoctorOptions;
use crate::escaping;
use crate::input::InputError;
use crate::output::{Console, plural};
use crate::policy_file::load_policy;
use sample::SampleRequest;

/// The result of one examination, as one entry of the output.
#[derive(Debug, Clone, PartialEq, Eq)]
struct DoctorFinding {
    state: FindingState,
    /// What was examined, and what to do about it if it is wrong. Statements to write are on lines of their own.
    text: String,
}

/// The judgement on what was examined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FindingState {
    /// Nothing needs to change; printed with ✓.
    Right,
    /// Worth knowing, but possibly intended, so it does not change the exit code; printed with ·.
    Note,
    /// It should be changed; printed with ✗, and the exit code is 1.
    Wrong,
}

/// The findings so far, in the order in which they are printed.
#[derive(Debug, Default)]
struct Findings(Vec<DoctorFinding>);

impl Findings {
    /// Adds a finding that nothing needs to change, marked with ✓ in the output.
    fn right(&mut self, text: impl Into<String>) {
        self.0.push(DoctorFinding { state: FindingState::Right, text: text.into() });
    }

    /// Adds a finding that the user should know and that may be intended. It is marked with · and does not change the
    /// exit code.
    fn note(&mut self, text: impl Into<String>) {
        self.0.push(DoctorFinding { state: FindingState::Note, text: text.into() });
    }

    /// Adds a finding that the user should correct. It is marked with ✗, and the exit code becomes 1.
    fn wrong(&mut self, text: impl Into<String>) {
        self.0.push(DoctorFinding { state: FindingState::Wrong, text: text.into() });
    }
}

/// Runs `flowgate doctor`: examines the policy, the configuration or the servers that the options name, and prints each
/// finding. Returns 1 if something is wrong, otherwise 0.
pub(crate) fn run(options: &DoctorOptions, output: &mut Console) -> Result<u8, InputError> {
    let mut findings = Findings::default();
    let request = options.request.as_deref().map(SampleRequest::read).transpose()?;
    if let Some(path) = &options.subject.policy {
        examine_policy(path, request.as_ref(), &mut findings, output)?;
    }
    #[cfg(feature = "gateway")]
    if let Some(path) = &options.subject.config {
        gateway::examine(path, request.as_ref(), options.online, &mut findings)?;
    }
    let client = options.subject.client.as_deref();
    if client.is_some() || options.subject.file.is_some() {
        let (file, home) = (options.subject.file.as_deref(), options.home.as_deref());
        let project = options.project.as_deref().unwrap_or(Path::new("."));
        servers::examine(client, file, (home, project), &mut findings)?;
    }
    for finding in &findings.0 {
        let mark = match finding.state {
            FindingState::Right => output.paint("32", "✓"),
            FindingState::Note => output.paint("36", "·"),
            FindingState::Wrong => output.paint("31", "✗"),
        };
        let mut lines = finding.text.lines().map(escaping::line);
        output.line(&format!("{mark} {}", lines.next().unwrap_or_default()));
        lines.for_each(|line| output.line(&format!("      {line}")));
    }
    let wrong = findings.0.iter().filter(|finding| finding.state == FindingState::Wrong).count();
    output.line(&match wrong {
        0 => "nothing is wrong".to_owned(),
        count => format!("{} to look at", plural(count, "thing")),
    });
    Ok(u8::from(wrong > 0))
}

/// Examines the policy at `path`: whether it compiles, what [`report_policy`] reports, and, with a sample `request`,
/// which parts of the request it hides from the steps at the base label.
fn examine_policy(
    path: &Path,
    request: Option<&SampleRequest>,
    findings: &mut Findings,
    output: &mut Console,
) -> Result<(), InputError> {
    let policy = Arc::new(load_policy(path, output)?);
    let name = path.display().to_string();
    report_policy(&policy, &name, path, findings);
    if let Some(request) = request {
        request.examine(&policy, &name, findings);
    }
    Ok(())
}

/// Reports what can be found out about a policy without a sample request: its warnings, whether it has no labels but
/// only rules, whether it has a `default`, and whether other users can write its file at `path`. `name` is the file in
/// messages.
fn report_policy(policy: &Policy, name: &str, path: &Path, findings: &mut Findings) {
    match policy.warnings().len() {
        0 if policy.is_rules_only() => findings.wrong(format!(
            "{name} declares no lattice: only its rules are enforced; `flowgate init` drafts a policy with labels"
        )),
        0 => findings.right(format!("the policy {name} can be used")),
        count => findings.wrong(format!("{name} has {}: `flowgate check {name}` shows them", plural(count, "warning"))),
    }
    if policy.has_default_label() {
        findings.wrong(format!(
            "{name} has a `default`, so text that no statement labels is not labelled top, and may be shown and sent; remove the `default` if you can"
        ));
    }
    if let Some(problem) = permissions::writable_by_others(path) {
        findings.wrong(problem);
    }
}
