//! The built-in font: a subset of Noto Sans; its licence is in fonts/OFL.txt.

use std::sync::LazyLock;

use ttf_parser::{Face, GlyphId, OutlineBuilder};

use super::scene::{At, Segment};

static FACE: LazyLock<Face<'static>> = LazyLock::new(|| {
    Face::parse(include_bytes!("../../fonts/NotoSans-subset.ttf"), 0).expect("the embedded font is whole")
});

/// The glyph of a letter; letters that the font lacks are its empty box.
fn glyph(letter: char) -> GlyphId {
    FACE.glyph_index(letter).unwrap_or(GlyphId(0))
}

fn per_unit(size: f64) -> f64 {
    size / f64::from(FACE.units_per_em())
}

/// The width of a line of text at a letter size, in the same unit.
pub(super) fn width(text: &str, size: f64) -> f64 {
    let units: u32 =
        text.chars().map(|letter| u32::from(FACE.glyph_hor_advance(glyph(letter)).unwrap_or(0))).sum();
    f64::from(units) * per_unit(size)
}

/// `text` as it is where it fits into `most`, else its beginning and an ellipsis.
pub(super) fn fitted(text: &str, size: f64, most: f64) -> String {
    // A browser may take another font, a little wider.
    let most = most * 0.96;
    if width(text, size) <= most {
        return text.to_owned();
    }
    let mut fitted = text.to_owned();
    while fitted.pop().is_some() {
        let cut = format!("{}…", fitted.trim_end());
        if width(&cut, size) <= most {
            return cut;
        }
    }
    String::new()
}

/// `text` as it is where it fits into `most`, else its beginning, an ellipsis and its end: labels often
/// differ at their ends.
pub(super) fn fitted_label(text: &str, size: f64, most: f64) -> String {
    if width(text, size) <= most * 0.96 {
        return text.to_owned();
    }
    let letters: Vec<char> = text.chars().collect();
    (1..letters.len())
        .rev()
        .map(|kept| {
            let (head, tail) = (&letters[..kept / 2], &letters[letters.len() - kept.div_ceil(2)..]);
            head.iter().chain(&['…']).chain(tail).collect::<String>()
        })
        .find(|cut| width(cut, size) <= most * 0.96)
        .unwrap_or_default()
}

/// The outline of a line of text that begins at `at`, on its baseline.
pub(super) fn outline(text: &str, size: f64, at: At) -> Vec<Segment> {
    let mut pen = Pen { scale: per_unit(size), origin: at, segments: Vec::new() };
    for letter in text.chars() {
        let glyph = glyph(letter);
        FACE.outline_glyph(glyph, &mut pen);
        pen.origin.0 += f64::from(FACE.glyph_hor_advance(glyph).unwrap_or(0)) * pen.scale;
    }
    pen.segments
}

struct Pen {
    scale: f64,
    origin: At,
    segments: Vec<Segment>,
}

impl Pen {
    fn at(&self, x: f32, y: f32) -> At {
        (self.origin.0 + f64::from(x) * self.scale, self.origin.1 - f64::from(y) * self.scale)
    }
}

impl OutlineBuilder for Pen {
    fn move_to(&mut self, x: f32, y: f32) {
        self.segments.push(Segment::Move(self.at(x, y)));
    }

    fn line_to(&mut self, x: f32, y: f32) {
        self.segments.push(Segment::Line(self.at(x, y)));
    }

    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        self.segments.push(Segment::Quadratic(self.at(x1, y1), self.at(x, y)));
    }

    fn curve_to(&mut self, _: f32, _: f32, _: f32, _: f32, _: f32, _: f32) {
        unreachable!("a TrueType outline has no cubic curves");
    }

    fn close(&mut self) {
        self.segments.push(Segment::Close);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_to_their_place() {
        assert_eq!(fitted("heron", 12.0, 100.0), "heron");
        let cut = fitted("Angelic/character01", 12.0, 60.0);
        assert!(cut.ends_with('…') && cut.starts_with("Ang"), "{cut}");
        assert!(width(&cut, 12.0) <= 60.0);
        assert_eq!(fitted("heron", 12.0, 1.0), "");
        let cut = fitted_label("Angelic/character01", 12.0, 60.0);
        assert!(cut.starts_with("An") && cut.contains('…') && cut.ends_with("01"), "{cut}");
        assert_eq!(fitted_label("heron", 12.0, 1.0), "");
    }

    #[test]
    fn letters_the_font_lacks_are_boxes_not_holes() {
        assert!(width("鷺", 10.0) > 0.0);
        assert!(!outline("鷺", 10.0, (0.0, 0.0)).is_empty());
    }

    #[test]
    fn every_letter_of_the_figures_is_in_the_font() {
        for letter in "0123456789 %×±–—…·äéßŁλЖ@()/_".chars() {
            assert!(FACE.glyph_index(letter).is_some(), "{letter}");
        }
    }
}
