//! Defines the values in a tool script. An [`Operand`] may have parts that are known only when the program runs,
//! whereas a [`ScriptValue`] is known from the program's text.

/// A value that is known from the text of a program.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum ScriptValue {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number.
    Number(f64),
    /// A text.
    Text(String),
    /// A list.
    List(Vec<Self>),
    /// A map, whose keys are all different.
    Map(Vec<(String, Self)>),
}

/// The value of an expression.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Operand {
    Null,
    Bool(bool),
    Number(f64),
    Text(String),
    List(Vec<Self>),
    Map(Vec<(String, Self)>),
    /// A value that depends on what tools return, or that is not followed.
    Computed,
}

impl Operand {
    /// Returns the value if all of it is known.
    pub(super) fn literal(&self) -> Option<ScriptValue> {
        Some(match self {
            Self::Null => ScriptValue::Null,
            Self::Bool(value) => ScriptValue::Bool(*value),
            Self::Number(value) => ScriptValue::Number(*value),
            Self::Text(text) => ScriptValue::Text(text.clone()),
            Self::List(items) => ScriptValue::List(items.iter().map(Self::literal).collect::<Option<_>>()?),
            Self::Map(entries) => {
                let entry = |(key, value): &(String, Self)| Some((key.clone(), value.literal()?));
                ScriptValue::Map(entries.iter().map(entry).collect::<Option<_>>()?)
            }
            Self::Computed => return None,
        })
    }

    /// Returns the item at `index` if the operand is a list that has such an item, and otherwise an unknown value.
    pub(super) fn item(&self, index: usize) -> Self {
        match self {
            Self::List(items) => items.get(index).cloned().unwrap_or(Self::Computed),
            _ => Self::Computed,
        }
    }

    /// Returns the value of the key `name` if the operand is a map with this key, and otherwise an unknown value.
    pub(super) fn field(&self, name: &str) -> Self {
        let Self::Map(entries) = self else { return Self::Computed };
        entries.iter().find(|(key, _)| key == name).map_or(Self::Computed, |(_, value)| value.clone())
    }

    /// Returns the size in memory, about in bytes.
    pub(super) fn size(&self) -> usize {
        let parts = match self {
            Self::Text(text) => text.len(),
            Self::List(items) => items.iter().map(Self::size).sum(),
            Self::Map(entries) => entries.iter().map(|(key, value)| key.len() + value.size()).sum(),
            _ => 0,
        };
        // 16 for the value itself.
        parts + 16
    }

    /// Returns how deeply lists and maps are nested; 0 for other values.
    pub(super) fn depth(&self) -> usize {
        match self {
            Self::List(items) => 1 + items.iter().map(Self::depth).max().unwrap_or(0),
            Self::Map(entries) => 1 + entries.iter().map(|(_, value)| value.depth()).max().unwrap_or(0),
            _ => 0,
        }
    }
}
