//! Stores the *windows* of remembered texts: all stretches of [`SHORTEST`] consecutive bytes of a text, with the labels
//! of the text. `quotation_memory` owns them, and looks the windows of a new text up here to find the quotations in it.
//!
//! A window is identified by a fingerprint (Karp and Rabin, 1987). A lookup takes constant time whatever is remembered,
//! and no untrusted text can slow it down. The windows of a source form two generations. New windows are added to the
//! younger one. When it is full, the older generation is forgotten, and the younger one becomes the older one.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use foldhash::fast::RandomState;

/// The shortest span that counts, in bytes of the normal form: 20 ASCII letters and digits.
pub const SHORTEST: usize = 20;
/// The fewest bytes that a quotation must have on each side of a border between two texts to extend over the border.
/// With fewer, it would often extend to a character that a client writes after the quotation, and that happens to
/// follow in the remembered text as well.
pub(super) const LEAST_ACROSS_BORDER: usize = 4;

/// The prime of the fingerprints, and the point at which their polynomial is evaluated.
const PRIME: u64 = (1 << 61) - 1;
const POINT: u64 = 0x0a5b_36a1_9d4e_7c23;

/// The most sets of marks that are distinguished: a set has a number of 16 bits.
const MAX_SETS: usize = 60_000;

/// 48 bits of the fingerprint of a window.
pub(super) type WindowFingerprint = [u16; 3];
/// A fingerprint is a hash already: a short hash with a random seed suffices to spread crafted fingerprints over the
/// buckets.
type WindowSet = HashSet<WindowFingerprint, RandomState>;
type WindowMap<V> = HashMap<WindowFingerprint, V, RandomState>;

/// Returns the product of two numbers modulo [`PRIME`], a Mersenne prime: the bits above the 61st are added to those
/// below.
fn multiply_mod(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    let low = u64::try_from(product & u128::from(PRIME)).unwrap_or_default();
    let high = u64::try_from(product >> 61).unwrap_or_default();
    // Both factors are less than the prime, so the sum is less than twice the prime.
    reduce_mod(low + high)
}

/// Returns the remainder modulo [`PRIME`] of a sum that is less than twice the prime.
fn reduce_mod(sum: u64) -> u64 {
    if sum >= PRIME { sum - PRIME } else { sum }
}

/// Returns the fingerprints of all windows of a text in normal form, in order.
pub(super) fn windows(bytes: &[u8]) -> impl Iterator<Item = WindowFingerprint> {
    // `hash` is the rolling hash of the last `SHORTEST` bytes: a byte that enters the window is added, and one that
    // leaves it is subtracted. `oldest` is the weight of a byte when it leaves the window.
    let oldest = (0..SHORTEST).fold(1, |power, _| multiply_mod(power, POINT));
    let mut hash = 0_u64;
    let leaving = std::iter::repeat_n(None, SHORTEST).chain(bytes.iter().map(Some));
    let hashes = bytes.iter().zip(leaving).map(move |(entering, leaving)| {
        // A byte counts as its value plus one, so that windows of different lengths differ.
        hash = reduce_mod(multiply_mod(hash, POINT) + u64::from(*entering) + 1);
        if let Some(leaving) = leaving {
            hash = reduce_mod(hash + PRIME - multiply_mod(oldest, u64::from(*leaving) + 1));
        }
        fingerprint(hash)
    });
    hashes.skip(SHORTEST - 1)
}

/// Returns the lowest 48 bits of a hash, as three numbers of 16 bits. In this form, an entry of a map (a window and the
/// 16-bit number of its set) takes 8 bytes and needs no padding.
fn fingerprint(hash: u64) -> WindowFingerprint {
    let part = |shift: u32| u16::try_from((hash >> shift) & 0xffff).unwrap_or_default();
    [part(0), part(16), part(32)]
}

/// A set of windows that forgets the oldest.
#[derive(Debug, Clone, Default)]
pub(super) struct RecentWindows {
    young: WindowSet,
    old: WindowSet,
}

impl RecentWindows {
    /// Returns whether a window is in the set.
    pub(super) fn has(&self, window: &WindowFingerprint) -> bool {
        self.young.contains(window) || self.old.contains(window)
    }

    /// Adds the windows of a text. Whenever the younger generation has `limit` windows, the set [ages](Self::age).
    pub(super) fn add(&mut self, bytes: &[u8], limit: usize) {
        for window in windows(bytes) {
            if self.young.len() >= limit {
                self.age();
            }
            self.young.insert(window);
        }
    }

    /// Forgets the older generation, and makes the younger one the older one.
    pub(super) fn age(&mut self) {
        self.old = std::mem::take(&mut self.young);
    }

    /// Returns the number of windows; one that is in both generations counts twice.
    pub(super) fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }
}

/// Why a window is remembered: a source, one of its generations, and a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct WindowMark {
    pub(super) source: usize,
    pub(super) generation: u32,
    pub(super) label: usize,
}

/// Windows with their marks. Many windows have the same set of marks, so each set is stored once and has a number.
#[derive(Debug, Clone, Default)]
pub(super) struct MarkedWindows {
    /// The number of the set of marks of each window.
    sets: WindowMap<u16>,
    /// The marks of each set, by its number.
    marks: Vec<Vec<WindowMark>>,
    /// The number of each set, by its marks.
    numbers: HashMap<Vec<WindowMark>, u16>,
}

impl MarkedWindows {
    /// Returns the marks of a window.
    pub(super) fn get(&self, window: &WindowFingerprint) -> &[WindowMark] {
        let set = self.sets.get(window).and_then(|set| self.marks.get(usize::from(*set)));
        set.map(Vec::as_slice).unwrap_or_default()
    }

    /// Returns the number of windows that have a mark.
    pub(super) fn len(&self) -> usize {
        self.sets.len()
    }

    /// Returns whether no window has a mark.
    pub(super) fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }

    /// Adds a mark to a window. If this makes a new set of marks and there is no room for another set, the window
    /// carries `mark_if_full` alone. Returns whether the window lacked `mark`.
    pub(super) fn add(
        &mut self,
        window: WindowFingerprint,
        mark: WindowMark,
        mark_if_full: WindowMark,
    ) -> bool {
        let before = self.get(&window);
        if before.contains(&mark) {
            return false;
        }
        let mut marks = before.to_vec();
        // The new mark replaces the mark of the same source and label from an older generation.
        marks.retain(|known| (known.source, known.label) != (mark.source, mark.label));
        marks.push(mark);
        let set = self.set_number(marks).unwrap_or_else(|| self.insert_set(vec![mark_if_full]));
        self.sets.insert(window, set);
        true
    }

    /// Returns the number of a set of marks; `None` if the set is new and there is no room for another.
    fn set_number(&mut self, marks: Vec<WindowMark>) -> Option<u16> {
        if let Some(known) = self.numbers.get(&marks) {
            return Some(*known);
        }
        (self.marks.len() < MAX_SETS).then(|| self.insert_set(marks))
    }

    /// Returns the number of a set of marks, and adds the set if it is new, regardless of the limit. The few sets that
    /// may exceed the limit consist of one mark that replaces all others.
    fn insert_set(&mut self, marks: Vec<WindowMark>) -> u16 {
        if let Some(known) = self.numbers.get(&marks) {
            return *known;
        }
        let number = u16::try_from(self.marks.len()).unwrap_or(u16::MAX);
        self.marks.push(marks.clone());
        self.numbers.insert(marks, number);
        number
    }

    /// Forgets all marks for which `stays` is false, such as those of one source, and then the windows without a mark.
    /// The remaining sets get new numbers.
    pub(super) fn retain(&mut self, stays: impl Fn(&WindowMark) -> bool) {
        let old = std::mem::take(&mut self.marks);
        self.numbers.clear();
        // The new number of each set, by its old number; `None` for a set without a remaining mark.
        let new: Vec<Option<u16>> = old
            .into_iter()
            .map(|mut marks| {
                marks.retain(&stays);
                (!marks.is_empty()).then(|| self.insert_set(marks))
            })
            .collect();
        self.sets.retain(|_, set| match new.get(usize::from(*set)) {
            Some(Some(number)) => {
                *set = *number;
                true
            }
            _ => false,
        });
    }
}

/// Returns the byte ranges of a normalized text that are covered by windows with a mark, each with the mark, in the
/// order of their beginnings. Windows with the same mark that overlap or touch form one range. `marks` looks a window
/// up, and adds its marks to the vector that it receives.
pub(super) fn marked_ranges<M: Copy + Ord>(
    bytes: &[u8],
    mut marks: impl FnMut(&WindowFingerprint, &mut Vec<M>),
) -> Vec<(Range<usize>, M)> {
    let mut ranges: Vec<(Range<usize>, M)> = Vec::new();
    // The index in `ranges` of the last range with each mark, which the next window with the mark may extend.
    let mut last_range_of: BTreeMap<M, usize> = BTreeMap::new();
    let mut window_marks = Vec::new();
    for (start, window) in windows(bytes).enumerate() {
        window_marks.clear();
        marks(&window, &mut window_marks);
        for mark in &window_marks {
            let open = last_range_of
                .get(mark)
                .and_then(|at| ranges.get_mut(*at))
                .filter(|(range, _)| range.end >= start);
            if let Some((range, _)) = open {
                range.end = start + SHORTEST;
                continue;
            }
            last_range_of.insert(*mark, ranges.len());
            ranges.push((start..start + SHORTEST, *mark));
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_windows_have_equal_fingerprints_at_every_offset() {
        let text: Vec<u8> = (0..300_u32).map(|i| b'a' + (i * i / 7 % 26) as u8).collect();
        let all: Vec<WindowFingerprint> = windows(&text).collect();
        assert_eq!(all.len(), text.len() - SHORTEST + 1);
        for (start, window) in all.iter().enumerate() {
            let alone: Vec<WindowFingerprint> = windows(text.get(start..start + SHORTEST).unwrap()).collect();
            assert_eq!(alone, [*window], "{start}");
        }
        let mut distinct = all;
        distinct.sort_unstable();
        distinct.dedup();
        let mut pieces: Vec<&[u8]> = text.windows(SHORTEST).collect();
        pieces.sort_unstable();
        pieces.dedup();
        assert_eq!(distinct.len(), pieces.len());
        assert_eq!(windows(b"too short").count(), 0);
    }

    /// A window has all marks that were added to it, except those that a newer mark has replaced or that were
    /// forgotten.
    #[test]
    fn a_window_has_the_marks_that_stay() {
        let mark = |source: usize, generation: u32| WindowMark { source, generation, label: source };
        let mut marked = MarkedWindows::default();
        let instead = mark(9, 0);
        assert!(marked.add([1; 3], mark(0, 0), instead) && !marked.add([1; 3], mark(0, 0), instead));
        assert!(marked.add([1; 3], mark(1, 0), instead) && marked.add([2; 3], mark(1, 0), instead));
        assert!(marked.add([1; 3], mark(1, 1), instead));
        assert_eq!(marked.get(&[1; 3]), [mark(0, 0), mark(1, 1)]);
        marked.retain(|mark| mark.generation > 0);
        assert_eq!((marked.get(&[1; 3]), marked.get(&[2; 3]), marked.len()), (&[mark(1, 1)][..], &[][..], 1));
    }

    #[test]
    fn found_spans_are_maximal() {
        let mut recent = RecentWindows::default();
        recent.add(b"abcdefghijklmnopqrstuvwxyz0123456789", 1_000);
        let spans = |text: &[u8]| {
            let found = marked_ranges(text, |window, marks| marks.extend(recent.has(window).then_some(())));
            found.into_iter().map(|(range, ())| range).collect::<Vec<_>>()
        };
        assert_eq!(spans(b"??abcdefghijklmnopqrstuvwxyz??456789"), vec![2..28; 1]);
        assert!(spans(b"abcdefghijklmnopqrs").is_empty());
        assert_eq!(spans(b"abcdefghijklmnopqrst"), vec![0..20; 1]);
    }

    #[test]
    fn the_oldest_windows_are_forgotten() {
        let mut recent = RecentWindows::default();
        let text: Vec<u8> = (0..2_000_u32).flat_map(|i| format!("{i:04}").into_bytes()).collect();
        recent.add(&text, 1_000);
        assert!(recent.len() <= 2_000);
        let all: Vec<WindowFingerprint> = windows(&text).collect();
        assert!(recent.has(all.last().unwrap()) && !recent.has(all.first().unwrap()));
    }
}
