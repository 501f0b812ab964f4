//! Reads pairs of a legitimate and a fake news article, and questions about them. The articles are those of
//! *Automatic Detection of Fake News* (Pérez-Rosas et al., 2018); *Permissive Information-Flow Analysis*, section
//! 4.5, uses them for its news data set. [`NewsSet::of_pairs`](crate::propagation::NewsSet::of_pairs) builds such a
//! data set from the pairs and the questions that [`load_news_pairs`] returns. [`load_news_articles`] reads the pairs
//! alone, for a model that writes questions.
//!
//! The folder is `fakeNewsDataset` as its authors publish it, or one that contains it: `legit/NAME.legit.txt` and `fake/NAME.fake.txt` are
//! one pair. Their questions are not public, so the folder also has a file `questions.jsonl`, one object a line:
//!
//! ```json
//! {"pair": "biz01", "question": "What does the tablet cost?", "answer": "It costs 300 dollars.", "facts": [["legit", "fake"]]}
//! ```
//!
//! `facts` has one list for each fact that the answer states: the articles of the pair that state it, `legit`, `fake` or both.

use std::collections::BTreeSet;

use super::files::{CorpusFiles, CorpusFolder, ReadFile};
use super::reading::{CorpusError, LocatedValue, parse_json};

/// The file with the questions.
const QUESTIONS: &str = "questions.jsonl";
/// The folder of the data set. The user gives this folder, or one that contains it.
const DATA_SET: &str = "fakeNewsDataset";
/// The most characters of an article that is read.
const MAX_ARTICLE: usize = 100_000;

/// Articles in pairs, and questions about them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewsPairs {
    /// The pairs, in the order of their names.
    pub pairs: Vec<NewsPair>,
    /// The questions, in the order of the file.
    pub questions: Vec<PairQuestion>,
    /// The files that were read.
    pub files: Vec<ReadFile>,
}

/// Two articles on one topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewsPair {
    /// The name, such as `biz01`.
    pub name: String,
    /// The legitimate article, on one line.
    pub legit: String,
    /// The fake article, on one line.
    pub fake: String,
}

/// A question about a pair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PairQuestion {
    /// The position of the pair.
    pub pair: usize,
    /// The question.
    pub text: String,
    /// The answer.
    pub answer: String,
    /// For each fact of the answer whether the legitimate article states it, and whether the fake one does.
    pub facts: Vec<(bool, bool)>,
}

/// Reads the pairs of articles from a folder, which need not have questions.
///
/// # Errors
/// If articles are missing or have another form. The error names the file, and what was expected.
pub fn load_news_articles(folder: &dyn CorpusFolder) -> Result<Vec<NewsPair>, CorpusError> {
    Ok(articles(&mut CorpusFiles::new(folder))?.1)
}

/// Reads the pairs and the questions from a folder.
///
/// # Errors
/// If files are missing or have another form. The error names the file, the line and field in it, and what was expected.
pub fn load_news_pairs(folder: &dyn CorpusFolder) -> Result<NewsPairs, CorpusError> {
    let mut files = CorpusFiles::new(folder);
    let (root, pairs) = articles(&mut files)?;
    let inner = format!("{root}{QUESTIONS}");
    let what = "questions about the pairs: on each line one JSON object with `pair`, `question`, `answer` and `facts`";
    let (place, text) = files.first_of(&[QUESTIONS, &inner], what)?;
    let mut questions = Vec::new();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        questions.push(question(&format!("{place}:{}", index + 1), line, &pairs)?);
    }
    // Some pairs are for tuning and the others are measured, so one pair does not suffice.
    let asked: BTreeSet<usize> = questions.iter().map(|question| question.pair).collect();
    if asked.len() < 2 {
        let problem = "there are questions about fewer than two pairs; write some about another pair, since those of some pairs tune the parameters and those of the others are measured";
        return Err(CorpusError::new(&place, problem.to_owned()));
    }
    Ok(NewsPairs { pairs, questions, files: files.into_read() })
}

/// Reads the pairs of articles, and returns them with the path of the data set in the folder: empty, or a folder's
/// name with a slash. It is an error if there are no legitimate articles, or one of them has no fake one.
fn articles(files: &mut CorpusFiles<'_>) -> Result<(String, Vec<NewsPair>), CorpusError> {
    // The user may name the data set itself, or the folder that contains it.
    let is_above = files.folders("")?.iter().any(|name| name == DATA_SET);
    let root = if is_above { format!("{DATA_SET}/") } else { String::new() };
    let legit_folder = format!("{root}legit");
    let names = files.list(&legit_folder, ".legit.txt")?;
    if names.is_empty() {
        let problem =
            "there are no articles `NAME.legit.txt`; give the folder fakeNewsDataset of the public data set";
        return Err(CorpusError::new(&legit_folder, problem.to_owned()));
    }
    let mut pairs = Vec::new();
    for file in names {
        let name = file.trim_end_matches(".legit.txt").to_owned();
        let legit = article(files, &format!("{legit_folder}/{file}"))?;
        let fake = article(files, &format!("{root}fake/{name}.fake.txt"))?;
        pairs.push(NewsPair { name, legit, fake });
    }
    Ok((root, pairs))
}

/// Reads one article as one line of text.
///
/// # Errors
/// If the file is missing, has no words or is too long.
fn article(files: &mut CorpusFiles<'_>, path: &str) -> Result<String, CorpusError> {
    let (_, text) = files.first_of(&[path], "both articles of each pair")?;
    let words: Vec<&str> = text.split_whitespace().collect();
    let article = words.join(" ");
    let problem = match article.chars().count() {
        0 => "the article has no words; download it again".to_owned(),
        length if length > MAX_ARTICLE => {
            format!("the article has more than {MAX_ARTICLE} characters; download it again")
        }
        _ => return Ok(article),
    };
    Err(CorpusError::new(path, problem))
}

/// Reads the question in `line`, one line of the file. `place` names the file and the line in errors. `pairs` are the
/// pairs of articles that were read; the question names one of them.
fn question(place: &str, line: &str, pairs: &[NewsPair]) -> Result<PairQuestion, CorpusError> {
    let value = match parse_json(place, line) {
        Ok(value) => value,
        Err(_) => {
            let problem =
                "the line is not valid JSON; write one object with pair, question, answer and facts";
            return Err(CorpusError::new(place, problem.to_owned()));
        }
    };
    let item = LocatedValue::root(place, &value);
    let name = item.text_of("pair")?;
    let Some(pair) = pairs.iter().position(|pair| pair.name == name) else {
        let problem = format!(
            "there is no pair of articles `{}`; write the NAME of a file `NAME.legit.txt`",
            name.escape_debug()
        );
        return Err(item.field("pair")?.problem(&problem));
    };
    // A text with at least one word, on one line.
    let words = |field: &str| {
        let words: Vec<&str> = item.text_of(field)?.split_whitespace().collect();
        if words.is_empty() {
            return Err(item.field(field)?.problem("the text has no words; write some"));
        }
        Ok(words.join(" "))
    };
    let facts = item.field("facts")?;
    let items = facts.items()?;
    if items.is_empty() {
        return Err(facts.problem(
            "the list is empty; write for each fact of the answer the list of the articles that state it, such as [[\"legit\"], [\"legit\", \"fake\"]]",
        ));
    }
    let facts = items.iter().map(stating_articles).collect::<Result<_, _>>()?;
    Ok(PairQuestion { pair, text: words("question")?, answer: words("answer")?, facts })
}

/// Reads the list of the articles that state a fact (`holders`). Returns whether the legitimate article states it, and
/// whether the fake one does.
fn stating_articles(holders: &LocatedValue<'_>) -> Result<(bool, bool), CorpusError> {
    let (mut in_legit, mut in_fake) = (false, false);
    for holder in holders.items()? {
        match holder.text()? {
            "legit" => in_legit = true,
            "fake" => in_fake = true,
            other => {
                let problem = format!(
                    "expected `legit` or `fake`, found `{}`; write which article states the fact",
                    other.escape_debug()
                );
                return Err(holder.problem(&problem));
            }
        }
    }
    if !in_legit && !in_fake {
        return Err(holders.problem(
            "the list is empty; write which articles of the pair state this fact: `legit`, `fake` or both",
        ));
    }
    Ok((in_legit, in_fake))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Three pairs with a question on each, below a prefix.
    pub(crate) fn folder(prefix: &str) -> BTreeMap<String, String> {
        let mut files = BTreeMap::new();
        let mut questions = String::new();
        for (name, (price, facts)) in ["biz01", "biz02", "tech01"].iter().zip([
            (300, r#"[["legit", "fake"]]"#),
            (400, r#"[["legit"]]"#),
            (500, r#"[["legit"], ["fake"]]"#),
        ]) {
            let text = |kind: &str| {
                format!("Tablet {name}\n\nThe tablet costs {price} dollars, says the {kind} one.\n")
            };
            files.insert(format!("{prefix}legit/{name}.legit.txt"), text("first"));
            files.insert(format!("{prefix}fake/{name}.fake.txt"), text("second"));
            questions += &format!(
                "{{\"pair\": \"{name}\", \"question\": \"What does the tablet {name} cost?\", \"answer\": \"it costs {price} dollars\", \"facts\": {facts}}}\n\n"
            );
        }
        files.insert(format!("{prefix}questions.jsonl"), questions);
        files
    }

    #[test]
    fn pairs_and_questions_are_read() {
        for prefix in ["", "fakeNewsDataset/"] {
            let found = load_news_pairs(&folder(prefix)).unwrap();
            let names: Vec<&str> = found.pairs.iter().map(|pair| pair.name.as_str()).collect();
            assert_eq!(names, ["biz01", "biz02", "tech01"], "{prefix}");
            assert_eq!(
                found.pairs[0].fake,
                "Tablet biz01 The tablet costs 300 dollars, says the second one."
            );
            let facts: Vec<_> = found.questions.iter().map(|question| question.facts.clone()).collect();
            assert_eq!(facts, [vec![(true, true)], vec![(true, false)], vec![(true, false), (false, true)]]);
            assert_eq!((found.files.len(), found.questions[2].pair), (7, 2));
        }
    }

    #[test]
    fn other_forms_are_errors_with_their_place() {
        let check = |change: &dyn Fn(&mut BTreeMap<String, String>), expected: &str| {
            let mut files = folder("");
            change(&mut files);
            let error = load_news_pairs(&files).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}, expected {expected}");
        };
        check(&|files| files.clear(), "legit: there are no articles `NAME.legit.txt`; give the folder");
        check(
            &|files| drop(files.remove("fake/biz02.fake.txt")),
            "fake/biz02.fake.txt: there is no such file; the folder must have both articles",
        );
        let set = |name: &'static str, text: &'static str| {
            move |files: &mut BTreeMap<String, String>| drop(files.insert(name.to_owned(), text.to_owned()))
        };
        check(&set("legit/biz01.legit.txt", " \n"), "legit/biz01.legit.txt: the article has no words");
        check(
            &|files| drop(files.remove(QUESTIONS)),
            "questions.jsonl: there is no such file; the folder must have questions about the pairs",
        );
        for (line, expected) in [
            ("\n{", "questions.jsonl:2: the line is not valid JSON; write one object"),
            ("[]", "questions.jsonl:1: expected an object, found a list"),
            ("{}", "questions.jsonl:1: the field `pair` is missing; add it"),
            (r#"{"pair": "x"}"#, "questions.jsonl:1: pair: there is no pair of articles `x`; write"),
            (r#"{"pair": "biz01"}"#, "questions.jsonl:1: the field `facts` is missing; add it"),
            (
                r#"{"pair": "biz01", "facts": []}"#,
                "questions.jsonl:1: facts: the list is empty; write for each fact of the answer",
            ),
            (
                r#"{"pair": "biz01", "facts": [[]]}"#,
                "questions.jsonl:1: facts[0]: the list is empty; write which articles of the pair state this fact",
            ),
            (
                r#"{"pair": "biz01", "facts": [["real"]]}"#,
                "questions.jsonl:1: facts[0][0]: expected `legit` or `fake`, found `real`; write which article",
            ),
            (
                r#"{"pair": "biz01", "facts": [["fake"]]}"#,
                "questions.jsonl:1: the field `question` is missing",
            ),
            (
                r#"{"pair": "biz01", "facts": [["fake"]], "question": " "}"#,
                "questions.jsonl:1: question: the text has no words; write some",
            ),
            (
                r#"{"pair": "biz01", "facts": [["fake"]], "question": "a", "answer": 1}"#,
                "questions.jsonl:1: answer: expected a text, found the number 1; correct the file",
            ),
            (
                r#"{"pair": "biz01", "facts": [["fake"]], "question": "a", "answer": "b"}"#,
                "questions.jsonl: there are questions about fewer than two pairs",
            ),
        ] {
            check(&set(QUESTIONS, line), expected);
        }
    }
}
