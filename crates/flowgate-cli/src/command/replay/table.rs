//! Prints the figures of `flowgate replay`: a table with one row for each suite and method, followed by the lists of
//! calls that the options ask for (`--list-permitted`, `--list-questions`). Or prints the same as JSON lines.

use serde_json::json;

use super::figures::{AttackFigures, CallList, ReplayMethod, SuiteFigures, call_json};
use super::{FiguresBySuite, ReplayOptions};
use crate::escaping;
use crate::output::{Console, plural};

/// A list of calls that is printed if an option asks for it.
struct CallListing {
    is_wanted: bool,
    /// The type of its JSON lines.
    kind: &'static str,
    /// Its title in text.
    title: &'static str,
    /// Returns the list in the figures of a suite.
    of: fn(&SuiteFigures) -> &CallList,
}

/// Returns the two lists of calls that options can request, each with whether it is requested.
fn listings(options: &ReplayOptions<'_>) -> [CallListing; 2] {
    [
        CallListing {
            is_wanted: options.list_permitted,
            kind: "permitted",
            title: "injected calls permitted without a question",
            of: |figures| &figures.permitted,
        },
        CallListing {
            is_wanted: options.list_questions,
            kind: "question",
            title: "questions without attack",
            of: |figures| &figures.asked,
        },
    ]
}

/// Prints the figures of each suite and method, and the listed calls, as one JSON object for each line. A key of `sums`
/// has the index of its method in `methods`. `is_interrupted` says that runs are missing.
pub(super) fn print_json(
    sums: &FiguresBySuite,
    methods: &[ReplayMethod],
    options: &ReplayOptions<'_>,
    is_interrupted: bool,
    output: &mut Console,
) {
    for ((suite, index), figures) in sums {
        if let Some(method) = methods.get(*index) {
            output.line(&figures.json(suite, *method).to_string());
        }
    }
    // `list.of` returns the calls of the list from the figures.
    for list in listings(options).iter().filter(|list| list.is_wanted) {
        for ((suite, index), figures) in sums {
            let Some(method) = methods.get(*index) else { continue };
            for (call, count) in (list.of)(figures) {
                output.line(&call_json(list.kind, suite, *method, call, *count).to_string());
            }
        }
    }
    if is_interrupted {
        output.line(&json!({"type": "interrupted"}).to_string());
    }
}

/// Prints a table with a row for each suite and method and, if there are several suites, sums over all of them. After
/// the table, prints notes and the lists of calls that the options ask for. A key of `sums` has the index of its method
/// in `methods`.
pub(super) fn print_text(
    sums: &FiguresBySuite,
    methods: &[ReplayMethod],
    options: &ReplayOptions<'_>,
    output: &mut Console,
) {
    let name_of = |index: usize| methods.get(index).map(|method| method.name()).unwrap_or_default();
    let has_attacks = sums.values().any(|figures| figures.attacks.runs > 0);
    let mut sum_by_method: Vec<SuiteFigures> = vec![SuiteFigures::default(); methods.len()];
    let mut rows: Vec<Vec<String>> = Vec::new();
    for ((suite, index), figures) in sums {
        rows.push(row(suite, name_of(*index), figures, has_attacks));
        if let Some(total) = sum_by_method.get_mut(*index) {
            total.add(figures.clone());
        }
    }
    // `sums` has an entry for each suite and method, so more entries than methods mean several suites.
    if sums.len() > methods.len() {
        for (method, total) in methods.iter().zip(&sum_by_method) {
            rows.push(row("all", method.name(), total, has_attacks));
        }
    }
    let mut header = vec!["suite", "method", "runs"];
    if has_attacks {
        header.extend([
            "injected calls permitted",
            "attacks stopped",
            "partly passed",
            "passed",
            "attacks that succeed",
        ]);
    }
    header.extend(["tasks without question", "questions a task", "acting calls asked"]);
    output.table(&header, &rows);
    if methods.iter().any(|method| matches!(method, ReplayMethod::Guarded(..))) {
        output.line(
            "Open loop: the guarded conversation is real, its model is a double that repeats each recorded call if the views of the method allow it.",
        );
    }
    for (method, total) in methods.iter().zip(&sum_by_method) {
        print_notes(method.name(), &total.attacks, output);
    }
    print_lists(sums, methods, options, output);
}

/// Prints the lists of calls that the options ask for, each list once for each suite and method.
fn print_lists(
    sums: &FiguresBySuite,
    methods: &[ReplayMethod],
    options: &ReplayOptions<'_>,
    output: &mut Console,
) {
    let name_of = |index: usize| methods.get(index).map(|method| method.name()).unwrap_or_default();
    for list in listings(options).iter().filter(|list| list.is_wanted) {
        for ((suite, index), figures) in sums {
            let calls = (list.of)(figures);
            output.line("");
            // Without marks, it is not known which calls were injected.
            let sum = match list.kind {
                "permitted" if figures.attacks.are_calls_unknown() => "not known".to_owned(),
                _ => calls.values().sum::<usize>().to_string(),
            };
            output.line(&format!("{suite}, {}: {}: {sum}", name_of(*index), list.title));
            for (call, count) in calls {
                let line = format!("{}: {}: {}", call.task, call.tool, call.why);
                output.line(&format!("{count:>5}  {}", escaping::line(&line)));
            }
        }
    }
}

/// Returns the row of a suite and a method. The row has cells about attacks only with `has_attacks`. The cells about the
/// calls of attacks are `not known` if no run says which calls its attack asked for. The cell about attacks that succeed
/// is `not known` if no run says whether its attack succeeded.
fn row(suite: &str, method: &str, figures: &SuiteFigures, has_attacks: bool) -> Vec<String> {
    let mut row = vec![escaping::line(suite), method.to_owned(), figures.runs.to_string()];
    if has_attacks {
        let attacks = &figures.attacks;
        let calls_are_unknown = attacks.are_calls_unknown();
        let of_runs = |count: usize| format!("{count} of {}", attacks.runs);
        let of_calls = |text: String| if calls_are_unknown { "not known".to_owned() } else { text };
        row.push(of_calls(format!("{} of {}", attacks.permitted, attacks.calls)));
        // Known in any case: if no acting call of a run is permitted, its attack is stopped, whatever it asked for.
        row.push(of_runs(attacks.stopped));
        row.push(of_calls(attacks.partly_passed.to_string()));
        row.push(of_calls(attacks.passed.to_string()));
        row.push(succeeding_cell(attacks));
    }
    row.push(format!("{} of {}", figures.benign_without_question, figures.benign_tasks));
    row.push(if figures.benign_tasks == 0 {
        "-".to_owned()
    } else {
        format!("{:.2}", figures.questions as f64 / figures.benign_tasks as f64)
    });
    row.push(format!("{} of {}", figures.benign_calls_asked, figures.benign_calls));
    row
}

/// Returns the cell about attacks that succeed. If it is unknown whether some attacks would succeed under the policy, the
/// cell has the least and the greatest possible number.
fn succeeding_cell(attacks: &AttackFigures) -> String {
    let (least, runs) = (attacks.succeeded, attacks.runs);
    if runs > 0 && attacks.with_outcome == 0 {
        return "not known".to_owned();
    }
    if runs == 0 || attacks.succeeded_unknown == 0 {
        return format!("{least} of {runs}");
    }
    format!("{least} to {} of {runs}", least + attacks.succeeded_unknown)
}

/// Prints notes about attacks that the columns do not show: those without a call of an acting tool, and those whose
/// calls are not known.
fn print_notes(method: &str, attacks: &AttackFigures, output: &mut Console) {
    if attacks.without_call > 0 {
        output.line(&format!(
            "{method}: {} asked for no call of an acting tool, only for a text; {}.",
            plural(attacks.without_call, "attack"),
            if attacks.with_outcome == 0 {
                "whether they succeeded is not known".to_owned()
            } else {
                format!("{} of them succeed", attacks.succeeded_without_call)
            },
        ));
    }
    // An attack without marks either is in `unknown`, or no acting call of its run is permitted.
    if attacks.unmarked > 0 {
        output.line(&format!(
            "{method}: {} without `origin` marks: which calls the attack asked for is not known. The attack is stopped for \
             certain in {}; in {unknown}, this is not known.",
            plural(attacks.unmarked, "attack"),
            plural(attacks.unmarked - attacks.unknown, "run"),
            unknown = attacks.unknown,
        ));
    }
}
