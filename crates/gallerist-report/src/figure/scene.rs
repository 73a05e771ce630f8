//! A drawing as a list of shapes, and its two outputs: SVG here, pixels in `raster`.

use std::fmt::Write as _;

use crate::Picture;
use crate::chart::COLOURS;

/// A place: x to the right, y down.
pub(super) type At = (f64, f64);

/// The role of a colour. Its value depends on the theme.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    Page,
    Ink,
    Soft,
    Rule,
    Tile,
    Right,
    Wrong,
    /// Lines of a chart; the hues repeat after [`SERIES`].
    Series(usize),
    /// Classes of a map; the hues repeat after [`HUES`].
    Hue(usize),
}

/// The number of colours of lines. They are those of the page, which most colour-blind readers can distinguish.
pub(super) const SERIES: usize = COLOURS;
/// Colours of classes.
pub(super) const HUES: usize = 10;

gallerist_util::named_values! {
    /// The colours of a figure.
    #[derive(Default)]
    pub enum Theme {
        /// Dark text on a light background.
        #[default]
        Light = "light", "";
        /// Light text on a dark background.
        Dark = "dark", "";
    }
}

impl Tone {
    /// Red, green and blue.
    pub(super) fn rgb(self, theme: Theme) -> u32 {
        // The first seven and the series are page.css's; the hues are Paul Tol's `muted` and a brown,
        // darker on light and lighter on dark ground.
        let (light, dark) = match self {
            Self::Page => (0xfdfdfb, 0x171716),
            Self::Ink => (0x1d1d1b, 0xe8e7e1),
            Self::Soft => (0x64645e, 0xa3a29a),
            Self::Rule => (0xdcdbd4, 0x383732),
            Self::Tile => (0xf1f0eb, 0x242422),
            Self::Right => (0x00775a, 0x3fbf98),
            Self::Wrong => (0xbf3f0a, 0xff8d5e),
            Self::Series(i) => [
                (0x005fa3, 0x6fb3ea),
                (0xc2500c, 0xf2995c),
                (0x00775a, 0x46c09c),
                (0x9b3f86, 0xdc93c8),
                (0x8a6a00, 0xd9b84a),
                (0x4a8fc0, 0xa9cde6),
            ][i % SERIES],
            Self::Hue(i) => [
                (0x3b2f9e, 0x9c93f0),
                (0xcc5566, 0xee8a99),
                (0x117733, 0x5fbf7f),
                (0xb8860b, 0xe8cf7a),
                (0x1f8fc4, 0x88ccee),
                (0xaa4499, 0xe08fd6),
                (0x2a9d8f, 0x5fd0bd),
                (0x882255, 0xd9709f),
                (0x7d7d1a, 0xc9c95f),
                (0x7a4a36, 0xd0a58f),
            ][i % HUES],
        };
        if theme == Theme::Light { light } else { dark }
    }

    fn class(self) -> String {
        match self {
            Self::Series(i) => format!("s{}", i % SERIES),
            Self::Hue(i) => format!("h{}", i % HUES),
            other => format!("{other:?}").to_lowercase(),
        }
    }
}

/// A piece of a path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Segment {
    Move(At),
    Line(At),
    /// The control point and the end.
    Quadratic(At, At),
    Close,
}

/// The part of a line of text that is at the given position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Stroke {
    pub(super) tone: Tone,
    pub(super) width: f64,
    pub(super) dash: &'static [f64],
    pub(super) opacity: f64,
}

impl Stroke {
    pub(super) fn new(tone: Tone, width: f64) -> Self {
        Self { tone, width, dash: &[], opacity: 1.0 }
    }
}

#[derive(Clone, Debug)]
pub(super) enum Shape {
    Fill {
        path: Vec<Segment>,
        tone: Tone,
        opacity: f64,
    },
    Stroke {
        path: Vec<Segment>,
        stroke: Stroke,
    },
    Text {
        at: At,
        size: f64,
        anchor: Anchor,
        tone: Tone,
        halo: bool,
        text: String,
    },
    /// A picture that is fitted into a rectangle without distortion.
    Picture {
        at: At,
        size: At,
        picture: Picture,
    },
}

/// Shapes in the order in which they are drawn.
#[derive(Clone, Debug, Default)]
pub(super) struct Scene {
    pub(super) shapes: Vec<Shape>,
}

impl Scene {
    pub(super) fn text(&mut self, at: At, size: f64, anchor: Anchor, tone: Tone, text: impl Into<String>) {
        self.shapes.push(Shape::Text { at, size, anchor, tone, halo: false, text: text.into() });
    }

    pub(super) fn stroke(&mut self, path: Vec<Segment>, stroke: Stroke) {
        if !path.is_empty() {
            self.shapes.push(Shape::Stroke { path, stroke });
        }
    }

    pub(super) fn fill(&mut self, path: Vec<Segment>, tone: Tone, opacity: f64) {
        self.shapes.push(Shape::Fill { path, tone, opacity });
    }

    /// Round dots: lines of almost length 0 with round ends.
    pub(super) fn dots(&mut self, places: impl IntoIterator<Item = At>, stroke: Stroke) {
        let dot = |(x, y): At| [Segment::Move((x, y)), Segment::Line((x + 0.01, y))];
        self.stroke(places.into_iter().flat_map(dot).collect(), stroke);
    }

    /// A picture, or an empty tile without one.
    pub(super) fn picture(&mut self, at: At, size: f64, picture: Option<&Picture>) {
        self.fill(rectangle(at, (size, size)), Tone::Tile, 1.0);
        if let Some(picture) = picture {
            self.shapes.push(Shape::Picture { at, size: (size, size), picture: picture.clone() });
        }
    }

    /// The tick or the cross in its disc.
    pub(super) fn mark(&mut self, centre: At, right: bool) {
        let tone = if right { Tone::Right } else { Tone::Wrong };
        self.dots([centre], Stroke::new(Tone::Page, 19.0));
        self.dots([centre], Stroke::new(tone, 16.0));
        let place = |x: f64, y: f64| (centre.0 + x, centre.1 + y);
        let path = if right {
            vec![
                Segment::Move(place(-4.0, 0.3)),
                Segment::Line(place(-1.2, 3.1)),
                Segment::Line(place(4.2, -3.1)),
            ]
        } else {
            vec![
                Segment::Move(place(-3.2, -3.2)),
                Segment::Line(place(3.2, 3.2)),
                Segment::Move(place(3.2, -3.2)),
                Segment::Line(place(-3.2, 3.2)),
            ]
        };
        self.stroke(path, Stroke::new(Tone::Page, 2.0));
    }

    /// The picture with a frame and a mark for right or wrong, or with a thin frame if that is unknown.
    pub(super) fn framed(&mut self, at: At, size: f64, picture: Option<&Picture>, right: Option<bool>) {
        self.picture(at, size, picture);
        let Some(right) = right else {
            return self.stroke(rectangle(at, (size, size)), Stroke::new(Tone::Rule, 1.0));
        };
        let tone = if right { Tone::Right } else { Tone::Wrong };
        let frame = rectangle((at.0 - 2.5, at.1 - 2.5), (size + 5.0, size + 5.0));
        self.stroke(frame, Stroke::new(tone, 2.0));
        self.mark((at.0 + size, at.1 + size), right);
    }

    /// The scene as an SVG document. Without a theme it follows that of the reader.
    pub(super) fn to_svg(&self, size: At, description: &str, theme: Option<Theme>) -> String {
        let mut svg = String::new();
        let w = &mut svg;
        let (width, height) = (number(size.0), number(size.1));
        put(
            w,
            format_args!(
                "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
                 viewBox=\"0 0 {width} {height}\" role=\"img\" \
                 font-family=\"'Noto Sans',system-ui,'DejaVu Sans',sans-serif\">\n<title>{}</title>\n\
                 <style>{}</style>\n<rect width=\"100%\" height=\"100%\" class=\"page\"/>\n",
                escaped(description),
                self.style(theme),
            ),
        );
        for shape in &self.shapes {
            match shape {
                Shape::Fill { path, tone, opacity } => {
                    put(w, format_args!("<path class=\"{}\" d=\"{}\"", tone.class(), data(path)));
                    attribute(w, "fill-opacity", *opacity);
                    w.push_str("/>\n");
                }
                Shape::Stroke { path, stroke } => {
                    put(
                        w,
                        format_args!(
                            "<path class=\"l {}-l\" stroke-width=\"{}\" d=\"{}\"",
                            stroke.tone.class(),
                            number(stroke.width),
                            data(path)
                        ),
                    );
                    if !stroke.dash.is_empty() {
                        let dash: Vec<String> = stroke.dash.iter().map(f64::to_string).collect();
                        put(w, format_args!(" stroke-dasharray=\"{}\"", dash.join(" ")));
                    }
                    attribute(w, "stroke-opacity", stroke.opacity);
                    w.push_str("/>\n");
                }
                Shape::Text { at, size, anchor, tone, halo, text } => {
                    let anchor = match anchor {
                        Anchor::Start => "",
                        Anchor::Middle => " text-anchor=\"middle\"",
                        Anchor::End => " text-anchor=\"end\"",
                    };
                    let halo = if *halo { " halo" } else { "" };
                    put(
                        w,
                        format_args!(
                            "<text class=\"{}{halo}\" x=\"{}\" y=\"{}\" font-size=\"{}\"{anchor}>{}</text>\n",
                            tone.class(),
                            number(at.0),
                            number(at.1),
                            number(*size),
                            escaped(text)
                        ),
                    );
                }
                Shape::Picture { at, size, picture } => {
                    let hard =
                        if picture.is_pixelated() { " style=\"image-rendering:pixelated\"" } else { "" };
                    put(
                        w,
                        format_args!(
                            "<image x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"{hard} href=\"{}\"/>\n",
                            number(at.0),
                            number(at.1),
                            number(size.0),
                            number(size.1),
                            picture.data_uri()
                        ),
                    );
                }
            }
        }
        svg.push_str("</svg>\n");
        svg
    }

    fn style(&self, theme: Option<Theme>) -> String {
        let mut tones = vec![Tone::Page];
        for shape in &self.shapes {
            let tone = match shape {
                Shape::Fill { tone, .. } | Shape::Text { tone, .. } => *tone,
                Shape::Stroke { stroke, .. } => stroke.tone,
                Shape::Picture { .. } => continue,
            };
            if !tones.iter().any(|known| known.class() == tone.class()) {
                tones.push(tone);
            }
        }
        let rules = |theme: Theme| {
            let mut rules = String::new();
            for tone in &tones {
                let (class, rgb) = (tone.class(), tone.rgb(theme));
                put(&mut rules, format_args!(".{class}{{fill:#{rgb:06x}}}.{class}-l{{stroke:#{rgb:06x}}}"));
            }
            let page = Tone::Page.rgb(theme);
            put(&mut rules, format_args!(".halo{{stroke:#{page:06x}}}"));
            rules
        };
        let mut style = format!(
            ".l{{fill:none;stroke-linecap:round;stroke-linejoin:round}}\
             .halo{{paint-order:stroke;stroke-width:3.5px;stroke-linejoin:round}}{}",
            rules(theme.unwrap_or_default())
        );
        if theme.is_none() {
            put(&mut style, format_args!("@media (prefers-color-scheme:dark){{{}}}", rules(Theme::Dark)));
        }
        style
    }
}

/// A rectangle from its corner and its width and height.
pub(super) fn rectangle((x, y): At, (width, height): At) -> Vec<Segment> {
    vec![
        Segment::Move((x, y)),
        Segment::Line((x + width, y)),
        Segment::Line((x + width, y + height)),
        Segment::Line((x, y + height)),
        Segment::Close,
    ]
}

/// A line through `places`, with a gap at each `None`.
pub(super) fn polyline(places: &[Option<At>]) -> Vec<Segment> {
    let mut down = false;
    let mut path = Vec::new();
    for place in places {
        if let Some(at) = *place {
            path.push(if down { Segment::Line(at) } else { Segment::Move(at) });
        }
        down = place.is_some();
    }
    path
}

fn put(text: &mut String, what: std::fmt::Arguments<'_>) {
    text.write_fmt(what).expect("a string takes every write");
}

fn attribute(svg: &mut String, name: &str, value: f64) {
    if value < 1.0 {
        put(svg, format_args!(" {name}=\"{value}\""));
    }
}

/// Two decimals at the most.
fn number(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn data(path: &[Segment]) -> String {
    let mut data = String::new();
    for segment in path {
        match *segment {
            Segment::Move((x, y)) => put(&mut data, format_args!("M{} {}", number(x), number(y))),
            Segment::Line((x, y)) => put(&mut data, format_args!("L{} {}", number(x), number(y))),
            Segment::Quadratic((a, b), (x, y)) => {
                put(&mut data, format_args!("Q{} {} {} {}", number(a), number(b), number(x), number(y)));
            }
            Segment::Close => data.push('Z'),
        }
    }
    data
}

/// `text` escaped for XML; characters that XML cannot represent are left out.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '\t' | '\n' | '\r' => escaped.push(' '),
            '\0'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => {}
            _ => escaped.push(letter),
        }
    }
    escaped
}
