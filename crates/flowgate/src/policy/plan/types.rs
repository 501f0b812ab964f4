//! Defines the types that variables of a policy can have: kinds of events, parts of events, and plain values. The
//! compiler resolves their names, and the evaluator enumerates the values of a type.

/// The type of a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Type {
    Message,
    ToolCall,
    ToolOutput,
    Tool,
    /// Any event: the type of the variable in which parts of events are searched.
    Event,
    Function,
    ToolParameter,
    TextChunk,
    Image,
    Str,
    Int,
    Float,
    Bool,
    Dict,
    List,
    Any,
}

impl Type {
    /// The types that a policy can name, by their names.
    pub(crate) const NAMES: [(&'static str, Self); 15] = [
        ("Message", Self::Message),
        ("ToolCall", Self::ToolCall),
        ("ToolOutput", Self::ToolOutput),
        ("Tool", Self::Tool),
        ("Function", Self::Function),
        ("ToolParameter", Self::ToolParameter),
        ("TextChunk", Self::TextChunk),
        ("Image", Self::Image),
        ("str", Self::Str),
        ("int", Self::Int),
        ("float", Self::Float),
        ("bool", Self::Bool),
        ("dict", Self::Dict),
        ("list", Self::List),
        ("any", Self::Any),
    ];

    /// Returns the name of the type in the language; `event` for the type of all events, which policies cannot name.
    pub(crate) fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, ty)| *ty == self).map_or("event", |(name, _)| name)
    }

    /// Returns whether values of the type can be passed to the program that answers an extern predicate.
    pub(crate) fn is_plain(self) -> bool {
        matches!(self, Self::Str | Self::Int | Self::Float | Self::Bool | Self::Dict | Self::List | Self::Any)
    }

    /// Returns whether the values of the type are events. A variable of such a type ranges over the trace.
    pub(crate) fn is_event(self) -> bool {
        matches!(self, Self::Message | Self::ToolCall | Self::ToolOutput | Self::Tool | Self::Event)
    }

    /// Returns the kind of events that have parts of this type, in which a search looks for such parts; [`Self::Event`]
    /// if several kinds have them.
    pub(crate) fn event_type(self) -> Self {
        match self {
            Self::Function => Self::ToolCall,
            Self::ToolParameter => Self::Tool,
            _ => Self::Event,
        }
    }
}
