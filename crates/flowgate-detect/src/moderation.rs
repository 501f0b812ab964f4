//! Classifies harmful language by word lists, in the categories `hate`, `harassment`, `self-harm`, `sexual` and
//! `violence`. The function `moderated` of policies calls [`scores`] and [`find`].
//!
//! This is a weak substitute for a model. It matches English phrases without their context, so it misses a threat in
//! other words and finds a quotation of a threat. The categories have the names that moderation models use.

use std::sync::LazyLock;

use super::Finding;
use super::lexicon::{Classifier, Lexicon};
use super::pattern::{DetectionRule, rule};

static LEXICON: LazyLock<Lexicon> = LazyLock::new(|| Lexicon::new(STRONG, WEAK));

/// Returns the word lists as a [`Classifier`], for a program that can also use another one.
pub fn lexicon() -> &'static Lexicon {
    &LEXICON
}

/// Returns the categories of which a text contains a phrase, each with a score above 0 and at most 1.
///
/// ```
/// let scores = flowgate_detect::moderation::scores("I will kill you");
/// assert_eq!(scores[0].0, "violence");
/// assert!(scores[0].1 > 0.8);
/// ```
pub fn scores(text: &str) -> Vec<(String, f64)> {
    LEXICON.classify(text)
}

/// Returns the phrases in a text that the lists of categories contain, in order. The kind of a finding is the category.
pub fn find(text: &str) -> Vec<Finding> {
    LEXICON.find(text)
}

/// Phrases of which one gives a category the score 0.85.
const STRONG: &[DetectionRule] = &[
    rule("self-harm", r"(?i)\b(?:kill|hang|shoot|drown|hurt|harm|cut|cutting|starve) (?:myself|yourself)\b"),
    rule(
        "self-harm",
        r"(?i)\b(?:i want to|wanna|i wish i (?:could|would)|ready to) die\b|\bend (?:my|your|it all|my own) life\b|\bend it all\b",
    ),
    rule(
        "self-harm",
        r"(?i)\b(?:don't|do not|no longer) want to (?:live|be alive|exist)\b|\bslit (?:my|your) wrists?\b",
    ),
    rule(
        "self-harm",
        r"(?i)\b(?:commit(?:ting)?|attempt(?:ing|ed)?|thinking (?:about|of)|considering|contemplat(?:e|ing)|my) suicide\b|\bsuicidal thoughts\b|\bself[- ]harm(?:ing)?\b",
    ),
    rule(
        "violence",
        r"(?i)\b(?:kill|murder|strangle|stab|shoot|behead|torture|slaughter|beat up|lynch|massacre|execute|assassinate) (?:you|him|her|them|him or her|me|us|everyone|everybody|all of (?:you|them)|people|(?:the|my|your|our|his|their) (?:boss|wife|husband|family|neighbou?rs?|president|teacher|kids?|children|parents?|girlfriend|boyfriend))\b",
    )
    // `Shoot me an email.`
    .check(|m| !(m.text.ends_with(" me") && m.after().starts_with(" a"))),
    rule(
        "violence",
        r"(?i)\b(?:beat|blow|burn) (?:him|her|them|you|it) (?:up|alive|to death)\b|\b(?:throat|throats) (?:was|were|is) (?:slit|cut)\b|\bslit (?:his|her|their) throats?\b",
    ),
    rule(
        "violence",
        r"(?i)\b(?:build|make|making|building|assemble) an? (?:pipe |nail |car |dirty |homemade )?bomb\b|\bmolotov cocktail\b|\bschool shooting\b|\bmass shooting\b",
    ),
    rule(
        "violence",
        r"(?i)\bburn (?:his|her|their|the) (?:house|home|church|mosque|synagogue)s? down\b|\bmassacre (?:at|in) the\b",
    ),
    rule(
        "hate",
        r"(?i)\b(?:immigrants|migrants|refugees|muslims|jews|blacks|gays|christians|women|foreigners|gypsies|mexicans|arabs|asians|transgender people|those people|they) (?:are|r) (?:all )?(?:vermin|subhuman|animals|parasites|cockroaches|inferior|scum|filth|a disease|rats|trash|a plague)\b",
    ),
    rule(
        "hate",
        r"(?i)\b(?:i )?(?:hate|despise|exterminate|gas|deport all|get rid of) (?:all )?(?:the )?(?:immigrants|migrants|refugees|muslims|jews|blacks|black people|gays|foreigners|gypsies|mexicans|arabs|asians|trans people)\b",
    ),
    rule(
        "hate",
        r"(?i)\b(?:white power|heil hitler|white supremacy is|racial purity|master race|subhumans?|untermensch(?:en)?)\b|\bjews (?:control|rule|run) (?:everything|the world|the media)\b",
    ),
    rule("hate", r"(?i)\bgo back to (?:your|where you|their) (?:own )?(?:country|came from)\b"),
    rule(
        "harassment",
        r"(?i)\byou(?:'re| are|r)? (?:an? |such an? |so |all )?(?:\w+ )?(?:idiot|moron|loser|worthless|pathetic|stupid|disgusting|imbecile|scumbag|trash|dumb|bastard|bitch|asshole)s?\b",
    ),
    rule(
        "harassment",
        r"(?i)\b(?:shut up|go to hell|screw you|fuck you|fuck off|piss off|drop dead)\b,?(?: you)? ?(?:\w+)?",
    ),
    rule(
        "harassment",
        r"(?i)\b(?:nobody|no one) (?:likes|loves|wants) you\b|\bthe world (?:would be|is) better (?:off )?without you\b",
    ),
    rule(
        "sexual",
        r"(?i)\b(?:porn|porno|pornography|pornographic|hentai|xxx videos?|blow ?jobs?|hand ?jobs?|cum ?shots?|gang ?bang|deepthroat|orgasms?|masturbat(?:e|es|ing|ion)|erotica|nsfw)\b",
    ),
    rule(
        "sexual",
        r"(?i)\b(?:send (?:me )?nudes|nude (?:photos?|pics?|pictures?)|explicit sex(?:ual)?|sex scenes?|had sex|have sex|having sex|erotic (?:story|stories|novel|fiction|roleplay))\b",
    ),
];

/// Words of which one gives a category the score 0.35, and two exceed the usual threshold of 0.5.
const WEAK: &[DetectionRule] = &[
    rule(
        "violence",
        r"(?i)\b(?:murder(?:ed|er|s)?|stabb(?:ed|ing)|gunned down|bloodbath|massacre|terrorist attack|hostages?|tortured?|corpses?|explosives?|grenades?|assault rifle)\b",
    ),
    rule("self-harm", r"(?i)\b(?:suicid(?:e|al)|hopeless|worthless|overdose|anorexi[ac]|cutting)\b"),
    rule("hate", r"(?i)\b(?:racists?|vermin|infidels?|nazis?|fascists?|bigots?|ethnic cleansing|genocide)\b"),
    rule(
        "harassment",
        r"(?i)\b(?:idiots?|morons?|losers?|stupid|pathetic|bastards?|bitch(?:es)?|asshole|shit|crap|damn|fuck(?:ing)?)\b",
    ),
    rule(
        "sexual",
        r"(?i)\b(?:naked|nudes?|erotic|sexy|seductive|aroused|lingerie|fetish|escorts?|stripper)\b",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_have_their_categories() {
        let check = |text: &str, expected: &[&str]| {
            let found = scores(text);
            let found: Vec<_> = found.iter().filter(|(_, s)| *s > 0.5).map(|(c, _)| c.as_str()).collect();
            assert_eq!(found, expected, "{text}");
        };
        check("I hate this shit and i want to kill them", &["violence"]);
        check("I want to kill myself", &["self-harm"]);
        check("You are a pathetic moron", &["harassment"]);
        check("shoot me an email", &[]);
        check("kill the process with signal 9", &[]);
        check("What a wonderful day today", &[]);
    }

    #[test]
    fn every_pattern_compiles() {
        assert!(LEXICON.uncompiled_kinds().is_empty(), "{:?}", LEXICON.uncompiled_kinds());
    }
}
