//! Choices, read from the bytes of an input. After the last byte every choice is the first alternative, which
//! ends generation.

pub(crate) struct Choices<'a>(&'a [u8]);

impl<'a> Choices<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn are_spent(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns a number below `n`, from one byte, or from two if `n` is larger than 256.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        let high = if n > 256 { 256 * self.below(256) } else { 0 };
        (high + usize::from(*first)) % n
    }

    pub(crate) fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }

    /// Returns up to `longest` of the next bytes as text.
    pub(crate) fn text(&mut self, longest: usize) -> String {
        let length = self.below(longest + 1).min(self.0.len());
        let (text, rest) = self.0.split_at(length);
        self.0 = rest;
        String::from_utf8_lossy(text).into_owned()
    }
}
