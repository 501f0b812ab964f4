//! Defines [`BlockedTokens`]: regions of a text that no token outside them may read. The decoder excludes their tokens
//! from the attention and from the convolution of all other tokens. `generate.rs` determines the regions from the
//! pieces of a prompt that `blocking.rs` finds.

use std::ops::Range;

use candle_core::{Device, Result, Tensor};

/// The blocked regions of a text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct BlockedTokens {
    /// For each token up to the end of the last region, the number of its region; 0 if it is in none.
    regions: Vec<usize>,
}

impl BlockedTokens {
    /// Blocks one more region: a range of tokens, which must be after all earlier regions. The tokens between the last
    /// region and this one are in no region.
    pub(crate) fn push(&mut self, tokens: Range<usize>) {
        // `regions` has for each token the number of its region, counted from 1, and 0 for a token in no region.
        let number = self.regions.iter().max().map_or(1, |last| last + 1);
        self.regions.resize(tokens.start.max(self.regions.len()), 0);
        self.regions.resize(tokens.end.max(self.regions.len()), number);
    }

    /// Returns whether the token `reader` may read the token `source`: `source` is in no region, or both are in the
    /// same one.
    pub(super) fn can_read(&self, reader: usize, source: usize) -> bool {
        // The number of the region of a token; 0 if it is in none.
        let region = |token: usize| self.regions.get(token).copied().unwrap_or(0);
        region(source) == 0 || region(source) == region(reader)
    }

    /// Returns for `time` tokens from `start` on whether each may read the token that is `distance` tokens before it: 1
    /// if it may, otherwise 0, as a tensor of shape (1, time, 1). If there is no such token, the convolution reads
    /// padding in its place, which is never blocked.
    pub(super) fn readable_at(
        &self,
        (start, time): (usize, usize),
        distance: usize,
        device: &Device,
    ) -> Result<Tensor> {
        let readable =
            |token: usize| token.checked_sub(distance).is_none_or(|source| self.can_read(token, source));
        let flags: Vec<u8> = (start..start + time).map(|token| u8::from(readable(token))).collect();
        Tensor::from_vec(flags, (1, time, 1), device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_its_own_tokens_read_a_region() {
        let mut blocked = BlockedTokens::default();
        blocked.push(2..4);
        blocked.push(4..4);
        blocked.push(4..6);
        let check = |reader, expected: &[usize]| {
            let found: Vec<usize> = (0..8).filter(|source| blocked.can_read(reader, *source)).collect();
            assert_eq!(found, expected, "{reader}");
        };
        check(1, &[0, 1, 6, 7]);
        check(3, &[0, 1, 2, 3, 6, 7]);
        check(5, &[0, 1, 4, 5, 6, 7]);
        check(7, &[0, 1, 6, 7]);
        assert!(BlockedTokens::default().can_read(5, 1));
        let flags = blocked.readable_at((1, 6), 2, &Device::Cpu).unwrap().flatten_all().unwrap();
        // Token 1 reads padding, 2 and 3 read 0 and 1, 4 and 5 the region 2..4, and 6 the region 4..6.
        assert_eq!(flags.to_vec1::<u8>().unwrap(), [1, 1, 1, 0, 0, 0]);
    }
}
