//! Relates the parts of a call to its arguments. A reason of a verdict names the part of the call that it is about by a
//! printed path, such as `arguments.to` or `arguments["odd name"]`. `requirement` uses this module to print these paths;
//! `question_summary`, `question_evidence` and `verdict` use it to find the argument that a path belongs to.

use crate::trace::{Call, Document, NodeId, Path, PathStep};

/// Returns the printed path of the top-level argument that a node of a call belongs to, such as `arguments.to`, and the
/// name of the argument. For a node that is in no argument, returns its path, cut to two steps, and no name.
pub(super) fn argument_of_node(document: &Document, node: NodeId) -> (String, Option<String>) {
    let mut path = document.path(node);
    // The first two steps are `arguments` and the name.
    path.0.truncate(2);
    let name = match path.0.get(1) {
        Some(PathStep::Key(name)) => Some(name.to_string()),
        _ => None,
    };
    (path.to_string(), name)
}

/// Returns the name of the argument of the call to which a reason refers. `part` is the printed path in the reason.
/// `None` if the path leads to no argument: a reason can also be about the decision, for example.
pub(super) fn argument_in<'c>(call: &'c Call, part: &str) -> Option<&'c str> {
    call.arguments.as_ref().ok()?.keys().map(String::as_str).find(|name| is_in_argument(part, name))
}

/// Returns whether `part`, the printed path in a reason, is in the argument with this name.
pub(super) fn is_in_argument(part: &str, name: &str) -> bool {
    let path = Path(vec![PathStep::Key("arguments".into()), PathStep::Key(name.into())]);
    let rest = part.strip_prefix(&path.to_string());
    // A printed path ends with the name, or continues with a key (`.` or `[`), an index (`[`) or a captured part (`<`).
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[', '<']))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::trace::Tool;

    #[test]
    fn the_argument_of_a_part_is_found() {
        let arguments = json!({"to": "a", "to_all": "b", "cc list": ["c"], "a.b": "d", "": "e"});
        let call = Call::from_json("c", Tool::local("send"), &arguments.to_string());
        let check =
            |part: &str, expected: Option<&str>| assert_eq!(argument_in(&call, part), expected, "{part}");
        check("arguments.to", Some("to"));
        check("arguments.to[0].name", Some("to"));
        check("arguments.to_all", Some("to_all"));
        check(r#"arguments["cc list"]"#, Some("cc list"));
        check(r#"arguments["cc list"][0]"#, Some("cc list"));
        check(r#"arguments["a.b"]"#, Some("a.b"));
        check(r#"arguments[""]"#, Some(""));
        check("arguments.other", None);
        check("arguments", None);
        check("decision", None);
    }
}
