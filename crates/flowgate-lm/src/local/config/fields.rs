//! Defines [`Fields`], which reads single fields of a model's configuration. Errors name the field that is missing, out
//! of range or of another type. The other files of this folder use this module.

use std::path::Path;

use serde_json::{Map, Value};

use super::super::load_error::LoadError;

/// The fields of a configuration file.
#[derive(Clone, Copy)]
pub(super) struct Fields<'a> {
    /// The file, for errors.
    pub(super) file: &'a Path,
    pub(super) map: &'a Map<String, Value>,
}

impl<'a> Fields<'a> {
    /// Returns the error that the file has this problem.
    pub(super) fn error(&self, problem: impl std::fmt::Display) -> LoadError {
        LoadError::new(self.file, problem.to_string())
    }

    /// Returns the value of a field; `None` if it is missing or null.
    pub(super) fn get(&self, key: &str) -> Option<&'a Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    /// Returns the size in the field `key`. Fails if the field is missing or null, or is not a whole number from 1 to
    /// `most`.
    pub(super) fn size(&self, key: &str, most: usize) -> Result<usize, LoadError> {
        self.optional_size(key, most)?.ok_or_else(|| {
            self.error(format_args!("`{key}` is missing; use a complete file of a supported model"))
        })
    }

    /// Returns the size in the field `key`; `None` if the field is missing or null. Fails for any value that is not a
    /// whole number from 1 to `most`.
    pub(super) fn optional_size(&self, key: &str, most: usize) -> Result<Option<usize>, LoadError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match value.as_u64().and_then(|size| usize::try_from(size).ok()) {
            Some(size) if (1..=most).contains(&size) => Ok(Some(size)),
            _ => Err(self.error(format_args!(
                "`{key}` must be a whole number from 1 to {most}; use the unchanged file of a supported model"
            ))),
        }
    }

    /// Returns the whole number in the field `key`, such as the id of a token, which may be 0; `None` if the field is
    /// missing or null. Fails for any value that is not a whole number below the maximum size of a vocabulary.
    pub(super) fn optional_number(&self, key: &str) -> Result<Option<usize>, LoadError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match value.as_u64().and_then(|number| usize::try_from(number).ok()) {
            Some(number) if number < super::MAX_VOCABULARY => Ok(Some(number)),
            _ => Err(self.error(format_args!(
                "`{key}` must be a whole number below {}; use the unchanged file of a supported model",
                super::MAX_VOCABULARY
            ))),
        }
    }

    /// Returns the number in the field `key`; `default` if the field is missing or null. Fails for any value that is
    /// not a positive, finite number.
    pub(super) fn number(&self, key: &str, default: f64) -> Result<f64, LoadError> {
        let Some(value) = self.get(key) else { return Ok(default) };
        match value.as_f64() {
            Some(number) if number.is_finite() && number > 0.0 => Ok(number),
            _ => Err(self.error(format_args!(
                "`{key}` must be a positive number; use the unchanged file of a supported model"
            ))),
        }
    }

    /// Returns the Boolean in the field `key`; `default` if the field is missing or null. Fails for any other value.
    pub(super) fn flag(&self, key: &str, default: bool) -> Result<bool, LoadError> {
        match self.get(key) {
            None => Ok(default),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(_) => Err(self.error(format_args!(
                "`{key}` must be true or false; use the unchanged file of a supported model"
            ))),
        }
    }

    /// Returns the text in the field `key`; `None` if the field is missing or null. Fails for any other value.
    pub(super) fn text(&self, key: &str) -> Result<Option<&'a str>, LoadError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(self.error(format_args!(
                "`{key}` must be a string; use the unchanged file of a supported model"
            ))),
        }
    }

    /// Returns the fields of the object in the field `key`; `None` if the field is missing or null. Fails for any other
    /// value.
    pub(super) fn object(&self, key: &str) -> Result<Option<Self>, LoadError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Object(map)) => Ok(Some(Self { file: self.file, map })),
            Some(_) => Err(self.error(format_args!(
                "`{key}` must be an object; use the unchanged file of a supported model"
            ))),
        }
    }

    /// Returns the list of numbers in the field `key`, such as factors of frequencies. Fails if the field is missing or
    /// is not a list of `count` positive, finite numbers.
    pub(super) fn numbers(&self, key: &str, count: usize) -> Result<Vec<f32>, LoadError> {
        let wrong = || {
            self.error(format_args!("`{key}` must be a list of {count} positive numbers; use the unchanged file of a supported model"))
        };
        let list =
            self.get(key).and_then(Value::as_array).filter(|list| list.len() == count).ok_or_else(wrong)?;
        let number = |value: &Value| value.as_f64().filter(|number| number.is_finite() && *number > 0.0);
        #[expect(
            clippy::cast_possible_truncation,
            reason = "single precision suffices for factors, and `RotaryScaling::Factors` holds them so"
        )]
        list.iter().map(|value| number(value).map(|number| number as f32).ok_or_else(wrong)).collect()
    }
}
