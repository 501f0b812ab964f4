//! Formats the results of the attack searches of [`adaptive`](crate::games::adaptive): the shares of tasks on which the
//! attacker succeeded, and the log of the best attempts. `flowgate bench games --queries` and `flowgate bench extended
//! --queries` print them.

use serde_json::{Map, Value};

use super::super::adaptive::{AttackSearch, Attempt, search_rates};
use super::super::defence::Defence;
use super::super::text_table::{Table, cell, table, texts};
use super::interval_cell;

/// Returns the tables of attack searches as text: the shares of tasks on which the searches succeeded, a log with
/// the best attempt of each defence and game, and one with the ten best attempts of each defence. `queries` is the
/// maximum number of attempts for each task.
pub fn search_text(searches: &[AttackSearch], queries: usize) -> String {
    texts(&[search_table(searches, queries), best_of_games(searches), best_of_defences(searches)])
}

/// Returns the tables of attack searches for the HTML page: those of [`search_text`], but the log has the best
/// attempt on each task. Without searches, the list is empty. The title of the first table states a limit of
/// attempts; the limit is not known here, so the title has the greatest number of attempts that a search made.
pub(super) fn search_tables(searches: &[AttackSearch]) -> Vec<Table> {
    if searches.is_empty() {
        return Vec::new();
    }
    let queries = searches.iter().map(|search| search.queries).max().unwrap_or(0);
    let best = searches.iter().filter_map(|search| Some((search, search.best.first()?)));
    let rows: Vec<Vec<String>> = best.map(|(search, attempt)| log_row(search, attempt)).collect();
    vec![
        search_table(searches, queries),
        table("best attempt on each task", &LOG, &rows),
        best_of_defences(searches),
    ]
}

/// The number of best attempts that the report has of each defence.
const BEST: usize = 10;

/// Returns the log with the [`BEST`] best attempts of each defence over all of its tasks: those with the highest
/// scores, and among equal scores the earliest.
fn best_of_defences(searches: &[AttackSearch]) -> Table {
    let mut defences: Vec<Defence> = Vec::new();
    for search in searches {
        if !defences.contains(&search.defence) {
            defences.push(search.defence);
        }
    }
    let mut rows: Vec<Vec<String>> = Vec::new();
    for defence in defences {
        let mut best: Vec<(&AttackSearch, &Attempt)> = Vec::new();
        for search in searches.iter().filter(|search| search.defence == defence) {
            best.extend(search.best.iter().map(|attempt| (search, attempt)));
        }
        best.sort_by_key(|(_, attempt)| (std::cmp::Reverse(attempt.score), attempt.query));
        rows.extend(best.into_iter().take(BEST).map(|(search, attempt)| log_row(search, attempt)));
    }
    table("ten best attempts of each defence", &LOG, &rows)
}

/// The columns of the log.
const LOG: [&str; 7] = ["defence", "game", "task", "query", "score", "variant", "attack"];

/// Returns a row of the log for one attempt of a search, in the order of [`LOG`].
fn log_row(search: &AttackSearch, attempt: &Attempt) -> Vec<String> {
    vec![
        search.defence.name(),
        search.game.clone(),
        search.task.clone(),
        attempt.query.to_string(),
        attempt.score.name().to_owned(),
        attempt.variant.name(),
        attempt.attack.clone(),
    ]
}

/// Returns the log with the best attempt of each defence and game: the one with the highest score, and among equal
/// scores the earliest.
fn best_of_games(searches: &[AttackSearch]) -> Table {
    let mut best: Vec<(&AttackSearch, &Attempt)> = Vec::new();
    for (search, attempt) in searches.iter().filter_map(|search| Some((search, search.best.first()?))) {
        let is_same = |known: &AttackSearch| (known.defence, &known.game) == (search.defence, &search.game);
        // The least rank is the best: the highest score, and then the earliest attempt.
        let rank = |attempt: &Attempt| (std::cmp::Reverse(attempt.score), attempt.query);
        match best.iter_mut().find(|(known, _)| is_same(known)) {
            Some(known) if rank(attempt) < rank(known.1) => *known = (search, attempt),
            Some(_) => {}
            None => best.push((search, attempt)),
        }
    }
    let rows: Vec<Vec<String>> = best.into_iter().map(|(search, attempt)| log_row(search, attempt)).collect();
    table("best attempt in each game", &LOG, &rows)
}

/// Returns the best attempts of all searches as rows for CSV: those that each search has kept, at most five. In a row,
/// `query` is the number of the attempt, and `queries` the number of attempts of its search.
pub fn attempt_rows(searches: &[AttackSearch], model: &str) -> Vec<Map<String, Value>> {
    let rows = searches.iter().flat_map(|search| {
        search.best.iter().map(|attempt| {
            let mut row = Map::new();
            let texts = LOG.iter().zip(log_row(search, attempt));
            row.insert("model".to_owned(), model.into());
            row.insert("queries".to_owned(), search.queries.into());
            row.extend(texts.map(|(name, text)| ((*name).to_owned(), Value::from(text))));
            row
        })
    });
    rows.collect()
}

/// Returns a table of attack searches with a row for each game and defence. It has three shares of tasks: the search
/// opened the channel, reached a violation, or reached a violation that took effect. Then comes the mean number of
/// queries until the first effect, over the tasks that have one, and the number of questions to a person in all attempts.
/// `queries` is the maximum number of attempts for each task.
fn search_table(searches: &[AttackSearch], queries: usize) -> Table {
    let key = |search: &AttackSearch| (search.defence, search.game.clone());
    // The key of each row: its defence, and its game.
    let mut keys = Vec::new();
    for search in searches {
        if !keys.contains(&key(search)) {
            keys.push(key(search));
        }
    }
    let header = [
        "defence",
        "game",
        "tasks",
        "opened",
        "violated",
        "executed",
        "executed (95 %)",
        "queries to effect",
        "questions",
    ];
    let row = |(defence, game): &(Defence, String)| {
        let is_of_row = |search: &&AttackSearch| search.defence == *defence && search.game == *game;
        let found: Vec<AttackSearch> = searches.iter().filter(is_of_row).cloned().collect();
        let [opened, violated, executed] = search_rates(&found);
        // The numbers of the attempts that first took effect.
        let needed: Vec<f64> =
            found.iter().filter_map(|search| search.executed_at).map(|at| at as f64).collect();
        let mean = (!needed.is_empty()).then(|| needed.iter().sum::<f64>() / needed.len() as f64);
        vec![
            defence.name(),
            game.clone(),
            found.len().to_string(),
            cell(opened.value()),
            cell(violated.value()),
            cell(executed.value()),
            interval_cell(executed),
            mean.map_or_else(|| "-".to_owned(), |mean| format!("{mean:.1}")),
            found.iter().map(|search| search.questions).sum::<usize>().to_string(),
        ]
    };
    let title = format!("attack search, at most {queries} queries for each task (beyond the paper)");
    table(&title, &header, &keys.iter().map(row).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::super::super::adaptive::{SearchSettings, search};
    use super::super::super::defence::Defence;
    use super::super::super::double::ModelDouble;
    use super::super::super::runner::Runner;
    use super::super::super::suite::GameSuite;
    use super::super::csv;
    use super::*;

    /// A row has the questions of all attempts of a game.
    #[test]
    fn questions_are_added_up_for_each_game() {
        let suite = GameSuite::generate(4, 2);
        let runner = Runner::new(&ModelDouble::Gullible, None).unwrap();
        let settings = SearchSettings { queries: 1, author: None };
        let none = Defence::None;
        let mut searches = search(&suite, &runner, none, settings, &mut || false).unwrap().unwrap();
        for (number, search) in searches.iter_mut().enumerate() {
            search.questions = number + 1;
        }
        let rows = search_tables(&searches).remove(0).rows;
        let questions: Vec<&str> = rows.iter().map(|row| row[8].as_str()).collect();
        assert_eq!(questions, ["3", "7", "11"]);
    }

    /// The best attempts are in every form of the report.
    #[test]
    fn each_form_has_the_best_attempts() {
        let suite = GameSuite::generate(4, 1);
        let runner = Runner::new(&ModelDouble::Gullible, None).unwrap();
        let settings = SearchSettings { queries: 9, author: None };
        let mut searches = Vec::new();
        for defence in [Defence::None, Defence::parse("labels/never-look").unwrap()] {
            searches.extend(search(&suite, &runner, defence, settings, &mut || false).unwrap().unwrap());
        }
        let text = search_text(&searches, 9);
        let rows = attempt_rows(&searches, "gullible");
        let table = csv(&rows);
        assert_eq!(rows.len(), searches.iter().map(|search| search.best.len()).sum::<usize>());
        let page = search_tables(&searches);
        for search in &searches {
            let best = &search.best[0];
            assert!(text.contains(&best.attack) && table.contains(&search.task), "{text}");
            assert!(page[1].rows.iter().any(|row| row[2] == search.task && row[6] == best.attack));
        }
        // Two defences and three games, each with its own rate and questions.
        assert_eq!((page[0].rows.len(), page[1].rows.len()), (6, 6));
        let of_games: Vec<&str> = page[0].rows.iter().map(|row| row[1].as_str()).collect();
        assert_eq!(of_games[..3], ["instruction", "retrieval", "capability"]);
        for (row, search) in page[0].rows.iter().zip(&searches) {
            assert_eq!((row[2].as_str(), row[8].clone()), ("1", search.questions.to_string()), "{row:?}");
        }
        // Under *none*, the first attempt succeeds on each of three tasks; the other defence is tried until the limit.
        let of = |defence: &str| page[2].rows.iter().filter(|row| row[0] == defence).count();
        assert_eq!((of("none"), of("labels/never-look")), (3, BEST));
        assert!(text.contains("ten best attempts of each defence"));
        assert_eq!(search_tables(&[]), Vec::new());
    }
}
