//! Large inputs: inputs of the corpus in which one part is repeated. In the 16 KiB of the fuzzer's inputs, quadratic costs and
//! unbounded recursion do no harm.

use gallerist_util::random::Random;

/// Ends of parts: a byte that separates or encloses something in the formats that are text.
const ENDS: &[u8] = b"\n,{}[]()\"':;=& \t/.|\x1e\0";

/// The longest part.
const LONGEST: usize = 4000;

/// How a copy of a part differs from the others.
#[derive(Clone, Copy, Debug)]
enum Copies {
    /// Not at all.
    Same,
    /// Its index replaces every number.
    Numbers,
    /// Its index is appended to the first word.
    Words,
    /// Its index is appended to every quoted text.
    Quoted,
}

/// An input, split around the part that is repeated.
#[derive(Clone, Debug)]
pub struct Growth<'a> {
    before: &'a [u8],
    part: &'a [u8],
    repeated: Repeated<'a>,
    after: &'a [u8],
}

/// How the copies of a part are arranged.
#[derive(Clone, Copy, Debug)]
enum Repeated<'a> {
    /// One after the other.
    Row { copies: Copies, separator: &'a [u8] },
    /// Each in the one before: the part opens a bracket around `content`, and `close` closes it.
    Nested { content: &'a [u8], close: &'a [u8] },
}

impl<'a> Growth<'a> {
    /// A part of one of the inputs at random, the same for the same target and number.
    ///
    /// # Panics
    /// Where no input has a part.
    pub fn drawn(corpus: &'a [Vec<u8>], target: &str, number: u64) -> Self {
        let mut random = Random::new(1, target, number, 0);
        let draw = || Self::draw(&corpus[random.below(corpus.len())], &mut random);
        std::iter::repeat_with(draw).take(1000).flatten().next().expect("an input with a part")
    }

    /// Lines, a bracket with its content, or whatever is between two [`ENDS`]. `None` where the draw has found none.
    fn draw(input: &'a [u8], random: &mut Random) -> Option<Self> {
        let (from, to) = match random.below(3) {
            0 => lines(input, random),
            1 => bracket(input, random)?,
            _ => between(input, random)?,
        };
        if from >= to || to - from > LONGEST {
            return None;
        }
        let part = &input[from..to];
        if part.first().is_some_and(|first| b"{[(".contains(first)) && random.chance(0.5) {
            // The part that is nested includes what precedes the bracket: `key = [`.
            let far = from.saturating_sub(60);
            let starts: Vec<usize> = (far..=from).filter(|at| is_end(input, *at)).collect();
            let start = starts[random.below(starts.len())];
            return Some(Growth {
                before: &input[..start],
                part: &input[start..=from],
                repeated: Repeated::Nested { content: &input[from..to], close: &input[to - 1..to] },
                after: &input[to..],
            });
        }
        let repeated = Repeated::Row {
            copies: [Copies::Same, Copies::Numbers, Copies::Words, Copies::Quoted][random.below(4)],
            separator: [&b""[..], b"", b",", b"\n", b" "][random.below(5)],
        };
        Some(Growth { before: &input[..from], part, repeated, after: &input[from..] })
    }

    /// The input with so many copies that it has about `bytes` bytes.
    pub fn grown(&self, bytes: usize) -> Vec<u8> {
        let mut grown = self.before.to_vec();
        match self.repeated {
            Repeated::Nested { content, close } => {
                let count = bytes / (self.part.len() + close.len());
                grown.extend(self.part.repeat(count));
                grown.extend(content);
                grown.extend(close.repeat(count));
            }
            Repeated::Row { copies, separator } => {
                let mut number = 0_u32;
                while grown.len() < bytes {
                    grown.extend(copies.of(self.part, number));
                    grown.extend(separator);
                    number += 1;
                }
            }
        }
        grown.extend(self.after);
        grown
    }
}

impl Copies {
    fn of(self, part: &[u8], number: u32) -> Vec<u8> {
        let number = number.to_string().into_bytes();
        let mut copy = Vec::with_capacity(part.len() + number.len());
        let (mut last, mut quoted, mut done) = (0_u8, false, false);
        for &byte in part {
            match self {
                Copies::Same => {}
                Copies::Numbers if byte.is_ascii_digit() => {
                    if !last.is_ascii_digit() {
                        copy.extend(&number);
                    }
                    last = byte;
                    continue;
                }
                Copies::Numbers => {}
                Copies::Words => {
                    if last.is_ascii_alphabetic() && !byte.is_ascii_alphabetic() && !done {
                        copy.extend(&number);
                        done = true;
                    }
                }
                Copies::Quoted => {
                    if byte == b'"' {
                        if quoted {
                            copy.extend(&number);
                        }
                        quoted = !quoted;
                    }
                }
            }
            copy.push(byte);
            last = byte;
        }
        copy
    }
}

fn is_end(input: &[u8], at: usize) -> bool {
    let is = |at: usize| input.get(at).is_some_and(|byte| ENDS.contains(byte));
    at == 0 || at == input.len() || is(at) || is(at - 1)
}

/// One to four lines, with their ends.
fn lines(input: &[u8], random: &mut Random) -> (usize, usize) {
    let ends = (0..input.len()).filter(|at| input[*at] == b'\n').map(|at| at + 1);
    let starts: Vec<usize> = std::iter::once(0).chain(ends).collect();
    let first = random.below(starts.len());
    let last = first + 1 + random.below(4);
    (starts[first], starts.get(last).copied().unwrap_or(input.len()))
}

/// A bracket with its content, or the content alone.
fn bracket(input: &[u8], random: &mut Random) -> Option<(usize, usize)> {
    let opening: Vec<usize> = (0..input.len()).filter(|at| b"{[(".contains(&input[*at])).collect();
    if opening.is_empty() {
        return None;
    }
    let from = opening[random.below(opening.len())];
    let mut depth = 0;
    for (at, byte) in input.iter().enumerate().skip(from) {
        match byte {
            b'{' | b'[' | b'(' => depth += 1,
            b'}' | b']' | b')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(if random.chance(0.3) { (from + 1, at) } else { (from, at + 1) });
        }
    }
    None
}

fn between(input: &[u8], random: &mut Random) -> Option<(usize, usize)> {
    let ends: Vec<usize> = (0..=input.len()).filter(|at| is_end(input, *at)).collect();
    let (a, b) = (ends[random.below(ends.len())], ends[random.below(ends.len())]);
    (a != b).then_some((a.min(b), a.max(b)))
}
