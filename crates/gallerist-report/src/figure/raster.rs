//! A scene as pixels.

use std::io::Cursor;

use tiny_skia::{
    Color, FillRule, FilterQuality, LineCap, LineJoin, Paint, Path, PathBuilder, Pixmap, PixmapPaint,
    PremultipliedColorU8, StrokeDash, Transform,
};

use super::font;
use super::scene::{Anchor, At, Scene, Segment, Shape, Stroke, Theme, Tone};
use crate::{Picture, ReportError};

/// The most pixels a side, a bound on the memory taken.
const LARGEST_SIDE: f64 = 16_000.0;

/// The scene as a PNG file, `scale` pixels to the unit.
pub(super) fn to_png(scene: &Scene, size: At, theme: Theme, scale: f64) -> Result<Vec<u8>, ReportError> {
    let scale = scale.min(LARGEST_SIDE / size.0.max(size.1));
    let side = |length: f64| (length * scale).round().max(1.0) as u32;
    let mut pixmap = Pixmap::new(side(size.0), side(size.1)).expect("both sides are within bounds");
    pixmap.fill(color(Tone::Page, theme, 1.0));
    let to = Transform::from_scale(scale as f32, scale as f32);
    for shape in &scene.shapes {
        match shape {
            Shape::Fill { path: segments, tone, opacity } => {
                fill(&mut pixmap, segments, color(*tone, theme, *opacity), to);
            }
            Shape::Stroke { path: segments, stroke } => {
                draw(&mut pixmap, segments, stroke, color(stroke.tone, theme, stroke.opacity), to);
            }
            Shape::Text { at, size, anchor, tone, halo, text } => {
                let outline = font::outline(text, *size, start_of(*at, text, *size, *anchor));
                if *halo {
                    let halo = Stroke::new(Tone::Page, 3.5);
                    draw(&mut pixmap, &outline, &halo, color(Tone::Page, theme, 1.0), to);
                }
                fill(&mut pixmap, &outline, color(*tone, theme, 1.0), to);
            }
            Shape::Picture { at, size, picture } => show(&mut pixmap, *at, *size, picture, to),
        }
    }
    let (width, height) = (pixmap.width(), pixmap.height());
    // The ground is opaque, so every pixel is.
    let pixels: Vec<u8> =
        pixmap.pixels().iter().flat_map(|pixel| [pixel.red(), pixel.green(), pixel.blue()]).collect();
    Ok(Picture::from_pixels(width, height, 3, &pixels)?.bytes().to_vec())
}

fn color(tone: Tone, theme: Theme, opacity: f64) -> Color {
    let [_, red, green, blue] = tone.rgb(theme).to_be_bytes();
    Color::from_rgba8(red, green, blue, (opacity * 255.0).round() as u8)
}

fn paint(color: Color) -> Paint<'static> {
    let mut paint = Paint { anti_alias: true, ..Paint::default() };
    paint.set_color(color);
    paint
}

/// `None` for a path without extent.
fn path(segments: &[Segment]) -> Option<Path> {
    let mut path = PathBuilder::new();
    let f = |(x, y): At| (x as f32, y as f32);
    for segment in segments {
        match *segment {
            Segment::Move(at) => path.move_to(f(at).0, f(at).1),
            Segment::Line(at) => path.line_to(f(at).0, f(at).1),
            Segment::Quadratic(control, at) => path.quad_to(f(control).0, f(control).1, f(at).0, f(at).1),
            Segment::Close => path.close(),
        }
    }
    path.finish()
}

fn fill(pixmap: &mut Pixmap, segments: &[Segment], color: Color, to: Transform) {
    if let Some(path) = path(segments) {
        pixmap.fill_path(&path, &paint(color), FillRule::Winding, to, None);
    }
}

fn draw(pixmap: &mut Pixmap, segments: &[Segment], stroke: &Stroke, color: Color, to: Transform) {
    let Some(path) = path(segments) else { return };
    let dash: Vec<f32> = stroke.dash.iter().map(|&length| length as f32).collect();
    let stroke = tiny_skia::Stroke {
        width: stroke.width as f32,
        line_cap: LineCap::Round,
        line_join: LineJoin::Round,
        dash: StrokeDash::new(dash, 0.0),
        ..tiny_skia::Stroke::default()
    };
    pixmap.stroke_path(&path, &paint(color), &stroke, to, None);
}

/// Draws a PNG picture into its place, in full and undistorted; any other format leaves the tile.
fn show(pixmap: &mut Pixmap, at: At, size: At, picture: &Picture, to: Transform) {
    let Some(pixels) = decoded(picture.bytes()) else { return };
    let (width, height) = (f64::from(pixels.width()), f64::from(pixels.height()));
    let scale = (size.0 / width).min(size.1 / height);
    let (x, y) = (at.0 + (size.0 - width * scale) / 2.0, at.1 + (size.1 - height * scale) / 2.0);
    let quality = if picture.is_pixelated() { FilterQuality::Nearest } else { FilterQuality::Bicubic };
    let place = to.pre_translate(x as f32, y as f32).pre_scale(scale as f32, scale as f32);
    let paint = PixmapPaint { quality, ..PixmapPaint::default() };
    pixmap.draw_pixmap(0, 0, pixels.as_ref(), &paint, place, None);
}

fn decoded(bytes: &[u8]) -> Option<Pixmap> {
    let mut decoder = png::Decoder::new(Cursor::new(bytes));
    decoder.set_transformations(png::Transformations::normalize_to_color8());
    let mut reader = decoder.read_info().ok()?;
    let mut buffer = vec![0; reader.output_buffer_size()?];
    let frame = reader.next_frame(&mut buffer).ok()?;
    let mut pixmap = Pixmap::new(frame.width, frame.height)?;
    let channels = frame.color_type.samples();
    for (pixel, to) in buffer.chunks_exact(channels).zip(pixmap.pixels_mut()) {
        let (red, green, blue, alpha) = match *pixel {
            [grey] => (grey, grey, grey, 255),
            [grey, alpha] => (grey, grey, grey, alpha),
            [red, green, blue] => (red, green, blue, 255),
            [red, green, blue, alpha] => (red, green, blue, alpha),
            _ => return None,
        };
        let premultiplied = |value: u8| ((u16::from(value) * u16::from(alpha) + 127) / 255) as u8;
        *to = PremultipliedColorU8::from_rgba(
            premultiplied(red),
            premultiplied(green),
            premultiplied(blue),
            alpha,
        )?;
    }
    Some(pixmap)
}
/// The start of a line of text.
fn start_of(at: At, text: &str, size: f64, anchor: Anchor) -> At {
    let width = font::width(text, size);
    match anchor {
        Anchor::Start => at,
        Anchor::Middle => (at.0 - width / 2.0, at.1),
        Anchor::End => (at.0 - width, at.1),
    }
}
