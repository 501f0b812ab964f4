//! Draws pseudorandom numbers and choices from a seed. The same seed gives the same choices on every platform, so
//! that equal seeds generate equal tasks.
//!
//! The numbers are those of SplitMix64, which is a published sequence, so a library update cannot change the tasks of
//! a seed. The generators of the games, of the propagation and saliency suites and of the texts for the learned
//! detector use this module, and so do the attack searches of the games and the bootstrap of
//! [`statistics`](crate::statistics).

/// A sequence of pseudorandom numbers that a seed determines; the field is the state of SplitMix64.
#[derive(Debug, Clone)]
pub(crate) struct SeededRandom(u64);

impl SeededRandom {
    /// Creates the sequence of one stream of a seed. A seed has many independent streams, one for each task, so that
    /// the number of choices of one task does not change the choices of the next. The number of the stream is mixed
    /// first, so that neighbouring streams do not overlap.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let mut streams = Self(stream);
        Self(seed ^ streams.next())
    }

    /// Returns the next number of SplitMix64; the constants are those of its definition.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number from 0 to `limit` - 1, or 0 if the limit is 0. It is the remainder of a 64-bit number, which
    /// favours small results slightly: for the short lists of the generators, by less than 2⁻³².
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        let limit = u64::try_from(limit).unwrap_or(u64::MAX);
        let drawn = self.next().checked_rem(limit).unwrap_or(0);
        usize::try_from(drawn).unwrap_or(0)
    }

    /// Returns one of the texts, each with equal probability; an empty text if the list is empty.
    pub(crate) fn choose<'t>(&mut self, texts: &[&'t str]) -> &'t str {
        texts.get(self.below(texts.len())).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first numbers of SplitMix64 for the seed 0, from its reference implementation.
    #[test]
    fn numbers_are_those_of_the_published_sequence() {
        let mut random = SeededRandom(0);
        let drawn: Vec<u64> = (0..3).map(|_| random.next()).collect();
        assert_eq!(drawn, [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4, 0x06c4_5d18_8009_454f]);
    }

    #[test]
    fn streams_of_a_seed_differ_and_repeat() {
        let draw = |seed, stream| {
            let mut random = SeededRandom::new(seed, stream);
            (0..8).map(|_| random.below(1000)).collect::<Vec<_>>()
        };
        assert_eq!(draw(7, 1), draw(7, 1));
        assert_ne!(draw(7, 1), draw(7, 2));
        assert_ne!(draw(7, 1), draw(8, 1));
    }
}
