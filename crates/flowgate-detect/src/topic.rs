//! Classifies the topics of a text by word lists: `finance`, `health`, `law`, `politics`, `religion`, `weapons`,
//! `drugs`, `gambling`, `employment`, `travel`, `software` and `security`. The function `topics` of policies calls
//! [`find`].
//!
//! The score of a topic grows with the number of matching words. The lists contain English words only, and are less
//! accurate than a model.

use std::sync::LazyLock;

use super::Finding;
use super::lexicon::{Classifier, Lexicon};
use super::pattern::{DetectionRule, rule};

static LEXICON: LazyLock<Lexicon> = LazyLock::new(|| Lexicon::new(STRONG, WEAK));

/// Returns the word lists as a [`Classifier`], for a program that can also use another one.
pub fn lexicon() -> &'static Lexicon {
    &LEXICON
}

/// Returns the topics of which a text contains a word, each with a score above 0 and at most 1.
///
/// ```
/// let scores = flowgate_detect::topic::scores("Which antibiotic helps, and what dose did the doctor prescribe?");
/// assert_eq!(scores[0].0, "health");
/// assert!(scores[0].1 > 0.5);
/// ```
pub fn scores(text: &str) -> Vec<(String, f64)> {
    LEXICON.classify(text)
}

/// Returns the words in a text that the lists of topics contain, in order. The kind of a finding is the topic.
pub fn find(text: &str) -> Vec<Finding> {
    LEXICON.find(text)
}

/// Phrases of which one gives a topic the score 0.85.
const STRONG: &[DetectionRule] = &[
    rule(
        "finance",
        r"(?i)\b(?:stock market|mutual funds?|interest rates?|investment advice|hedge funds?|portfolio allocation|income tax|bank transfer|wire transfer|cryptocurrenc(?:y|ies))\b",
    ),
    rule(
        "health",
        r"(?i)\b(?:medical advice|blood pressure|side effects?|clinical trials?|chemotherapy|antidepressants?|prescription drugs?|differential diagnosis)\b",
    ),
    rule(
        "law",
        r"(?i)\b(?:legal advice|class action|power of attorney|statute of limitations|breach of contract|non-disclosure agreement|intellectual property|child custody)\b",
    ),
    rule(
        "politics",
        r"(?i)\b(?:presidential election|political part(?:y|ies)|prime minister|general election|foreign policy|immigration policy|supreme court ruling|election campaign)\b",
    ),
    rule(
        "religion",
        r"(?i)\b(?:holy (?:bible|quran|spirit)|jesus christ|prophet muhammad|the torah|buddhism|hinduism|christianity|islam|judaism|atheism)\b",
    ),
    rule(
        "weapons",
        r"(?i)\b(?:assault rifles?|hand grenades?|pipe bombs?|3d[- ]printed guns?|ghost guns?|nerve agents?|ammunition|gunpowder)\b",
    ),
    rule(
        "drugs",
        r"(?i)\b(?:cocaine|heroin|methamphetamine|fentanyl|mdma|lsd|ecstasy pills|crack pipe|drug dealers?)\b",
    ),
    rule(
        "gambling",
        r"(?i)\b(?:sports betting|online casinos?|slot machines?|betting odds|poker chips|roulette)\b",
    ),
    rule(
        "employment",
        r"(?i)\b(?:job interviews?|cover letters?|curriculum vitae|salary negotiation|notice period|performance reviews?)\b",
    ),
    rule(
        "travel",
        r"(?i)\b(?:boarding pass(?:es)?|hotel (?:room|booking|reservation)s?|round[- ]trip|travel itinerary|flight tickets?|travel insurance)\b",
    ),
    rule(
        "software",
        r"(?i)\b(?:source code|pull requests?|unit tests?|stack trace|programming languages?|command line|compile errors?|open source)\b",
    ),
    rule(
        "security",
        r"(?i)\b(?:sql injection|buffer overflow|privilege escalation|ransomware|phishing|zero[- ]day|reverse shell|malware|cross-site scripting)\b",
    ),
];

/// Words of which one gives a topic the score 0.35, and two exceed the usual threshold of 0.5.
const WEAK: &[DetectionRule] = &[
    rule(
        "finance",
        r"(?i)\b(?:stocks?|shares?|bonds?|dividends?|invest(?:ing|ment|ments|or|ors)?|loans?|mortgages?|brokers?|tax(?:es)?|bank|revenue|profits?|bitcoin|inflation|currency|etfs?)\b",
    ),
    rule(
        "health",
        r"(?i)\b(?:doctors?|patients?|symptoms?|diagnos(?:is|ed)|medic(?:ine|ation|al)|dos(?:e|age)|surgery|hospital|prescri(?:be|bed|ption)|antibiotics?|vaccines?|therap(?:y|ist)|disease|cancer|diabetes|pain|infection)\b",
    ),
    rule(
        "law",
        r"(?i)\b(?:lawyers?|attorneys?|court|judge|lawsuit|sued?|plaintiff|defendant|contract|liability|statute|legal|clause|testimony|divorce|copyright)\b",
    ),
    rule(
        "politics",
        r"(?i)\b(?:president|senators?|parliament|congress|elections?|vot(?:e|ers?|ing)|democrats?|republicans?|government|politicians?|candidates?|ballot|legislation|minister)\b",
    ),
    rule(
        "religion",
        r"(?i)\b(?:god|church|mosque|synagogue|temple|pray(?:er|ers|ing)?|bible|quran|priest|imam|rabbi|faith|gospel|sermon|worship)\b",
    ),
    rule(
        "weapons",
        r"(?i)\b(?:guns?|rifles?|pistols?|firearms?|bombs?|explosives?|knife|knives|weapons?|bullets?|missiles?|grenades?)\b",
    ),
    rule(
        "drugs",
        r"(?i)\b(?:weed|marijuana|cannabis|overdose|addict(?:ed|ion)?|opioids?|narcotics?|dealers?|snort(?:ed|ing)?|psychedelics?|stoned)\b",
    ),
    rule(
        "gambling",
        r"(?i)\b(?:bets?|betting|casinos?|poker|lotter(?:y|ies)|jackpot|gambl(?:e|er|ing)|wager|blackjack|odds)\b",
    ),
    rule(
        "employment",
        r"(?i)\b(?:jobs?|salary|hir(?:e|ed|ing)|recruiters?|resume|interview|employ(?:er|ee|ees|ment)|promotion|résumé|vacancy|onboarding|payroll)\b",
    ),
    rule(
        "travel",
        r"(?i)\b(?:flights?|hotels?|airport|luggage|passport|visa|itinerary|vacation|tourists?|train|airline|booking|holiday)\b",
    ),
    rule(
        "software",
        r"(?i)\b(?:code|function|compiler|bug|python|rust|javascript|api|database|git|deploy(?:ment)?|server|repository|variable|debug(?:ger)?|algorithm)\b",
    ),
    rule(
        "security",
        r"(?i)\b(?:exploits?|hack(?:er|ers|ing|ed)?|vulnerabilit(?:y|ies)|passwords?|payload|backdoor|firewall|encrypt(?:ed|ion)?|attackers?|botnet|keylogger)\b",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_have_their_topics() {
        let check = |text: &str, expected: &[&str]| {
            let found = scores(text);
            let found: Vec<_> = found.iter().filter(|(_, s)| *s > 0.5).map(|(c, _)| c.as_str()).collect();
            assert_eq!(found, expected, "{text}");
        };
        check("Should I buy shares or bonds with this loan?", &["finance"]);
        check("My lawyer says the contract will hold in court.", &["law"]);
        check("Is this code safe from SQL injection?", &["security"]);
        check("The bank of the river", &[]);
        check("What a wonderful day today", &[]);
    }

    #[test]
    fn every_pattern_compiles() {
        assert!(LEXICON.uncompiled_kinds().is_empty(), "{:?}", LEXICON.uncompiled_kinds());
    }
}
