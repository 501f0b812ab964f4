//! Parses JSON strictly into [`Json`], which borrows the strings of the text instead of copying them. The gateway and
//! the Python package parse the bodies of requests with this module before a decoder in `wire` reads them. The decoder
//! of streams in `wire/chat_completions` parses events with it.
//!
//! Each request contains the whole chat, and most of it is parsed only to compare it with the messages of the previous
//! request. The parser therefore copies only strings with escapes, and builds no hash map for each object. A duplicate
//! key is an error, since two parsers could resolve it differently.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::hash::{BuildHasher as _, RandomState};

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, SerializeMap as _, Serializer};
use serde_json::{Map, Number, Value};

/// A JSON value.
#[derive(Debug, Clone, PartialEq)]
pub enum Json<'t> {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number.
    Number(Number),
    /// A string.
    Text(Cow<'t, str>),
    /// An array.
    List(Vec<Self>),
    /// An object: its entries in the order of the text, with unique keys.
    Object(Vec<(Cow<'t, str>, Self)>),
}

impl<'t> Json<'t> {
    /// Parses one value that spans the whole of `text`.
    ///
    /// # Errors
    /// On anything that is not JSON, on a duplicate key in an object, and on nesting deeper than 128. The error
    /// contains the position, never content.
    pub fn parse(text: &'t str) -> Result<Self, serde_json::Error> {
        let mut reader = serde_json::Deserializer::from_str(text);
        let value = JsonSeed.deserialize(&mut reader)?;
        reader.end()?;
        Ok(value)
    }

    /// Returns the value under a key; `None` if there is no such key, or this is not an object.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Self> {
        let Self::Object(entries) = self else { return None };
        entries.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    /// Returns the string, if it is one.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    /// Copies the value into a value of `serde_json`, which borrows nothing.
    #[must_use]
    pub fn to_value(&self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Bool(flag) => Value::Bool(*flag),
            Self::Number(number) => Value::Number(number.clone()),
            Self::Text(text) => Value::String(text.clone().into_owned()),
            Self::List(items) => Value::Array(items.iter().map(Self::to_value).collect()),
            Self::Object(entries) => {
                let entry =
                    |(key, value): &(Cow<'_, str>, Self)| (key.clone().into_owned(), value.to_value());
                Value::Object(entries.iter().map(entry).collect::<Map<_, _>>())
            }
        }
    }
}

impl<'t> From<&'t Value> for Json<'t> {
    /// Converts a value of `serde_json` for code that reads [`Json`]. The result borrows the strings of the value.
    fn from(value: &'t Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(flag) => Self::Bool(*flag),
            Value::Number(number) => Self::Number(number.clone()),
            Value::String(text) => Self::Text(Cow::Borrowed(text)),
            Value::Array(items) => Self::List(items.iter().map(Self::from).collect()),
            Value::Object(entries) => {
                let entry =
                    |(key, value): (&'t String, &'t Value)| (Cow::Borrowed(key.as_str()), value.into());
                Self::Object(entries.iter().map(entry).collect())
            }
        }
    }
}

impl Serialize for Json<'_> {
    /// Serialises the value as JSON; the entries of objects keep their order.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(flag) => serializer.serialize_bool(*flag),
            Self::Number(number) => number.serialize(serializer),
            Self::Text(text) => serializer.serialize_str(text),
            Self::List(items) => serializer.collect_seq(items),
            Self::Object(entries) => {
                let mut map = serializer.serialize_map(Some(entries.len()))?;
                for (key, value) in entries {
                    map.serialize_entry(key, value)?;
                }
                map.end()
            }
        }
    }
}

impl fmt::Display for Json<'_> {
    /// Writes the value as JSON on one line, without white space between its parts.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

/// Parses any value: the entry point of `serde` into this parser.
struct JsonSeed;

impl<'de> DeserializeSeed<'de> for JsonSeed {
    type Value = Json<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Json<'de>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for JsonSeed {
    type Value = Json<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Json<'de>, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Json<'de>, E> {
        Ok(Json::Bool(flag))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Json<'de>, E> {
        Ok(Json::Number(number.into()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Json<'de>, E> {
        Ok(Json::Number(number.into()))
    }

    /// Converts a number with a fraction or an exponent. Rejects one that is not finite, which JSON cannot express.
    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Json<'de>, E> {
        Number::from_f64(number).map(Json::Number).ok_or_else(|| E::custom("number is not finite"))
    }

    /// Borrows a string without escapes from the text.
    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Json<'de>, E> {
        Ok(Json::Text(Cow::Borrowed(text)))
    }

    /// Copies a string with escapes, which the parser has resolved.
    fn visit_str<E>(self, text: &str) -> Result<Json<'de>, E> {
        Ok(Json::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Json<'de>, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(Self)? {
            list.push(item);
        }
        Ok(Json::List(list))
    }

    /// Reads an object, with its entries in the order of the text. A duplicate key is an error, since two parsers could
    /// resolve it differently.
    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Json<'de>, A::Error> {
        let (mut entries, mut keys) = (Vec::new(), DuplicateKeyFinder::default());
        while let Some(key) = object.next_key_seed(KeySeed)? {
            if !keys.add(&entries, &key) {
                return Err(de::Error::custom("duplicate key"));
            }
            entries.push((key, object.next_value_seed(Self)?));
        }
        Ok(Json::Object(entries))
    }
}

/// Parses a key of an object. Borrows it if it has no escapes.
struct KeySeed;

impl<'de> DeserializeSeed<'de> for KeySeed {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for KeySeed {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    /// Borrows a key without escapes from the text.
    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(text))
    }

    /// Copies a key with escapes, which the parser has resolved.
    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(text.to_owned()))
    }
}

/// The number of keys up to which keys are compared directly. In larger objects, the hashes of the keys are compared.
const LINEAR_SEARCH_LIMIT: usize = 16;

/// Finds duplicate keys in an object.
#[derive(Default)]
struct DuplicateKeyFinder {
    /// The hashes of the keys, once there are more than [`LINEAR_SEARCH_LIMIT`].
    hashes: HashSet<u64>,
    /// The hash function; `None` as long as the object is short. It is random, so that no client can choose keys with
    /// equal hashes.
    state: Option<RandomState>,
}

impl DuplicateKeyFinder {
    /// Adds the next key of an object; `entries` are the entries before it. Returns whether the key is new, that is,
    /// not a duplicate.
    ///
    /// In a short object, the key is compared with all earlier ones. In a longer object, it is compared with them only
    /// if an earlier key has the same hash, so that an object with many keys does not take quadratic time.
    fn add(&mut self, entries: &[(Cow<'_, str>, Json<'_>)], key: &str) -> bool {
        let is_new = || entries.iter().all(|(name, _)| name != key);
        if entries.len() < LINEAR_SEARCH_LIMIT {
            return is_new();
        }
        if self.state.is_none() {
            let state = RandomState::new();
            self.hashes = entries.iter().map(|(name, _)| state.hash_one(name.as_ref())).collect();
            self.state = Some(state);
        }
        // The `else` is not reached, because the state was set above.
        let Some(state) = &self.state else { return false };
        // `insert` returns false for a known hash. Different keys can have equal hashes, so the keys are compared then.
        self.hashes.insert(state.hash_one(key)) || is_new()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ambiguous_json_is_refused() {
        let check = |text: &str, expected: &str| {
            let shown = Json::parse(text).map_or_else(|error| error.to_string(), |value| value.to_string());
            assert_eq!(shown, expected, "{text}");
        };
        check(r#"{"b":1,"a":[true,null,"x",-1.5]}"#, r#"{"b":1,"a":[true,null,"x",-1.5]}"#);
        check(r#" { "\u0061" : "\n" } "#, r#"{"a":"\n"}"#);
        check(r#"{"to":"bob","to":"mallory"}"#, "duplicate key at line 1 column 16");
        check(r#"{"to":"bob","\u0074o":"mallory"}"#, "duplicate key at line 1 column 21");
        check("[{\"a\":1,\n\"a\":2}]", "duplicate key at line 2 column 3");
        check("9007199254740993", "9007199254740993");
        check("1e400", "number out of range at line 1 column 5");
        check("{} {}", "trailing characters at line 1 column 4");
        check("", "EOF while parsing a value at line 1 column 0");
        check(&"[".repeat(1000), "recursion limit exceeded at line 1 column 128");
        // Also among many keys.
        let many = (0..100).map(|number| format!(r#""k{number}":0"#)).collect::<Vec<_>>().join(",");
        check(&format!("{{{many}}}"), &format!("{{{many}}}"));
        for again in ["k0", "k15", "k16", "k99", r"\u006b50"] {
            let text = format!(r#"{{{many},"{again}":0}}"#);
            let error = Json::parse(&text).map_err(|error| error.to_string());
            assert!(error.is_err_and(|error| error.starts_with("duplicate key")), "{again}");
        }
    }

    /// Returns a strategy that generates JSON values, in which lists and objects are nested at most four deep.
    pub(super) fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            (-1e9..1e9).prop_map(Value::from),
            ".{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 64, 24, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
                prop::collection::vec((".{0,3}", inner), 0..24)
                    .prop_map(|entries| Value::Object(entries.into_iter().collect())),
            ]
        })
    }

    proptest! {
        /// The parser agrees with `serde_json`.
        #[test]
        fn texts_parse_as_with_serde_json(value in value()) {
            let text = value.to_string();
            let others: Value = serde_json::from_str(&text).unwrap();
            let read = Json::parse(&text).unwrap();
            prop_assert_eq!(&read.to_value(), &others);
            prop_assert_eq!(&Json::from(&others), &read);
            prop_assert_eq!(read.to_string(), others.to_string());
        }
    }
}
