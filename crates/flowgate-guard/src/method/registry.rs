//! Registers the methods that a program offers by name.
//!
//! The registry owns two lists: the methods of conversations, and the [influence methods](crate::influence) of recorded
//! runs. The command line, the gateway and the tests start from the built-in ones; an embedding program registers its
//! own. Invariant: a name occurs once in each list, and [`Method`]s are equal if their names are.

use std::fmt;

use flowgate::policy::diagnostic::nearest;

use super::{Method, StepMethod};
use crate::influence::InfluenceMethod;
use crate::influence::everything::EverythingMethod;
use crate::influence::nothing::NothingMethod;
use crate::influence::provenance::ProvenanceMethod;

/// Methods by name.
#[derive(Clone)]
pub struct MethodRegistry {
    step_methods: Vec<Method>,
    influence_methods: Vec<&'static dyn InfluenceMethod>,
}

/// The name of a method that is registered already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameTaken(pub &'static str);

impl fmt::Display for NameTaken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a method named `{}` is already registered; choose another name", self.0)
    }
}

impl std::error::Error for NameTaken {}

/// A name that no method of conversations has, with the names that could be meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownMethod {
    name: String,
    nearest: Option<&'static str>,
    known: Vec<&'static str>,
}

impl fmt::Display for UnknownMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no method `{}`; ", self.name.escape_debug())?;
        if let Some(nearest) = self.nearest {
            write!(f, "did you mean `{nearest}`? ")?;
        }
        write!(f, "there are: {}", self.known.join(", "))
    }
}

impl std::error::Error for UnknownMethod {}

impl MethodRegistry {
    /// Creates a registry of the built-in methods, in the order in which lists name them. The influence methods begin
    /// with the most conservative one.
    pub fn builtin() -> Self {
        Self {
            step_methods: vec![
                Method::LowestFirst,
                Method::CheapestFirst,
                Method::Judge,
                Method::Introspection,
                Method::Provenance,
                Method::Everything,
                Method::ToolFilter,
                Method::ConfirmActing,
                Method::NeverLook,
            ],
            influence_methods: vec![&EverythingMethod, &ProvenanceMethod, &NothingMethod],
        }
    }

    /// Adds a method of conversations.
    ///
    /// # Errors
    /// If its name is taken.
    pub fn register(&mut self, method: &'static dyn StepMethod) -> Result<(), NameTaken> {
        match self.find(method.name()) {
            Some(_) => Err(NameTaken(method.name())),
            None => {
                self.step_methods.push(Method::new(method));
                Ok(())
            }
        }
    }

    /// Adds an influence method.
    ///
    /// # Errors
    /// If its name is taken.
    pub fn register_influence(&mut self, method: &'static dyn InfluenceMethod) -> Result<(), NameTaken> {
        match self.find_influence(method.name()) {
            Some(_) => Err(NameTaken(method.name())),
            None => {
                self.influence_methods.push(method);
                Ok(())
            }
        }
    }

    /// Returns the methods of conversations.
    pub fn methods(&self) -> &[Method] {
        &self.step_methods
    }

    /// Returns the influence methods.
    pub fn influence_methods(&self) -> &[&'static dyn InfluenceMethod] {
        &self.influence_methods
    }

    /// Returns the method of conversations with this name.
    pub fn find(&self, name: &str) -> Option<Method> {
        self.step_methods.iter().copied().find(|method| method.name() == name)
    }

    /// Returns the method of conversations that a configuration names.
    ///
    /// # Errors
    /// If there is none: the error lists the registered names, and suggests the nearest.
    pub fn resolve(&self, name: &str) -> Result<Method, UnknownMethod> {
        self.find(name).ok_or_else(|| {
            let known: Vec<&'static str> = self.step_methods.iter().map(|method| method.0.name()).collect();
            UnknownMethod { name: name.to_owned(), nearest: nearest(name, known.iter().copied()), known }
        })
    }

    /// Returns the influence method with this name.
    pub fn find_influence(&self, name: &str) -> Option<&'static dyn InfluenceMethod> {
        self.influence_methods.iter().copied().find(|method| method.name() == name)
    }
}

impl fmt::Debug for MethodRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let influence: Vec<&str> = self.influence_methods.iter().map(|method| method.name()).collect();
        f.debug_struct("MethodRegistry")
            .field("step_methods", &self.step_methods)
            .field("influence_methods", &influence)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::method::lowest_first::LowestFirst;

    /// Configurations name methods, so their names do not change.
    #[test]
    fn methods_have_names() {
        let registry = MethodRegistry::builtin();
        let names: Vec<&str> = registry.methods().iter().map(|method| method.name()).collect();
        let expected = [
            "lowest-first",
            "cheapest-first",
            "judge",
            "introspection",
            "provenance",
            "everything",
            "tool-filter",
            "confirm-acting",
            "never-look",
        ];
        assert_eq!(names, expected);
        let names: Vec<&str> = registry.influence_methods().iter().map(|method| method.name()).collect();
        assert_eq!(names, ["everything", "provenance", "nothing"]);
    }

    #[test]
    fn an_unknown_name_gets_advice() {
        #[derive(Debug)]
        struct ForeignMethod;
        impl StepMethod for ForeignMethod {
            fn name(&self) -> &'static str {
                "foreign"
            }
            fn doc(&self) -> &'static str {
                "what flows into the strictest tool on offer"
            }
        }
        let mut registry = MethodRegistry::builtin();
        registry.register(&ForeignMethod).unwrap();
        let check = |name: &str, advice: &str| {
            let error = registry.resolve(name).unwrap_err().to_string();
            let known = "there are: lowest-first, cheapest-first, judge, introspection, provenance, everything, \
                         tool-filter, confirm-acting, never-look, foreign";
            assert_eq!(error, format!("there is no method {advice}{known}"));
        };
        check("foriegn", "`foriegn`; did you mean `foreign`? ");
        check("Everything", "`Everything`; did you mean `everything`? ");
        check("lowest", "`lowest`; ");
        check("a\nb", "`a\\nb`; ");
        assert_eq!(registry.resolve("foreign").unwrap().name(), "foreign");
    }

    #[test]
    fn a_name_is_registered_once() {
        let mut registry = MethodRegistry::builtin();
        assert_eq!(registry.register(&LowestFirst), Err(NameTaken("lowest-first")));
        assert_eq!(registry.register_influence(&NothingMethod), Err(NameTaken("nothing")));
    }
}
