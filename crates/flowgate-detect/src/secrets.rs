//! Finds secrets, for the function `secrets` of policies and `<SECRET>` in tool patterns: keys and tokens in the
//! formats of their issuers, values assigned to a telling name, and random text.
//!
//! There are four layers; where two find the same text, the earlier one takes precedence:
//!
//! 1. The unique formats of issuers, such as `GITHUB_TOKEN`: reliable.
//! 2. Rules that other projects publish, in the submodule `published`, if the program was built with them.
//! 3. `SECRET_KEYWORD`: a value assigned to a name such as `password`, unless it is a placeholder or an expression.
//! 4. `HIGH_ENTROPY`: a quoted run of base64 or hexadecimal digits that looks random. Digests are found too.
//!
//! The detector does not find a secret in prose ("the password is hunter22"), in several pieces, or in a further
//! encoding. [`personal`](super::personal) finds addresses of hosts, as `IP_ADDRESS`.

mod published;

use std::sync::LazyLock;

use super::Finding;
use super::pattern::{CompiledRules, DetectionRule, DisjointFindings, PatternMatch, entropy, rule};

static ISSUER_RULES: LazyLock<CompiledRules> = LazyLock::new(|| CompiledRules::new(ISSUERS));
static PUBLISHED_RULES: LazyLock<CompiledRules> = LazyLock::new(|| CompiledRules::new(published::RULES));
static GENERIC_RULES: LazyLock<CompiledRules> = LazyLock::new(|| CompiledRules::new(GENERIC));

/// Returns the keys, tokens and passwords in a text, in order and without overlap.
///
/// ```
/// let found: Vec<_> = flowgate_detect::secrets("key AKIAIOSFODNN7EXAMPLE").collect();
/// assert_eq!((found[0].kind, found[0].span.clone()), ("AWS_ACCESS_KEY", 4..24));
/// ```
pub fn secrets(text: &str) -> impl Iterator<Item = Finding> + '_ {
    find(text, &[&ISSUER_RULES, &PUBLISHED_RULES, &GENERIC_RULES]).into_iter()
}

/// Searches a text for the rules of several tables, and returns the findings in order. Where two overlap, the finding
/// of the earlier table takes precedence.
fn find(text: &str, tables: &[&CompiledRules]) -> Vec<Finding> {
    let mut findings = DisjointFindings::default();
    for rules in tables {
        rules.find_into(text, &mut findings);
    }
    findings.into_vec()
}

/// Builds a pattern for `name = value` with a quoted or bare value, given the pattern of the name.
macro_rules! assigned {
    ($name:literal, $value:literal) => {
        concat!(r"(?i)", $name, r#"\\?["']?\s{0,4}(?:=>|:=|==?|:)\s{0,4}\\?["']?("#, $value, r")")
    };
}

/// The formats of issuers and protocols. Where matches overlap, earlier rows take precedence.
const ISSUERS: &[DetectionRule] = &[
    rule(
        "PRIVATE_KEY",
        r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----(?:[^-]*-----END (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----)?",
    ),
    rule("PRIVATE_KEY", r"\bPuTTY-User-Key-File-[23]: "),
    rule("PRIVATE_KEY", r"\bAGE-SECRET-KEY-1[0-9A-Z]{58}\b"),
    rule("GITHUB_TOKEN", r"\b(?:ghp|gho|ghu|ghs|ghr)_[A-Za-z0-9_]{36,255}"),
    rule("GITHUB_TOKEN", r"\bgithub_pat_[A-Za-z0-9_]{22,255}"),
    rule("GITLAB_TOKEN", r"\bgl(?:pat|rt|dt|ptt|ft|soat|imt|agent|cbt)-[A-Za-z0-9_-]{20,}"),
    rule("AWS_ACCESS_KEY", r"\b(?:A3T[A-Z0-9]|ABIA|ACCA|AKIA|ASIA)[0-9A-Z]{16}\b"),
    rule(
        "AWS_SECRET_KEY",
        assigned!(
            r"\baws[a-z0-9_ .-]{0,24}(?:key|secret|token|pwd|pass|password)[a-z0-9_-]{0,8}",
            "[0-9a-z/+]{40}"
        ),
    )
    .check(is_complete_token),
    rule("AZURE_STORAGE_KEY", r"\bAccountKey=[A-Za-z0-9+/=]{80,100}"),
    rule("AZURE_SECRET", r"\b[A-Za-z0-9_~.]{3}[0-9]Q~[A-Za-z0-9_~.-]{31,34}").check(is_complete_token),
    rule("SLACK_TOKEN", r"(?i)\bxox[aboprse]-(?:[0-9]+-)+[a-z0-9]+"),
    rule("SLACK_TOKEN", r"\bxapp-[0-9]-[A-Z0-9]+-[0-9]+-[a-f0-9]+"),
    rule(
        "SLACK_TOKEN",
        r"(?i)https://hooks\.slack\.com/(?:services|workflows)/T[a-z0-9_]+/[AB][a-z0-9_]+/[a-z0-9_]+(?:/[a-z0-9_]+)?",
    ),
    rule("ANTHROPIC_API_KEY", r"\bsk-ant-[a-z0-9]+-[A-Za-z0-9_-]{32,}"),
    rule("OPENROUTER_KEY", r"\bsk-or-v1-[0-9a-f]{64}\b"),
    rule("OPENAI_API_KEY", r"\bsk-[A-Za-z0-9_-]{0,100}T3BlbkFJ[A-Za-z0-9_-]{20,}"),
    rule("OPENAI_API_KEY", r"\bsk-(?:proj|svcacct|admin)-[A-Za-z0-9_-]{40,}"),
    // `sk-` also starts ordinary identifiers: `sk-learn-contrib-imbalanced`.
    rule("OPENAI_API_KEY", r"\bsk-[A-Za-z0-9_-]{20,}").check(|m| {
        let key = m.text.trim_start_matches("sk-");
        character_class_count(key) == 3 || character_class_count(key) == 2 && !key.contains(['-', '_'])
    }),
    rule("GROQ_KEY", r"\bgsk_[A-Za-z0-9]{52}\b"),
    rule("REPLICATE_TOKEN", r"\br8_[A-Za-z0-9]{37}\b"),
    rule("GOOGLE_API_KEY", r"\bAIza[0-9A-Za-z_-]{35}").check(is_complete_token),
    rule("GOOGLE_OAUTH_SECRET", r"\bGOCSPX-[0-9A-Za-z_-]{28}").check(is_complete_token),
    rule("GOOGLE_OAUTH_TOKEN", r"\bya29\.[0-9A-Za-z_-]{30,}"),
    rule("HUGGINGFACE_TOKEN", r"\b(?:hf|api_org)_[A-Za-z0-9]{34,}\b"),
    rule("DIGITALOCEAN_TOKEN", r"\bdo[opr]_v1_[a-f0-9]{64}\b"),
    rule("STRIPE_KEY", r"\b[rs]k_(?:live|test)_[0-9A-Za-z]{16,}"),
    rule("STRIPE_KEY", r"\bwhsec_[0-9A-Za-z]{24,}"),
    rule("SENDGRID_KEY", r"\bSG\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}"),
    rule("MAILCHIMP_KEY", r"\b[0-9a-f]{32}-us[0-9]{1,2}\b"),
    rule("MAILGUN_KEY", r"\bkey-[0-9a-f]{32}\b"),
    rule("NPM_TOKEN", r"\bnpm_[A-Za-z0-9]{36}\b"),
    rule("NPM_TOKEN", r"/:_authToken=\s{0,4}([A-Za-z0-9_-]{20,})"),
    rule("PYPI_TOKEN", r"\bpypi-(?:AgEIcHlwaS5vcmc|AgENdGVzdC5weXBpLm9yZw)[A-Za-z0-9_-]{50,}"),
    rule("TWILIO_KEY", r"\b(?:AC|SK)[0-9a-f]{32}\b"),
    rule("TELEGRAM_TOKEN", r"\b[0-9]{8,10}:[A-Za-z0-9_-]{35}").check(is_complete_token),
    rule("DISCORD_TOKEN", r"\b[MNO][A-Za-z0-9_-]{23,25}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,38}")
        .check(is_complete_token),
    rule(
        "DISCORD_TOKEN",
        r"https://(?:[a-z]+\.)?discord(?:app)?\.com/api/webhooks/[0-9]+/[A-Za-z0-9_-]{60,}",
    ),
    rule("SQUARE_TOKEN", r"\bsq0(?:atp|csp|idp)-[0-9A-Za-z_-]{22,43}"),
    rule("SQUARE_TOKEN", r"\bEAAA[0-9A-Za-z_+=-]{60}").check(is_complete_token),
    rule("JSON_WEB_TOKEN", r"\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}"),
    rule("ARTIFACTORY_TOKEN", r"\b(?:AKC[A-Za-z0-9]{61,}|cmVmdGtu[A-Za-z0-9]{56})\b"),
    rule("ARTIFACTORY_TOKEN", r"\bA(?:KC|P[0-9A-Fa-f])[A-Za-z0-9]{10,}\b")
        .after_phrases(&["artifactory", "jfrog"]),
    rule("VAULT_TOKEN", r"\bhv[sbr]\.[A-Za-z0-9_-]{24,}"),
    rule("TERRAFORM_TOKEN", r"\b[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_=-]{60,70}"),
    rule("ATLASSIAN_TOKEN", r"\bATATT3[A-Za-z0-9_=-]{60,}"),
    rule("DATABRICKS_TOKEN", r"\bdapi[a-f0-9]{32}\b"),
    rule("DOPPLER_TOKEN", r"\bdp\.(?:pt|st|ct|sa)\.[A-Za-z0-9._-]{40,}"),
    rule("GRAFANA_TOKEN", r"\bgl(?:sa|c)_[A-Za-z0-9+/=_]{32,}"),
    rule("LINEAR_KEY", r"\blin_api_[A-Za-z0-9]{40}\b"),
    rule("NOTION_TOKEN", r"\b(?:secret_[A-Za-z0-9]{43}|ntn_[A-Za-z0-9]{40,})\b"),
    rule("POSTMAN_KEY", r"\bPMAK-[a-f0-9]{24}-[a-f0-9]{34}\b"),
    rule("SENTRY_TOKEN", r"\bsntr(?:ys|yu)_[A-Za-z0-9+/=_-]{40,}"),
    rule("SHOPIFY_TOKEN", r"\bshp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}\b"),
    rule(
        "IBM_CLOUD_KEY",
        assigned!(r"\b(?:ibm|iam)[a-z0-9_ -]{0,16}(?:key|pwd|pass|password|token)", "[a-z0-9_-]{44}"),
    )
    .check(is_complete_token),
    rule(
        "IBM_COS_KEY",
        assigned!(
            r"\b(?:ibm)?[-_ ]?cos[-_ ]?(?:hmac)?[-_ ]?secret[-_ ]?(?:access)?[-_ ]?(?:key)?",
            "[a-f0-9]{48}"
        ),
    )
    .check(is_complete_token),
    rule(
        "CLOUDANT_KEY",
        assigned!(r"\bcloudant[a-z0-9_ -]{0,16}(?:key|pwd|pass|password|token)", "[0-9a-f]{64}|[a-z]{24}"),
    )
    .check(is_complete_token),
    rule(
        "SOFTLAYER_KEY",
        assigned!(r"\b(?:softlayer|sl)[a-z0-9_ -]{0,16}(?:key|pwd|pass|password|token)", "[a-z0-9]{64}"),
    )
    .check(is_complete_token),
    rule("BASIC_AUTH", r#"://([^:/?#@\s"'<>]{1,100}:[^/?#@\s"'<>]{1,200})@"#).check(|m| is_value(m.text)),
    rule("BASIC_AUTH", r"(?i)\bauthorization: basic ([a-z0-9+/]{8,}={0,2})"),
];

/// Signs of a secret of any issuer: the name of the value, or its entropy. Earlier rows take precedence.
const GENERIC: &[DetectionRule] = &[
    rule("SECRET_KEYWORD", concat!(
        r"(?i)(?:password|passwd|passphrase|pwd|secret|secret_?key|api_?key|auth_?key|(?:auth|access|refresh|bearer|api)_?token",
        r"|client_?secret|private_?key|credentials?)",
        r#"\\?["']?\s{0,4}(?:=>|:=|==?|:)\s{0,4}\\?["']([^"'\\\s]{4,200})\\?["']"#,
    ))
    .check(|m| is_value(m.text)),
    rule("SECRET_KEYWORD", concat!(
        r"(?i)(?:password|passwd|passphrase|pwd|secret|secret_?key|api[_-]?key|(?:auth|access|refresh|api)[_-]?token|client_?secret)",
        r"\s{0,4}[=:]\s{0,4}([a-z0-9!@#$%^&*+/=_~-]{6,200})",
    ))
    .check(is_bare_value),
    rule("HIGH_ENTROPY", r#"["'`]([A-Za-z0-9+/_-]{20,512}={0,2})["'`]"#).check(|m| is_random(m.text)),
];

/// Returns whether the token ends where the match ends: no character follows that would continue it.
fn is_complete_token(m: PatternMatch<'_>) -> bool {
    !m.after().starts_with(|c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '+' | '/'))
}

/// Returns how many of the classes upper case, lower case and digits occur in a text.
fn character_class_count(text: &str) -> usize {
    let classes: [fn(&char) -> bool; 3] =
        [char::is_ascii_uppercase, char::is_ascii_lowercase, char::is_ascii_digit];
    classes.iter().filter(|class| text.chars().any(|c| class(&c))).count()
}

/// Returns whether a quoted value can be a secret: it is not a placeholder such as `your_key`, `${VAR}` or `none`, and
/// has more than one distinct character.
fn is_value(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let placeholder_starts =
        ["<", "${", "{{", "%(", "$(", "[", "your", "xxx", "***", "...", "process.env", "os.environ"];
    let placeholder_words = [
        "none",
        "null",
        "true",
        "false",
        "string",
        "changeme",
        "placeholder",
        "redacted",
        "password",
        "undefined",
    ];
    let is_varied = text.chars().any(|c| !text.starts_with(c));
    is_varied
        && !placeholder_starts.iter().any(|start| lower.starts_with(start))
        && !placeholder_words.contains(&lower.as_str())
        && !lower.contains("your_")
}

/// Returns whether an unquoted value can be a secret: it has letters and digits, is not a placeholder, and does not
/// begin an expression such as `get_key(`.
fn is_bare_value(m: PatternMatch<'_>) -> bool {
    let has = |class: fn(&char) -> bool| m.text.chars().any(|c| class(&c));
    is_value(m.text)
        && has(char::is_ascii_digit)
        && has(char::is_ascii_alphabetic)
        && !m.after().starts_with(['(', '[', '.', '{'])
}

/// Returns whether a text in base 64 or in hexadecimal digits looks random.
///
/// The threshold for hexadecimal is the entropy of random strings less a margin. Short strings of base 64 cannot
/// reach the entropy of long ones, so the threshold grows with the length, up to 4.5 bits.
fn is_random(text: &str) -> bool {
    let body = text.trim_end_matches('=');
    let hex = body.chars().all(|c| c.is_ascii_digit() || matches!(c, 'a'..='f'))
        || body.chars().all(|c| c.is_ascii_digit() || matches!(c, 'A'..='F'));
    // An alphabet in order has as many different characters as a key, but is not random.
    if body.contains("0123456789") || body.to_ascii_lowercase().contains("abcdefg") {
        return false;
    }
    let bits = entropy(body);
    if hex {
        // A hexadecimal digit has an entropy of at most four bits. A random value has both digits and letters.
        return body.len() >= 32 && bits > 3.0 && character_class_count(body) == 2;
    }
    let is_uuid = body.split('-').map(str::len).eq([8, 4, 4, 4, 12]);
    !is_uuid
        && character_class_count(body) == 3
        && bits > ((body.len() as f64).log2() - 0.6).min(4.5)
        && !is_identifier(body)
}

/// Returns whether a text consists of words, as `Win32_Graphics_Dxgi` does. A word is a run of uppercase letters,
/// lowercase letters or digits; a run of lowercase letters may begin with one uppercase letter. The runs of an
/// identifier have at least 3.5 characters on average, whereas the runs of a random text have about two.
fn is_identifier(text: &str) -> bool {
    let (mut characters, mut runs) = (0, 0);
    let mut before = None;
    // The characters of the current run.
    let mut length = 0;
    for c in text.chars() {
        if !c.is_ascii_alphanumeric() {
            before = None;
            continue;
        }
        // Uppercase characters are `(true, false)`, digits `(false, true)`, and lowercase characters `(false, false)`.
        let class = (c.is_ascii_uppercase(), c.is_ascii_digit());
        let is_capitalised = length == 1 && before == Some((true, false)) && class == (false, false);
        if before == Some(class) || is_capitalised {
            length += 1;
        } else {
            runs += 1;
            length = 1;
        }
        characters += 1;
        before = Some(class);
    }
    // `characters / runs >= 3.5`, in integers.
    2 * characters >= 7 * runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_found() {
        let check = |text: &str, expected: &[&str]| {
            // Published rules are left out, since they find further kinds.
            let found = find(text, &[&ISSUER_RULES, &GENERIC_RULES]);
            let found: Vec<_> = found.iter().map(|finding| finding.kind).collect();
            assert_eq!(found, expected, "{text}");
        };
        let run = |n: usize| "aB3dE6gH9".chars().cycle().take(n).collect::<String>();
        check("AKIAIOSFODNN7EXAMPLE", &["AWS_ACCESS_KEY"]);
        check("AKSAIOSFODNN7EXAMPLE", &[]);
        check("sk-AbCdEfGhIjKlMnOpQrStUvWx", &["OPENAI_API_KEY"]);
        check("sk-learn-contrib-imbalanced-2", &[]);
        check(&format!("ghp_{}", run(36)), &["GITHUB_TOKEN"]);
        check(&format!("ghp_{}", run(33)), &[]);
        check(&format!("AccountKey={}==", run(86)), &["AZURE_STORAGE_KEY"]);
        check(&format!("AxccountKey={}==", run(86)), &[]);
        check("xoxb-123456789012-1234567890123-1234567890123-1234567890123", &["SLACK_TOKEN"]);
        check("abde-123456789012-1234567890123-1234567890123-1234567890123", &[]);
        check("-----BEGIN RSA PRIVATE KEY-----", &["PRIVATE_KEY"]);
        check("postgres://app:hunter2@db/x", &["BASIC_AUTH"]);
        check("password = 'hunter2'", &["SECRET_KEYWORD"]);
        check("password = '${DB_PASSWORD}'", &[]);
        check("password = get_password(1)", &[]);
        check("digest '3f2a9c0d1e4b5a69788796a5b4c3d2e1'", &["HIGH_ENTROPY"]);
        check("DIGITS = '0123456789ABCDEFabcdef'", &[]);
        check("cfg(feature = \"Win32_Graphics_Dxgi_Common\")", &[]);
        check("'HttpServerTest42IsRunningNow'", &[]);
        check("'kJ8dP2xQvT5mWz7RbN4yLc9H'", &["HIGH_ENTROPY"]);
        check("'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'", &[]);
    }

    #[test]
    fn a_private_key_is_covered_to_its_end() {
        let text = "x\n-----BEGIN EC PRIVATE KEY-----\nMHcCAQ\n-----END EC PRIVATE KEY-----\ny";
        let spans: Vec<_> = secrets(text).map(|finding| finding.span).collect();
        assert_eq!(spans.as_slice(), std::slice::from_ref(&(2..text.len() - 2)));
    }

    #[test]
    fn every_pattern_compiles() {
        for rules in [&ISSUER_RULES, &PUBLISHED_RULES, &GENERIC_RULES] {
            assert_eq!(rules.uncompiled_kinds(), [""; 0]);
        }
    }
}
