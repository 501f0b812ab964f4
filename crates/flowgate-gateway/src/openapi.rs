//! The description of the API that is served. Written by hand in `openapi.json`; tests hold it against the routes and
//! against the types that are answered.

/// An OpenAPI 3.1 document.
pub const DOCUMENT: &str = include_str!("../openapi.json");

#[cfg(test)]
pub(crate) fn document() -> serde_json::Value {
    serde_json::from_str(DOCUMENT).unwrap()
}

/// The schema with this name.
#[cfg(test)]
pub(crate) fn schema(name: &str) -> serde_json::Value {
    document()["components"]["schemas"][name].clone()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::ROUTES;
    use serde_json::Value;

    #[test]
    fn it_describes_exactly_the_routes() {
        let document = document();
        let mut described = Vec::new();
        for (path, methods) in document["paths"].as_object().unwrap() {
            described.extend(methods.as_object().unwrap().keys().map(|method| format!("{method} {path}")));
        }
        let served: Vec<String> = ROUTES
            .iter()
            .map(|(method, path, _)| format!("{} {path}", method.as_str().to_lowercase()))
            .collect();
        assert_eq!(described, served);
    }

    #[test]
    fn every_reference_leads_somewhere_and_every_schema_is_used() {
        fn references(value: &Value, found: &mut Vec<String>) {
            match value {
                Value::Object(fields) => {
                    found.extend(fields.get("$ref").and_then(Value::as_str).map(str::to_owned));
                    fields.values().for_each(|value| references(value, found));
                }
                Value::Array(items) => items.iter().for_each(|item| references(item, found)),
                _ => {}
            }
        }
        let document = document();
        let mut found = Vec::new();
        references(&document, &mut found);
        for reference in &found {
            assert!(document.pointer(reference.trim_start_matches('#')).is_some(), "{reference}");
        }
        for (group, items) in document["components"].as_object().unwrap() {
            for name in items.as_object().unwrap().keys().filter(|_| group != "securitySchemes") {
                assert!(found.contains(&format!("#/components/{group}/{name}")), "{name} is not used");
            }
        }
    }
}
