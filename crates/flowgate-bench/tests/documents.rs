//! Holds the tables of figures in the documents against the recorded runs in the folder `results`.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::path::Path;

use flowgate_bench::games::Defence;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// Returns the text of a file, by its path in the repository.
fn read(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)).unwrap()
}

/// Returns the lines of a type of a recorded run.
fn lines(name: &str, kind: &str) -> Vec<Value> {
    let text = read(&format!("results/{name}"));
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|line| line["type"] == kind).collect()
}

/// Returns the lines of the type `figures` of a recorded run, over all tasks.
fn figures(name: &str) -> Vec<Value> {
    let mut all = lines(name, "figures");
    all.retain(|line| line["tasks"] == "all");
    all
}

/// Returns a rate of a line as a document writes it, such as `3/37`.
fn counted(line: &Value, name: &str) -> String {
    format!("{}/{}", line[format!("{name}_count")], line[format!("{name}_of")])
}

/// Returns the number of pairs that a rate of a line of the games is about.
fn pairs(line: &Value, name: &str) -> u64 {
    let (rate, pairs) = (line[name].as_f64().unwrap(), line["pairs"].as_f64().unwrap());
    // A rate is rounded in the file, and the product is a small whole number.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of pairs")]
    let pairs = (rate * pairs).round() as u64;
    pairs
}

/// Checks that a document has a row.
fn check(text: &str, row: &str) {
    assert!(text.lines().any(|line| line == row), "no row {row}");
}

/// The table of methods on tasks with injected instructions.
#[test]
fn the_readme_has_the_recorded_figures_of_agents() {
    let readme = read("README.md");
    let all = figures("agents.jsonl");
    for (name, defence) in [
        ("unguarded", "unguarded"),
        ("AgentDojo's tool filter, no policy", "tool-filter"),
        ("confirm-acting", "confirm-acting"),
        ("everything (naive tainting)", "everything"),
        ("judge (RTBAS)", "judge"),
        ("provenance", "provenance"),
        ("**lowest first**", "lowest-first"),
    ] {
        let line = all.iter().find(|line| line["defence"] == defence).unwrap();
        let uses = ["needs_nothing_hidden", "passes_it_on", "reads_it_to_the_user", "decides_by_it"];
        let unasked =
            uses.map(|name| format!("{}/{}", line[format!("{name}_unasked")], line[format!("{name}_of")]));
        let calls = line["relative_model_calls"].as_f64().unwrap();
        let [harmed, questions] =
            ["harmed_count", "questions_under_attack"].map(|name| line[name].to_string());
        check(&readme, &format!("| {name} | {harmed} | {questions} | {} | {calls:.2} |", unasked.join(", ")));
    }
}

/// The table of the cost relative to the unguarded agent.
#[test]
fn the_readme_has_the_recorded_costs_of_agents() {
    let readme = read("README.md");
    let all = figures("agents.jsonl");
    for (name, defence) in [("judge", "judge"), ("lowest first", "lowest-first")] {
        let line = all.iter().find(|line| line["defence"] == defence).unwrap();
        let [tokens, price] = ["relative_tokens", "relative_price"].map(|name| line[name].as_f64().unwrap());
        check(&readme, &format!("| {name} | {tokens:.2} | {price:.2} | not measurable with a test double |"));
    }
}

/// The commit at which a file of the folder `results` was recorded, as its `README.md` says.
fn recorded_at(name: &str) -> String {
    let text = read("results/README.md");
    let (_, line) = text.split_once("Recorded with seed 1 at commit ").unwrap();
    let line = line.lines().next().unwrap();
    // The first commit is that of the files that the line does not name.
    let of_others = line.split(',').next().unwrap().to_owned();
    let Some((_, rest)) = line.split_once(&format!("`{name}`")) else { return of_others };
    let (_, commit) = rest.split_once(" at ").unwrap();
    commit.chars().take_while(char::is_ascii_hexdigit).collect()
}

/// The figures of agents name their file and the commit at which it was recorded.
#[test]
fn the_readme_names_the_run_of_agents() {
    let (readme, commit) = (read("README.md"), recorded_at("agents.jsonl"));
    assert_eq!(commit.len(), 8, "{commit}");
    assert_eq!(recorded_at("games-gullible.jsonl").len(), 8);
    assert_ne!(recorded_at("detectors.jsonl"), commit);
    for stated in [
        format!("Figures of [results/agents.jsonl](results/agents.jsonl), recorded at commit {commit}:"),
        format!("in [the same run](results/agents.jsonl), recorded at commit {commit}."),
    ] {
        assert!(readme.contains(&stated), "{stated}");
    }
}

/// The figures of the screeners are those of the model that ships, whose weights the document names.
#[test]
fn the_figures_of_screeners_are_those_of_the_model_that_ships() {
    let weights = Path::new(env!("CARGO_MANIFEST_DIR")).join("../flowgate-lm/models/small/model.safetensors");
    let digest = Sha256::digest(std::fs::read(weights).unwrap());
    let digits: String = digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    let document = read("docs/bench.md");
    let (_, section) = document.split_once("### Results with the shipped model").unwrap();
    let first = section.lines().find(|line| !line.is_empty()).unwrap();
    assert!(first.contains(&format!("`flowgate-small {digits}`")), "record the figures again: {first}");
    for known in ["40 cases of each set, seed 1", "between the commits 4b95e0f3", "and b8615728"] {
        assert!(first.contains(known), "{first}");
    }
}

/// The table of options names the answers that are not kept.
#[test]
fn the_options_say_which_answers_are_kept() {
    let document = read("docs/bench.md");
    let row = document.lines().find(|line| line.starts_with("| `--answers FILE` |")).unwrap();
    let needs_blocking = Defence::by_attention().iter().all(|defence| defence.needs_blocking());
    assert!(needs_blocking && row.contains("except those with blocked attention (`attention/*`)"), "{row}");
}

/// The table of the privacy suite.
#[test]
fn the_privacy_suite_has_the_recorded_figures() {
    let privacy = read("docs/privacy-suite.md");
    let all = figures("privacy.jsonl");
    assert_eq!(all.len(), 20);
    for line in all {
        let rates = [
            "false_negatives",
            "false_positives",
            "exact_categories",
            "exact_categories_private",
            "utility_refused",
            "utility_allowed",
        ];
        let cells = rates.map(|name| counted(&line, name)).join(" | ");
        check(&privacy, &format!("| `{}` | {cells} |", line["defence"].as_str().unwrap()));
    }
}

/// The closed channels of a defence in the three games, its benign utility, and its violations that took effect, as the tables
/// of the games write them. `all` are the lines of figures of a run.
fn game_cells(all: &[Value], defence: &str) -> [String; 3] {
    let games = ["instruction", "retrieval", "capability"]
        .map(|game| all.iter().find(|line| line["defence"] == defence && line["game"] == game).unwrap());
    let closed = games.map(|line| format!("{}/{}", pairs(line, "closure"), line["pairs"])).join(", ");
    let utility = games.iter().map(|line| line["benign_utility"].as_f64().unwrap()).sum::<f64>() / 3.0;
    let executed: u64 = games.iter().map(|line| pairs(line, "executed_risk")).sum();
    [closed, format!("{utility:.2}"), executed.to_string()]
}

/// The table of the curious double has the label defences. The rows of the other defences are those of the gullible double, and
/// what an immune screener closes is as the document says.
#[test]
fn the_games_have_the_recorded_figures_of_other_doubles() {
    let document = read("docs/bench.md");
    let of = |name: &str| lines(name, "figures");
    let (curious, gullible, immune) =
        (of("games-curious.jsonl"), of("games-gullible.jsonl"), of("games-immune.jsonl"));
    for defence in Defence::standard() {
        let name = defence.name();
        let cells = game_cells(&curious, &name);
        match defence {
            Defence::Labels(_) => check(&document, &format!("| {name} | {} |", cells.join(" | "))),
            _ => assert_eq!(cells, game_cells(&gullible, &name), "{name}"),
        }
    }
    for screener in ["labels/judge", "labels/introspection"] {
        assert_eq!(game_cells(&immune, screener)[0], "0/8, 8/8, 8/8", "{screener}");
    }
    assert!(document.contains("they close that channel in 8 of 8 tasks"));
}

/// The table of the games, with the search for an attack.
#[test]
fn the_games_have_the_recorded_figures() {
    let (document, all, searches) = (
        read("docs/bench.md"),
        lines("games-search.jsonl", "figures"),
        lines("games-search.jsonl", "search"),
    );
    let mut defences: Vec<&str> = all.iter().map(|line| line["defence"].as_str().unwrap()).collect();
    defences.dedup();
    assert_eq!(defences.len(), 13);
    for defence in defences {
        let [closed, utility, executed] = game_cells(&all, defence);
        let reached: Vec<f64> = searches
            .iter()
            .filter(|line| line["defence"] == defence)
            .filter_map(|line| line["executed_at"].as_f64())
            .collect();
        let mean = match reached.as_slice() {
            [] => String::new(),
            reached => format!("{:.1} ", reached.iter().sum::<f64>() / reached.len() as f64),
        };
        let reached = reached.len();
        check(&document, &format!("| {defence} | {closed} | {utility} | {executed} | {reached} | {mean}|"));
    }
}

/// The rows of the table of the extended games, with the games of each: they have the same figures.
const EXTENDED: [(&str, &[&str]); 16] = [
    (
        "instruction: six encodings, `split-fields`",
        &[
            "base64/instruction",
            "leetspeak/instruction",
            "homoglyphs/instruction",
            "zero-width/instruction",
            "split/instruction",
            "translated/instruction",
            "split-fields/instruction",
        ],
    ),
    (
        "retrieval: six encodings, `split-fields`, `mixed-tenants`, `ranking`",
        &[
            "base64/retrieval",
            "leetspeak/retrieval",
            "homoglyphs/retrieval",
            "zero-width/retrieval",
            "split/retrieval",
            "translated/retrieval",
            "split-fields/retrieval",
            "mixed-tenants/retrieval",
            "ranking/retrieval",
        ],
    ),
    (
        "retrieval: `mixed-tenants-base64`, `ranking-mixed-base64`",
        &["mixed-tenants-base64/retrieval", "ranking-mixed-base64/retrieval"],
    ),
    (
        "capability: `base64`, `leetspeak`, `homoglyphs`, `zero-width`, `translated`",
        &[
            "base64/capability",
            "leetspeak/capability",
            "homoglyphs/capability",
            "zero-width/capability",
            "translated/capability",
        ],
    ),
    ("capability: `split`", &["split/capability"]),
    ("capability: `split-fields`", &["split-fields/capability"]),
    ("`plan`, `memory`, `file`, `summary`", &["plan", "memory", "file", "summary"]),
    ("the same in base64", &["plan/base64", "memory/base64", "file/base64", "summary/base64"]),
    ("`session`", &["session"]),
    ("`session` in base64", &["session/base64"]),
    ("`turns`", &["turns"]),
    ("`turns` in base64", &["turns/base64"]),
    ("`flooding`", &["flooding"]),
    ("`flooding` in base64", &["flooding/base64"]),
    ("`flooding-budget`", &["flooding-budget"]),
    ("`flooding-budget` in base64", &["flooding-budget/base64"]),
];

/// The table of the games beyond the paper.
#[test]
fn the_extended_games_have_the_recorded_figures() {
    let (document, all) = (read("docs/bench.md"), lines("extended.jsonl", "figures"));
    let cell = |game: &str, defence: &str| {
        let line = all.iter().find(|line| line["game"] == game && line["defence"] == defence).unwrap();
        let utility = line["benign_utility"].as_f64().unwrap();
        // A whole benign utility is left out.
        let utility = if utility < 1.0 { format!(" ({utility})") } else { String::new() };
        format!("{} / {}{utility}", pairs(line, "closure"), pairs(line, "executed_risk"))
    };
    let mut games: Vec<&str> = all.iter().map(|line| line["game"].as_str().unwrap()).collect();
    games.dedup();
    let mut in_table: Vec<&str> = EXTENDED.iter().flat_map(|(_, games)| games.iter().copied()).collect();
    games.sort_unstable();
    in_table.sort_unstable();
    assert_eq!(games, in_table);
    for (title, games) in EXTENDED {
        let row = |game: &str| {
            assert_eq!(cell(game, "none"), "0 / 8", "{game}");
            let defences = ["combined", "labels/lowest-first", "labels/never-look", "labels/everything"];
            let cells = defences.map(|defence| cell(game, defence)).join(" | ");
            format!("| {title} | {cells} |")
        };
        for game in games {
            check(&document, &row(game));
        }
    }
}
