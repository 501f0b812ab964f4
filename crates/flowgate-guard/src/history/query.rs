//! Prepares the messages of a client for the comparison with texts that the client was shown, so that a text which the
//! client sends back keeps its label. `quotation_memory` looks the prepared messages up.
//!
//! Adjacent parts and messages are joined: a page whose lines are too short to be recognised alone is recognised as a
//! whole. The texts are compared in each of their *readings*: as written, with their base64 decoded, and in ASCII (see
//! `readings`). A client may insert its own words between the lines. Therefore the reading as written is compared in
//! further forms: every second line alone, every third line alone, and all lines without the prefix or number that each
//! begins with.

use std::ops::Range;
use std::sync::Arc;

use super::escapes::SourceChar;
use super::markup_mask::markup_mask;
use super::normalization::{NormalizedText, append_normalized};
use super::readings::{ComparisonSide, READINGS, Readings};
use super::windows::{LEAST_ACROSS_BORDER, WindowFingerprint, marked_ranges};

/// The longest text that is also compared with lines left out, in bytes of the normal form. A longer text is assumed
/// not to consist of short lines.
const LONGEST_WITH_LINES: usize = 1 << 18;

/// The characters of consecutive texts, all in the same reading: see `readings`.
type ConsecutiveTexts = Arc<[Arc<Vec<SourceChar>>]>;

/// One normal form of consecutive texts, joined. Each byte has the number of its character in its text.
#[derive(Debug, Default)]
struct JoinedText {
    normalized: NormalizedText<u32>,
    /// The start of each run of adjacent bytes, as an offset into the bytes, and the text that the run comes from.
    runs: Vec<(usize, usize)>,
    texts: ConsecutiveTexts,
}

impl JoinedText {
    /// Creates an empty normal form of these texts, to which runs are added.
    fn new(texts: &ConsecutiveTexts) -> Self {
        Self { texts: Arc::clone(texts), ..Self::default() }
    }

    /// Begins a run in the text with this number: what follows is not adjacent to what precedes it.
    fn begin_run(&mut self, text: usize) {
        self.runs.push((self.normalized.bytes.len(), text));
    }

    /// Returns the number of the run that contains an offset; `None` if there is no run.
    fn run_at(&self, at: usize) -> Option<usize> {
        self.runs.partition_point(|(start, _)| *start <= at).checked_sub(1)
    }

    /// Returns the character that the byte at an offset comes from.
    fn char_at(&self, at: usize) -> Option<&SourceChar> {
        let (_, text) = self.runs.get(self.run_at(at)?)?;
        self.texts.get(*text)?.get(usize::try_from(*self.normalized.positions.get(at)?).ok()?)
    }

    /// Returns the normalized bytes in a range of offsets; none if the range is not within the text.
    fn bytes(&self, range: &Range<usize>) -> &[u8] {
        self.normalized.bytes.get(range.clone()).unwrap_or_default()
    }

    /// Shortens a range that extends over several runs; runs are the contiguous pieces of which the joined text
    /// consists. Removes the part of the range in the first run if that part has fewer than [`LEAST_ACROSS_BORDER`]
    /// bytes and is not the whole run, because a few bytes match by chance. Does the same in the last run.
    fn trimmed_at_borders(&self, range: Range<usize>) -> Range<usize> {
        let start_of =
            |run: usize| self.runs.get(run).map_or(self.normalized.bytes.len(), |(start, _)| *start);
        let (first, last) = (self.run_at(range.start), self.run_at(range.end.saturating_sub(1)));
        let Some((first, last)) = first.zip(last).filter(|(first, last)| first < last) else { return range };
        let (first_end, has_whole_first) = (start_of(first + 1), range.start == start_of(first));
        let keeps_first = has_whole_first || first_end - range.start >= LEAST_ACROSS_BORDER;
        let (last_start, has_whole_last) = (start_of(last), range.end == start_of(last + 1));
        let keeps_last = has_whole_last || range.end - last_start >= LEAST_ACROSS_BORDER;
        let start = if keeps_first { range.start } else { first_end };
        let end = if keeps_last { range.end } else { last_start };
        start..end
    }

    /// Maps a byte range of the joined, normalized text to the original texts: yields for each run in the range the
    /// number of its text, and the byte range there. A run is a part of the joined text that is contiguous in one text.
    fn source_ranges(&self, range: &Range<usize>) -> impl Iterator<Item = (usize, Range<usize>)> {
        let runs = self.run_at(range.start).unwrap_or(0)..self.runs.len();
        runs.map_while(move |number| {
            let (start, text) = *self.runs.get(number)?;
            let end = self.runs.get(number + 1).map_or(self.normalized.bytes.len(), |(next, _)| *next);
            let (from, to) = (start.max(range.start), end.min(range.end));
            (start < range.end).then_some((text, from, to))
        })
        .filter(|(_, from, to)| from < to)
        .filter_map(|(text, from, to)| {
            let (first, last) = (self.char_at(from)?, self.char_at(to.checked_sub(1)?)?);
            Some((text, first.range().start..last.range().end))
        })
    }
}

/// Consecutive texts of a client's messages, in every normal form of every reading that is compared with the memory.
#[derive(Debug)]
pub(super) struct QuotationQuery {
    normalized_texts: Vec<JoinedText>,
    /// The number of texts.
    texts: usize,
}

impl QuotationQuery {
    /// Computes the normal forms of consecutive texts in each reading (numbers below [`READINGS`]): as written, decoded
    /// from base64 once or several times, and decoded with other characters replaced by ASCII characters.
    pub(super) fn new(texts: &[&str]) -> Self {
        let readings_of_texts: Vec<Readings> =
            texts.iter().map(|text| Readings::of(text, ComparisonSide::Compared)).collect();
        let mut normalized_texts = Vec::new();
        for number in 0..READINGS {
            let chars_of_texts: Vec<Option<_>> =
                readings_of_texts.iter().map(|readings| readings.get(number)).collect();
            if chars_of_texts.iter().any(Option::is_some) {
                // A text has no reading of this number if it would equal an earlier one. It then contributes its fully
                // decoded text, or the text as written if nothing was decoded, so that texts stay adjacent.
                let complete = readings_of_texts
                    .iter()
                    .zip(chars_of_texts)
                    .map(|(readings, chars)| chars.unwrap_or_else(|| readings.last()));
                // Reading 0 is the texts as written. Only this reading has forms in which lines or prefixes of lines
                // are left out; the same holds for remembered texts (`remembered_texts`).
                let has_lines = number == 0;
                add_normalized(&complete.collect(), has_lines, &mut normalized_texts);
            }
        }
        Self { normalized_texts, texts: texts.len() }
    }

    /// Returns whether `is_known` accepts any window (a stretch of a fixed number of bytes) of any normal form.
    pub(super) fn has_window(&self, is_known: impl Fn(&WindowFingerprint) -> bool) -> bool {
        let has_known = |joined: &JoinedText| {
            super::windows::windows(&joined.normalized.bytes).any(|window| is_known(&window))
        };
        self.normalized_texts.iter().any(has_known)
    }

    /// Returns for each text the byte ranges that are covered by remembered windows, each range with a mark. A mark is
    /// what the caller wants to know about a window, such as the number of its label. `marks` looks a window up, and
    /// adds its marks to the vector; it adds none for a window that is not remembered.
    pub(super) fn find_marked<M: Copy + Ord>(
        &self,
        mut marks: impl FnMut(&WindowFingerprint, &mut Vec<M>),
    ) -> Vec<Vec<(Range<usize>, M)>> {
        let mut ranges_of_texts: Vec<Vec<(Range<usize>, M)>> = (0..self.texts).map(|_| Vec::new()).collect();
        for joined in &self.normalized_texts {
            for (range, mark) in marked_ranges(&joined.normalized.bytes, &mut marks) {
                for (text, bytes) in joined.source_ranges(&joined.trimmed_at_borders(range)) {
                    if let Some(ranges) = ranges_of_texts.get_mut(text) {
                        ranges.push((bytes, mark));
                    }
                }
            }
        }
        ranges_of_texts
    }
}

/// Adds the normal forms of one reading of consecutive texts to `normalized_texts`: letters and digits, symbols beyond
/// ASCII, invisible characters, and, if there is markup, the letters and digits outside of it. If `has_lines` is true,
/// also adds the forms in which lines or the prefixes of lines are left out.
fn add_normalized(texts: &ConsecutiveTexts, has_lines: bool, normalized_texts: &mut Vec<JoinedText>) {
    let (alphanumeric, starts) = lines_of(texts);
    let mut symbols = JoinedText::new(texts);
    let mut invisible = JoinedText::new(texts);
    let mut without_markup = JoinedText::new(texts);
    let mut has_markup = false;
    for (text_index, chars) in texts.iter().enumerate() {
        for joined in [&mut symbols, &mut invisible, &mut without_markup] {
            joined.begin_run(text_index);
        }
        // `None` if the text has no markup.
        let is_markup = markup_mask(chars);
        has_markup |= is_markup.is_some();
        for (at, char) in chars.iter().enumerate() {
            let position = u32::try_from(at).unwrap_or(u32::MAX);
            if !char.c.is_ascii() {
                // The letters and digits were computed above, so here they are discarded.
                append_normalized(
                    char.c,
                    position,
                    &mut NormalizedText::default(),
                    &mut symbols.normalized,
                    &mut invisible.normalized,
                );
            }
            let is_in_markup = is_markup.as_ref().and_then(|is_markup| is_markup.get(at)) == Some(&true);
            if !is_in_markup {
                append_normalized(
                    char.c,
                    position,
                    &mut without_markup.normalized,
                    &mut NormalizedText::default(),
                    &mut NormalizedText::default(),
                );
            }
        }
    }
    if has_lines && alphanumeric.normalized.bytes.len() <= LONGEST_WITH_LINES {
        normalized_texts.extend(line_variants(&alphanumeric, &starts));
    }
    normalized_texts.extend([alphanumeric, symbols, invisible]);
    normalized_texts.extend(has_markup.then_some(without_markup));
}

/// Returns whether a line ends at a character: cells of tables count as lines.
fn ends_line(c: char) -> bool {
    matches!(c, '\n' | '\r' | '\t' | '|' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// Returns the letters and digits of consecutive texts, and the offsets of lines in them: where each line begins, and
/// where the last one ends.
fn lines_of(texts: &ConsecutiveTexts) -> (JoinedText, Vec<usize>) {
    let (mut alphanumeric, mut starts) = (JoinedText::new(texts), vec![0]);
    let length = texts.iter().map(|chars| chars.len()).sum();
    alphanumeric.normalized.bytes.reserve(length);
    alphanumeric.normalized.positions.reserve(length);
    for (text, chars) in texts.iter().enumerate() {
        alphanumeric.begin_run(text);
        for (at, char) in chars.iter().enumerate() {
            if ends_line(char.c) {
                starts.push(alphanumeric.normalized.bytes.len());
            }
            let position = u32::try_from(at).unwrap_or(u32::MAX);
            // Only letters and digits are needed here: symbols and invisible characters are discarded.
            append_normalized(
                char.c,
                position,
                &mut alphanumeric.normalized,
                &mut NormalizedText::default(),
                &mut NormalizedText::default(),
            );
        }
        starts.push(alphanumeric.normalized.bytes.len());
    }
    starts.dedup();
    (alphanumeric, starts)
}

/// Returns the ranges between consecutive offsets.
fn ranges(starts: &[usize]) -> Vec<Range<usize>> {
    starts.iter().zip(starts.iter().skip(1)).map(|(from, to)| *from..*to).collect()
}

/// Returns variants of the texts that recognise a quotation although the client inserted lines between the quoted
/// lines, or a prefix before each of them. The variants are every second line, every third line (from each possible
/// first line), and all lines with their prefixes removed.
fn line_variants(alphanumeric: &JoinedText, starts: &[usize]) -> Vec<JoinedText> {
    let lines = ranges(starts);
    let join = |lines: &mut dyn Iterator<Item = &Range<usize>>| {
        let mut joined = JoinedText::new(&alphanumeric.texts);
        for line in lines {
            let run = alphanumeric.run_at(line.start).and_then(|run| alphanumeric.runs.get(run));
            let Some((_, text)) = run else { continue };
            joined.begin_run(*text);
            joined.normalized.bytes.extend_from_slice(alphanumeric.bytes(line));
            joined
                .normalized
                .positions
                .extend_from_slice(alphanumeric.normalized.positions.get(line.clone()).unwrap_or_default());
        }
        joined
    };
    let mut normalized_texts = Vec::new();
    for step in [2, 3] {
        if lines.len() > step {
            normalized_texts.extend((0..step).map(|from| join(&mut lines.iter().skip(from).step_by(step))));
        }
    }
    normalized_texts
        .extend(prefix_stripped_variants(alphanumeric, &lines).iter().map(|lines| join(&mut lines.iter())));
    normalized_texts
}

/// Returns up to two variants of the lines. In the first variant, the lines have neither their leading numbers nor the
/// prefix that each shares with its neighbours. In the second one, the lines of the first also lack the numbers that
/// they then begin with, such as those of a quoted list. A variant that changes nothing is left out.
fn prefix_stripped_variants(alphanumeric: &JoinedText, lines: &[Range<usize>]) -> Vec<Vec<Range<usize>>> {
    if lines.len() < 2 {
        return Vec::new();
    }
    let stripped = without_line_prefixes(alphanumeric, lines);
    let stripped_twice: Vec<Range<usize>> =
        stripped.iter().map(|line| without_number(alphanumeric, line)).collect();
    let is_new = [stripped != lines, stripped_twice != stripped];
    [stripped, stripped_twice]
        .into_iter()
        .zip(is_new)
        .filter(|(_, is_new)| *is_new)
        .map(|(lines, _)| lines)
        .collect()
}

/// Returns the letters and digits of a remembered text without the prefixes and numbers of its lines, in up to two
/// variants, because a client that quotes the text may strip these prefixes. Returns an empty list if fewer than half
/// of the lines have a prefix or a number, if there is only one line, or if the letters and digits have more than
/// [`LONGEST_WITH_LINES`] bytes.
pub(super) fn stripped_lines(chars: &Arc<Vec<SourceChar>>) -> Vec<Vec<u8>> {
    let texts: ConsecutiveTexts = Arc::new([Arc::clone(chars)]);
    let (alphanumeric, starts) = lines_of(&texts);
    // `starts` also has the end of the text, so two lines have three offsets.
    if starts.len() < 3 || alphanumeric.normalized.bytes.len() > LONGEST_WITH_LINES {
        return Vec::new();
    }
    let lines: Vec<Range<usize>> = ranges(&starts);
    let join =
        |lines: &Vec<Range<usize>>| lines.iter().flat_map(|line| alphanumeric.bytes(line)).copied().collect();
    // A few lines can have a common prefix by chance, so at least half of the lines must have one.
    let is_list = |stripped: &&Vec<Range<usize>>| {
        let changed = stripped.iter().zip(&lines).filter(|(stripped, line)| stripped != line).count();
        changed * 2 >= lines.len()
    };
    prefix_stripped_variants(&alphanumeric, &lines).iter().filter(is_list).map(join).collect()
}

/// Returns the line without its leading number, if the text has a character between the number and the next letter
/// or digit, or if the line has nothing but the number. A number has up to three digits, or is one letter, or a
/// Roman numeral of up to five characters. `alphanumeric` has the letters and digits of the texts, and `line` is a
/// range of them.
fn without_number(alphanumeric: &JoinedText, line: &Range<usize>) -> Range<usize> {
    let bytes = alphanumeric.bytes(line);
    // Whether the letters or digits before and at an offset are adjacent in the text as written.
    let joins_next_char = |at: usize| {
        let before = at.checked_sub(1).and_then(|before| alphanumeric.char_at(line.start + before));
        let next = alphanumeric.char_at(line.start + at).filter(|_| line.start + at < line.end);
        matches!((before, next), (Some(before), Some(next)) if before.end >= next.start)
    };
    // A word of more than five bytes is no number, so its end is not searched.
    let word_length = (1..bytes.len().min(6)).find(|at| !joins_next_char(*at)).unwrap_or(bytes.len());
    let first_word = bytes.get(..word_length).unwrap_or_default();
    let is_number = match first_word {
        [] => false,
        [one] => one.is_ascii_alphanumeric(),
        _ if first_word.iter().all(u8::is_ascii_digit) => word_length <= 3,
        _ => word_length <= 5 && first_word.iter().all(|byte| b"ivxlcdm".contains(byte)),
    };
    line.start + if is_number { word_length } else { 0 }..line.end
}

/// Returns the lines without their numbers and without the prefix that each shares with its neighbours: of the
/// prefixes shared with the line before and the line after, the shorter one. `alphanumeric` has the letters and
/// digits of the texts, and `lines` are ranges of them.
fn without_line_prefixes(alphanumeric: &JoinedText, lines: &[Range<usize>]) -> Vec<Range<usize>> {
    let bytes_of = |line: &Range<usize>| alphanumeric.bytes(line);
    let lines: Vec<Range<usize>> = lines.iter().map(|line| without_number(alphanumeric, line)).collect();
    let common_length = |one: Option<&Range<usize>>, other: Option<&Range<usize>>| {
        let both = one.zip(other)?;
        Some(bytes_of(both.0).iter().zip(bytes_of(both.1)).take_while(|(one, other)| one == other).count())
    };
    // The first and the last line have only one neighbour, and a single line has none: nothing is then removed.
    let shorter = |(at, line): (usize, &Range<usize>)| {
        let before = at.checked_sub(1).and_then(|before| common_length(lines.get(before), Some(line)));
        let after = common_length(Some(line), lines.get(at + 1));
        line.start + before.into_iter().chain(after).min().unwrap_or(0)..line.end
    };
    lines.iter().enumerate().map(shorter).collect()
}
