//! Contains the files of the page for people, which are part of the binary, and the headers that restrict what the
//! files may do. `http::service` serves them without authentication: they contain no data of the gateway.

use axum::http::{HeaderName, header};

use crate::http::reply::HttpReply;

/// The policy for the browser: the page may load only its own files and no inline script or style, no other site may
/// frame it, and no script may turn text into markup.
pub(crate) const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
    img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SVG: &str = "image/svg+xml";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// The files: the name after `/ui/`, the content type, and the text. The empty name is the page itself.
const FILES: &[(&str, &str, &str)] = &[
    ("", HTML, include_str!("../../page/index.html")),
    ("page.css", CSS, include_str!("../../page/page.css")),
    ("icon.svg", SVG, include_str!("../../page/icon.svg")),
    ("main.js", SCRIPT, include_str!("../../page/main.js")),
    ("api.js", SCRIPT, include_str!("../../page/api.js")),
    ("dom.js", SCRIPT, include_str!("../../page/dom.js")),
    ("card.js", SCRIPT, include_str!("../../page/card.js")),
    ("conversations.js", SCRIPT, include_str!("../../page/conversations.js")),
    ("coverage.js", SCRIPT, include_str!("../../page/coverage.js")),
    ("decided.js", SCRIPT, include_str!("../../page/decided.js")),
    ("rates.js", SCRIPT, include_str!("../../page/rates.js")),
    ("freezes.js", SCRIPT, include_str!("../../page/freezes.js")),
    ("grants.js", SCRIPT, include_str!("../../page/grants.js")),
    ("policy.js", SCRIPT, include_str!("../../page/policy.js")),
    ("polling.js", SCRIPT, include_str!("../../page/polling.js")),
    ("questions.js", SCRIPT, include_str!("../../page/questions.js")),
    ("trace.js", SCRIPT, include_str!("../../page/trace.js")),
];

/// Returns the reply with the file of the page that has this name after `/ui/`; `None` if there is no such file.
/// The headers protect the page from other sites, and deny it the use of devices such as the camera.
pub(crate) fn serve(name: &str) -> Option<HttpReply> {
    let (_, content_type, text) = FILES.iter().find(|(file, _, _)| *file == name)?;
    Some(
        HttpReply::document(content_type, *text)
            .header(header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY)
            .header(header::X_FRAME_OPTIONS, "DENY")
            .header(header::REFERRER_POLICY, "no-referrer")
            .header(HeaderName::from_static("cross-origin-opener-policy"), "same-origin")
            .header(HeaderName::from_static("cross-origin-resource-policy"), "same-origin")
            .header(
                HeaderName::from_static("permissions-policy"),
                "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
            ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The page needs nothing from the network, and no file could turn a text into markup.
    #[test]
    fn files_are_inert_and_complete() {
        for (name, _, text) in FILES {
            for forbidden in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                "new Function",
                "//cdn",
                "style=\"",
            ] {
                assert!(!text.contains(forbidden), "{name} has {forbidden}");
            }
            // The name of the namespace of SVG is the only address.
            let addresses = text.replace("http://www.w3.org/2000/svg", "");
            assert!(!addresses.contains("http://") && !addresses.contains("https://"), "{name}");
            for part in text.split("from \"./").skip(1).chain(text.split("=\"/ui/").skip(1)) {
                let linked = part.split('"').next().unwrap();
                assert!(serve(linked).is_some(), "{name} needs {linked}");
            }
        }
        assert!(serve("nothing.js").is_none());
    }
}
