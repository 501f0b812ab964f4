//! Reads `dropped-fields` and `dropped-tools` of an upstream: fields and tools that its clients may send although the
//! gateway does not understand them. The gateway drops them, so the upstream never receives them. `upstream` calls it.

use flowgate_lm::wire::DecodeOptions;

/// The most entries of each list.
const MAX_ENTRIES: usize = 64;

/// Checks the lists `dropped-fields` and `dropped-tools`: what clients may send, although the upstream never receives
/// it. Returns them in the form that the decoder of requests uses.
///
/// # Errors
/// If a list has more than [`MAX_ENTRIES`] entries, an entry cannot be the path of a field or the type of a tool, or a
/// path ends in `flowgate`.
pub(super) fn dropped_parts(fields: Vec<String>, tools: Vec<String>) -> Result<DecodeOptions, String> {
    if fields.len() > MAX_ENTRIES || tools.len() > MAX_ENTRIES {
        return Err(format!(
            "`dropped-fields` and `dropped-tools` may have at most {MAX_ENTRIES} entries each: remove some"
        ));
    }
    let is_word = |word: &str| {
        !word.is_empty()
            && word.len() <= 64
            && word.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c))
    };
    if let Some(field) = fields.iter().find(|field| !field.split('.').all(is_word)) {
        return Err(format!(
            "`dropped-fields` has `{}`, which is not the path of a field: write names with dots between them, such as \
            `tools.vendor_hint`",
            field.escape_debug()
        ));
    }
    // Clients declare the provenance of message parts in fields named `flowgate`. If such a field were dropped, its
    // part would count as unmarked and might be trusted more.
    if fields.iter().any(|field| field.split('.').next_back() == Some("flowgate")) {
        return Err(
            "`dropped-fields` has a field `flowgate`, which only the gateway reads: remove it".to_owned()
        );
    }
    if let Some(tool) = tools.iter().find(|tool| !is_word(tool)) {
        return Err(format!(
            "`dropped-tools` has `{}`, which is not a type of a tool: write one such as `web_search`",
            tool.escape_debug()
        ));
    }
    Ok(DecodeOptions { dropped_fields: fields, dropped_tools: tools, ..DecodeOptions::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_paths_and_types() {
        let check = |fields: &[&str], tools: &[&str], expected: Option<&str>| {
            let [fields, tools] =
                [fields, tools].map(|all| all.iter().map(|one| (*one).to_owned()).collect());
            let problem = dropped_parts(fields, tools).err();
            let is_expected = match (&problem, expected) {
                (Some(problem), Some(expected)) => problem.contains(expected),
                (problem, expected) => problem.is_none() && expected.is_none(),
            };
            assert!(is_expected, "{problem:?} {expected:?}");
        };
        check(&["diagnostics", "tools.vendor_hint"], &["web_search"], None);
        check(&["messages[0].x"], &[], Some("not the path of a field"));
        check(&["a..b"], &[], Some("not the path of a field"));
        check(&[""], &[], Some("not the path of a field"));
        check(&["messages.flowgate"], &[], Some("which only the gateway reads"));
        check(&[], &["web search"], Some("not a type of a tool"));
        check(&["a"; 65], &[], Some("64 entries"));
    }
}
