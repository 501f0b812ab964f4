//! Finds software licences and copyright notices, for the function `copyright` of policies.
//!
//! A licence is recognised by its title or by a phrase that occurs only in it; spaces, line ends and comment marks
//! between the words are ignored. Kinds are `COPYRIGHT` and names such as `GNU_GPL_V2`.

use std::sync::LazyLock;

use super::Finding;
use super::pattern::{CompiledRules, DetectionRule, rule};

static RULES: LazyLock<CompiledRules> = LazyLock::new(|| CompiledRules::new(TABLE));

/// Returns the licences and copyright notices in a text, in order.
///
/// ```
/// let found = flowgate_detect::licence::find("// Copyright (C) Unicorn Inc.");
/// assert_eq!(found[0].kind, "COPYRIGHT");
/// ```
pub fn find(text: &str) -> Vec<Finding> {
    RULES.find(text)
}

/// Builds a pattern of words, separated by anything that a comment may contain between them.
macro_rules! words {
    ($first:literal $(, $next:literal)*) => {
        concat!(r"(?i)\b", $first $(, r"[\s*/#;,(-]{1,80}", $next)*)
    };
}

/// The phrases by which licences and copyright notices are recognised. Where matches overlap, the earlier row takes
/// precedence, so a licence with its version precedes the one without. The rows of the AGPL, LGPL and MPL match any
/// version: their kinds name the usual one.
const TABLE: &[DetectionRule] = &[
    rule("GNU_AGPL_V3", words!("GNU", "AFFERO", "GENERAL", "PUBLIC", r"LICEN[SC]E")),
    rule("GNU_LGPL_V3", words!("GNU", "(?:LESSER|LIBRARY)", "GENERAL", "PUBLIC", r"LICEN[SC]E")),
    rule("GNU_GPL_V3", words!("GNU", "GENERAL", "PUBLIC", r"LICEN[SC]E", r"v(?:ersion)?\.?", "3")),
    rule("GNU_GPL_V2", words!("GNU", "GENERAL", "PUBLIC", r"LICEN[SC]E", r"v(?:ersion)?\.?", "2")),
    rule("GNU_GPL", words!("GNU", "GENERAL", "PUBLIC", r"LICEN[SC]E")),
    rule("MOZILLA_PUBLIC_LICENSE_2.0", words!("Mozilla", "Public", r"Licen[sc]e")),
    rule("APACHE_LICENSE_2.0", words!("Apache", r"Licen[sc]e", r"v(?:ersion)?\.?", r"2\.0")),
    rule("APACHE_LICENSE_2.0", words!("Licensed", "under", "the", "Apache", r"Licen[sc]e")),
    rule("MIT_LICENSE", r"\bMIT [Ll]icen[sc]e\b"),
    rule(
        "MIT_LICENSE",
        words!("Permission", "is", "hereby", "granted", "free", "of", "charge", "to", "any", "person"),
    ),
    rule("BOOST_SOFTWARE_LICENSE", words!("Boost", "Software", r"Licen[sc]e")),
    rule("BSD_LICENSE", words!("Redistribution", "and", "use", "in", "source", "and", "binary", "forms")),
    rule(
        "ISC_LICENSE",
        words!(
            "Permission",
            "to",
            "use",
            "copy",
            "modify",
            "and",
            "(?:/or)?",
            "distribute",
            "this",
            "software"
        ),
    ),
    rule("BUSINESS_SOURCE_LICENSE", words!("Business", "Source", r"Licen[sc]e")),
    rule("CREATIVE_COMMONS", words!("Creative", "Commons", "Attribution")),
    rule("SPDX", r"\bSPDX-License-Identifier:\s{0,4}[A-Za-z0-9.+-]+"),
    rule("COPYRIGHT", r"(?i)\bcopyright\s{0,4}(?:\(c\)|©|&copy;)"),
    rule("COPYRIGHT", r"(?i)(?:\(c\)|©|\bcopyright) (?:19|20)[0-9]{2}\b")
        .check(|m| !m.before().ends_with(char::is_alphanumeric)),
    rule("COPYRIGHT", r"(?i)\ball rights reserved\b"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_found() {
        let check = |text: &str, expected: &[&str]| {
            let found: Vec<_> = find(text).into_iter().map(|finding| finding.kind).collect();
            assert_eq!(found, expected, "{text}");
        };
        check("/**\n * GNU GENERAL PUBLIC LICENSE, Version 3, 29 June 2007\n */", &["GNU_GPL_V3"]);
        check("GNU GENERAL PUBLIC LICENSE\n   Version 2, June 1991", &["GNU_GPL_V2"]);
        check("under the GNU Lesser\n# General Public License", &["GNU_LGPL_V3"]);
        check("Apache License\n Version 2.0, January 2004", &["APACHE_LICENSE_2.0"]);
        check("Permission is hereby granted, free of charge, to any person", &["MIT_LICENSE"]);
        check("/** Copyright (C) Unicorn Inc. */", &["COPYRIGHT"]);
        check("© 2024 Unicorn. All rights reserved.", &["COPYRIGHT", "COPYRIGHT"]);
        check("// SPDX-License-Identifier: BSD-3-Clause", &["SPDX"]);
        check("export const someConst = false;", &[]);
        check("f(c) 2024 is a call, the copyright office is closed", &[]);
        check("my driving license, version 3", &[]);
    }

    #[test]
    fn every_pattern_compiles() {
        assert!(RULES.uncompiled_kinds().is_empty(), "{:?}", RULES.uncompiled_kinds());
    }
}
