//! Texts that are compared with what is remembered: the parts and messages that one client sends next to each other.
//!
//! A page whose lines are too short to be recognised alone is recognised when they are joined. A client may put its own words
//! between them, so the lines are also joined without every second one, without every two of three, and without what all of
//! them begin or are numbered with.

use std::ops::Range;

use super::normal::{View, characters, markup, put};
use super::windows::{Window, found};

/// Where a byte of a view stands: in which text, in which of its lines, and in which bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Place {
    text: u32,
    /// What is not next to each other in this view has other numbers.
    line: u32,
    start: u32,
    end: u32,
}

/// How much is compared with lines left out, in bytes of the normal form: whoever sends more at once sends no short lines.
const MOST_LINES: usize = 1 << 18;

/// Texts in normal form, in all ways in which they are compared.
#[derive(Debug)]
pub(super) struct Query {
    views: Vec<View<Place>>,
    texts: usize,
}

fn short(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

impl Query {
    /// Reads texts that follow each other.
    pub(super) fn new(texts: &[&str]) -> Self {
        let (mut letters, mut signs, mut unseen) = (View::default(), View::default(), View::default());
        let (mut plain, mut has_markup) = (View::default(), false);
        // Where lines begin among the letters.
        let mut starts = vec![0];
        for (text, said) in texts.iter().enumerate() {
            let all = characters(said);
            let hidden = markup(&all);
            has_markup |= hidden.is_some();
            for (at, char) in all.iter().enumerate() {
                if matches!(char.c, '\n' | '\r' | '\t' | '|') {
                    starts.push(letters.bytes.len());
                }
                let place =
                    Place { text: short(text), line: 0, start: short(char.start), end: short(char.end) };
                put(char.c, place, &mut letters, &mut signs, &mut unseen);
                if hidden.as_ref().and_then(|hidden| hidden.get(at)) != Some(&true) {
                    put(char.c, place, &mut plain, &mut View::default(), &mut View::default());
                }
            }
            starts.push(letters.bytes.len());
        }
        starts.dedup();
        let mut views =
            if letters.bytes.len() > MOST_LINES { Vec::new() } else { without_lines(&letters, &starts) };
        views.extend([letters, signs, unseen]);
        views.extend(has_markup.then_some(plain));
        Self { views, texts: texts.len() }
    }

    /// Whether a window of it is one that is asked for.
    pub(super) fn has(&self, is_asked: impl Fn(&Window) -> bool) -> bool {
        self.views.iter().any(|view| super::windows::windows(&view.bytes).any(|window| is_asked(&window)))
    }

    /// Where windows have marks: for each text its bytes and what marks them.
    pub(super) fn find<M: Copy + Ord>(
        &self,
        mut marks: impl FnMut(&Window, &mut Vec<M>),
    ) -> Vec<Vec<(Range<usize>, M)>> {
        let mut all: Vec<Vec<(Range<usize>, M)>> = (0..self.texts).map(|_| Vec::new()).collect();
        for view in &self.views {
            for (range, mark) in found(&view.bytes, &mut marks) {
                let places = view.places.get(range).unwrap_or_default();
                for same in places.chunk_by(|one, next| (one.text, one.line) == (next.text, next.line)) {
                    let (Some(first), Some(last)) = (same.first(), same.last()) else { continue };
                    let at = usize::try_from(first.text).ok().and_then(|text| all.get_mut(text));
                    let Some(at) = at else { continue };
                    let bytes =
                        usize::try_from(first.start).unwrap_or(0)..usize::try_from(last.end).unwrap_or(0);
                    at.push((bytes, mark));
                }
            }
        }
        all
    }
}

/// The letters with some of the lines left out, or parts of all of them.
fn without_lines(letters: &View<Place>, starts: &[usize]) -> Vec<View<Place>> {
    let lines: Vec<Range<usize>> =
        starts.iter().zip(starts.iter().skip(1)).map(|(from, to)| *from..*to).collect();
    let join = |lines: &mut dyn Iterator<Item = (usize, Range<usize>)>| {
        let mut view = View::default();
        for (number, line) in lines {
            let mut part = View {
                bytes: letters.bytes.get(line.clone()).unwrap_or_default().to_vec(),
                places: letters.places.get(line).unwrap_or_default().to_vec(),
            };
            part.places.iter_mut().for_each(|place| place.line = short(number));
            view.extend(&part);
        }
        view
    };
    let mut views = Vec::new();
    for step in [2, 3] {
        if lines.len() > step {
            views.extend(
                (0..step).map(|from| join(&mut lines.iter().cloned().enumerate().skip(from).step_by(step))),
            );
        }
    }
    if lines.len() > 1 {
        let bare = bare(letters, &lines);
        let barer: Vec<Range<usize>> = bare.iter().map(|line| without_number(letters, line)).collect();
        let is_new = [bare != lines, barer != bare];
        for (each, _) in [bare, barer].into_iter().zip(is_new).filter(|(_, is_new)| *is_new) {
            views.push(join(&mut each.into_iter().enumerate()));
        }
    }
    views
}

/// A line without the number that it begins with: up to three digits, behind which stands something that is no letter.
fn without_number(letters: &View<Place>, line: &Range<usize>) -> Range<usize> {
    let bytes = letters.bytes.get(line.clone()).unwrap_or_default();
    let places = letters.places.get(line.clone()).unwrap_or_default();
    let touches = |at: usize| match (at.checked_sub(1).and_then(|before| places.get(before)), places.get(at))
    {
        (Some(before), Some(next)) => before.end >= next.start,
        _ => false,
    };
    let count = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let run = (1..count).find(|at| !touches(*at)).unwrap_or(count);
    let is_number = (1..=3).contains(&run) && !touches(run);
    line.start + if is_number { run } else { 0 }..line.end
}

/// The lines without their numbers, and without what they begin with as their neighbours do.
fn bare(letters: &View<Place>, lines: &[Range<usize>]) -> Vec<Range<usize>> {
    let of = |line: &Range<usize>| letters.bytes.get(line.clone()).unwrap_or_default();
    let lines: Vec<Range<usize>> = lines.iter().map(|line| without_number(letters, line)).collect();
    let common = |one: Option<&Range<usize>>, other: Option<&Range<usize>>| {
        let both = one.zip(other)?;
        Some(of(both.0).iter().zip(of(both.1)).take_while(|(one, other)| one == other).count())
    };
    let shorter = |(at, line): (usize, &Range<usize>)| {
        let before = at.checked_sub(1).and_then(|before| common(lines.get(before), Some(line)));
        let after = common(Some(line), lines.get(at + 1));
        line.start + before.into_iter().chain(after).min().unwrap_or(0)..line.end
    };
    lines.iter().enumerate().map(shorter).collect()
}
