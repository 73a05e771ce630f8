//! Stand-alone figures, SVG or PNG: curves, ranked lists, maps, clusters.
//!
//! An SVG follows the reader's light or dark theme, or has a fixed one. A PNG is rendered with a built-in font and
//! needs neither a display nor installed fonts; letters other than Latin, Greek and Cyrillic are boxes in a PNG, but
//! not in an SVG.

mod axes;
mod bars;
mod clusters;
mod cmc;
mod curves;
mod distances;
mod font;
mod lines;
mod map;
mod open_set;
mod pr;
mod ranked;
mod raster;
mod scatter;
mod scene;

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use maud::{Markup, html};

use crate::ReportError;
use crate::write::write_whole;
pub use bars::{Bar, bars};
pub use clusters::{Cluster, clusters};
pub use cmc::{Cmc, cmc};
pub use curves::curves;
pub use distances::{Distances, distances};
pub use map::{MapFigure, map};
pub use open_set::{OpenSetCurve, open_set};
pub use pr::{PrecisionRecall, pr};
pub use ranked::ranked;
pub use scatter::{Mark, MarkKind, Scatter, scatter};
pub use scene::Theme;
use scene::{Anchor, At, Scene, Tone};

/// The width of every figure, in SVG's units.
const WIDTH: f64 = 960.0;
const MARGIN: f64 = 24.0;
/// The width within the margins.
const INNER: f64 = WIDTH - 2.0 * MARGIN;

/// A drawing.
///
/// ```
/// use gallerist_report::{Chart, Series, figure};
///
/// let loss = Chart {
///     title: "Loss".into(),
///     series: vec![Series::new("loss", [(1, 0.9), (2, 0.7)])],
///     ..Chart::default()
/// };
/// let figure = figure::curves("first run", &[loss]);
/// assert!(figure.to_svg(None).contains("prefers-color-scheme"));
/// assert_eq!(&figure.to_png(figure::Theme::Dark, 2.0)?[1..4], b"PNG");
/// # Ok::<(), gallerist_report::ReportError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Figure {
    scene: Scene,
    height: f64,
    description: String,
}

impl Figure {
    /// An empty figure with its heading, and the height it takes.
    fn new(title: &str, note: Option<&str>) -> (Self, f64) {
        let mut scene = Scene::default();
        let title = font::fitted(title, 20.0, INNER);
        scene.text((MARGIN, 40.0), 20.0, Anchor::Start, Tone::Ink, &title);
        let mut bottom = 54.0;
        if let Some(note) = note {
            bottom = paragraph(&mut scene, (MARGIN, bottom), INNER, note);
        }
        (Self { scene, height: bottom, description: title }, bottom + 10.0)
    }

    fn finish(mut self, bottom: f64) -> Self {
        self.height = bottom + MARGIN;
        self
    }

    /// The figure as an SVG document; without a theme it follows the reader's choice.
    pub fn to_svg(&self, theme: Option<Theme>) -> String {
        self.scene.to_svg((WIDTH, self.height), &self.description, theme)
    }

    /// The figure as a PNG file, 960 times `scale` pixels wide, and less for very long figures.
    ///
    /// # Errors
    /// [`ReportError::Encode`] with the error of the encoder.
    pub fn to_png(&self, theme: Theme, scale: f64) -> Result<Vec<u8>, ReportError> {
        raster::to_png(&self.scene, (WIDTH, self.height), theme, scale)
    }

    /// Writes the figure in the format of the name, `.svg` or `.png`; a file at `path` is replaced atomically. A PNG
    /// without a theme is light.
    ///
    /// # Errors
    /// [`ReportError::FigureName`] for any other name, [`ReportError::Write`] with the error of the system.
    pub fn write(&self, path: impl AsRef<Path>, theme: Option<Theme>) -> Result<(), ReportError> {
        let path = path.as_ref();
        match Format::of(path)? {
            Format::Svg => write_whole(path, self.to_svg(theme).as_bytes()),
            Format::Png => write_whole(path, &self.to_png(theme.unwrap_or_default(), 2.0)?),
        }
    }
}

/// The format of a figure's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `.svg`
    Svg,
    /// `.png`
    Png,
}

impl Format {
    /// The format of a file name.
    ///
    /// # Errors
    /// [`ReportError::FigureName`] if it ends in neither.
    pub fn of(path: &Path) -> Result<Self, ReportError> {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("svg") => Ok(Self::Svg),
            Some("png") => Ok(Self::Png),
            _ => Err(ReportError::FigureName { path: path.to_owned() }),
        }
    }
}

/// A figure on a page. It is an image, so that its style does not affect the page.
pub(crate) fn image(figure: &Figure) -> Markup {
    let svg = STANDARD.encode(figure.to_svg(None));
    html! { img.drawing alt=(figure.description) src={ "data:image/svg+xml;base64," (svg) }; }
}

/// A paragraph of width at most `most`, below `at`; returns the y coordinate of its end.
fn paragraph(scene: &mut Scene, at: At, most: f64, text: &str) -> f64 {
    const SIZE: f64 = 13.0;
    let mut bottom = at.1;
    let mut line = String::new();
    let mut put = |line: &mut String| {
        bottom += 18.0;
        scene.text((at.0, bottom - 4.0), SIZE, Anchor::Start, Tone::Soft, font::fitted(line, SIZE, most));
        line.clear();
    };
    for word in text.split_whitespace() {
        let longer = if line.is_empty() { word.to_owned() } else { format!("{line} {word}") };
        // A browser may take another font, a little wider.
        if !line.is_empty() && font::width(&longer, SIZE) * 1.05 > most {
            put(&mut line);
            line.push_str(word);
        } else {
            line = longer;
        }
    }
    if !line.is_empty() {
        put(&mut line);
    }
    bottom
}
