//! Figures as SVG and PNG.

use std::collections::BTreeSet;

use gallerist_report::figure::{
    self, Bar, Cluster, Cmc, Distances, Figure, MapFigure, Mark, MarkKind, PrecisionRecall, Scatter, Theme,
};
use gallerist_report::{Chart, Hit, Item, Metric, Picture, RankedList, RankedSection, Scale, Series};
use html5gum::{DefaultEmitter, Token, Tokenizer};

/// Letters that mean something to XML, letters that XML cannot hold, and letters beyond the font.
const HOSTILE: &str =
    "</text><script>alert(1)</script>&amp;\"'\u{0}\u{7}\u{fffe}鷺 long enough to be cut somewhere";

fn picture() -> Picture {
    let pixels: Vec<u8> = (0..20 * 10 * 3u32).map(|i| (i * 7 % 251) as u8).collect();
    Picture::from_pixels(20, 10, 3, &pixels).unwrap()
}

/// One figure of each kind, `text` wherever there can be a text.
fn every_kind(text: &str) -> Vec<(&'static str, Figure)> {
    let item =
        |picture| Item { picture, label: Some(text.into()), path: Some(text.into()), ..Item::default() };
    let hit = |correct| Hit { item: item(Some(picture())), distance: 0.5, correct };
    let list = RankedList {
        query: item(None),
        scores: vec![Metric::share(text, 0.5)],
        note: Some(text.into()),
        results: [Some(true), Some(false), None].into_iter().cycle().take(15).map(hit).collect(),
    };
    let sections = [RankedSection {
        title: text.into(),
        note: Some(text.into()),
        measure: text.into(),
        lists: vec![list, RankedList::default()],
    }];
    let chart = |scale| Chart {
        title: text.into(),
        note: None,
        scale,
        smooth: true,
        series: (0..8)
            .map(|run| {
                let value = |step: u64| if step == 7 { f64::NAN } else { (step * run) as f64 - 3.0 };
                Series::new(text, (1..60).map(|step| (step, value(step))))
            })
            .collect(),
    };
    let map = MapFigure {
        title: text.into(),
        note: text.into(),
        points: (0..90).map(|i| [(i % 9) as f32, (i / 9) as f32 * 0.5]).collect(),
        classes: (0..90).map(|i| i % 12).collect(),
        names: vec![text.into(); 12],
        scaled: true,
    };
    let unlabelled = MapFigure { classes: vec![], names: vec![], scaled: false, ..map.clone() };
    let cluster = Cluster {
        title: text.into(),
        note: text.into(),
        pictures: vec![(Some(picture()), Some(true)), (None, Some(false)), (None, None)],
    };
    let mark = |i: usize| Mark {
        x: i as f64 % 3.0,
        y: 0.01 * i as f64,
        kind: [MarkKind::Full, MarkKind::Partial, MarkKind::Best][i % 3],
    };
    let panel = |choices: usize| Scatter {
        name: text.into(),
        log: choices == 0,
        choices: vec![text.into(); choices],
        marks: (1..20).map(mark).collect(),
        line: vec![(1.0, 0.1), (2.0, 0.2)],
    };
    let bar = |i: usize| Bar { name: text.into(), value: 0.2 * i as f64, mark: (i > 0).then_some(0.3) };
    let curve = PrecisionRecall { name: text.into(), points: vec![(0.1, 0.9), (1.0, 0.2)] };
    vec![
        ("bars", figure::bars(text, text, text, &[bar(0), bar(1), bar(3)])),
        (
            "scatter",
            figure::scatter(text, text, &[(MarkKind::Best, text.into())], &[panel(0), panel(3), panel(1)]),
        ),
        ("curves", figure::curves(text, &[chart(Scale::Linear), chart(Scale::Log), chart(Scale::Share)])),
        ("ranked", figure::ranked(text, Some(text), &sections)),
        ("map", figure::map(&map, &mut |_| Some(picture()))),
        ("map without labels", figure::map(&unlabelled, &mut |_| None)),
        ("cmc", figure::cmc(text, text, &[Cmc { name: text.into(), shares: vec![0.5, 0.75, 1.0] }])),
        ("pr", figure::pr(text, text, &[curve])),
        ("distances", figure::distances(text, text, &[Distances::of(text, &[0.1, 0.2], &[0.2, 0.9], 10)])),
        ("clusters", figure::clusters(text, text, &[cluster], 2)),
    ]
}

/// The names of all elements of a document in which every tag is closed in order.
fn elements(svg: &str) -> Vec<String> {
    let mut emitter = DefaultEmitter::default();
    emitter.naively_switch_states(false);
    let (mut open, mut all) = (Vec::new(), Vec::new());
    for token in Tokenizer::new_with_emitter(svg, emitter) {
        match token.unwrap() {
            Token::StartTag(tag) => {
                let name = String::from_utf8(tag.name.to_vec()).unwrap();
                all.push(name.clone());
                if !tag.self_closing {
                    open.push(name);
                }
            }
            Token::EndTag(tag) => assert_eq!(open.pop().unwrap().as_bytes(), &tag.name[..]),
            Token::Error(error) => panic!("{:?}", error.value),
            Token::Comment(_) | Token::Doctype(_) | Token::String(_) => {}
        }
    }
    assert_eq!(open, [""; 0]);
    all
}

#[test]
fn no_text_can_leave_its_place() {
    for (kind, figure) in every_kind(HOSTILE) {
        let svg = figure.to_svg(None);
        let known = ["svg", "title", "style", "rect", "path", "text", "image"];
        for name in elements(&svg) {
            assert!(known.contains(&name.as_str()), "{kind} holds <{name}>");
        }
        assert!(!svg.contains(['\u{0}', '\u{7}', '\u{fffe}']), "{kind}");
        assert!(svg.contains("&lt;/text&gt;"), "{kind}");
        figure.to_png(Theme::Light, 1.0).unwrap();
    }
}

#[test]
fn an_svg_follows_the_reader_unless_it_is_fixed() {
    for (kind, figure) in every_kind("heron") {
        let page = |theme| match theme {
            Theme::Light => ".page{fill:#fdfdfb}",
            Theme::Dark => ".page{fill:#171716}",
        };
        let free = figure.to_svg(None);
        assert!(free.contains(page(Theme::Light)) && free.contains(page(Theme::Dark)), "{kind}");
        for (fixed, other) in [(Theme::Light, Theme::Dark), (Theme::Dark, Theme::Light)] {
            let svg = figure.to_svg(Some(fixed));
            assert!(svg.contains(page(fixed)) && !svg.contains(page(other)), "{kind}");
        }
    }
}

#[test]
fn a_png_has_the_ground_of_its_theme_and_the_letters_on_it() {
    for (kind, figure) in every_kind("heron") {
        for (theme, ground) in [(Theme::Light, [0xfd, 0xfd, 0xfb]), (Theme::Dark, [0x17, 0x17, 0x16])] {
            let bytes = figure.to_png(theme, 1.0).unwrap();
            let mut reader = png::Decoder::new(std::io::Cursor::new(bytes)).read_info().unwrap();
            let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
            let frame = reader.next_frame(&mut pixels).unwrap();
            assert_eq!(frame.width, 960, "{kind}");
            assert_eq!(pixels[..3], ground, "{kind}");
            // The heading stands in the first 50 rows.
            let heading = pixels[..960 * 3 * 50].chunks(3).filter(|pixel| *pixel != ground).count();
            assert!((50..3000).contains(&heading), "{kind}: {heading} pixels of letters");
        }
    }
}

#[test]
fn the_same_input_gives_the_same_bytes() {
    for ((kind, one), (_, two)) in every_kind("heron").into_iter().zip(every_kind("heron")) {
        assert_eq!(one.to_svg(None), two.to_svg(None), "{kind}");
        assert_eq!(one.to_png(Theme::Dark, 1.5).unwrap(), two.to_png(Theme::Dark, 1.5).unwrap(), "{kind}");
    }
}

#[test]
fn a_series_without_a_point_leaves_the_remarks_of_the_others_alone() {
    let empty = Series { name: "empty".into(), points: vec![] };
    let repeated = Series::new("repeated", [(1, 0.5), (2, 0.4), (2, 0.3)]);
    let chart = Chart { title: "Loss".into(), series: vec![empty, repeated], ..Chart::default() };
    let svg = figure::curves("run", &[chart]).to_svg(None);
    assert!(svg.contains(">repeated: steps logged more than once: 1;"), "{svg}");
    assert!(!svg.contains("empty"), "{svg}");
}

#[test]
fn lines_of_one_colour_have_different_patterns() {
    let curve = |run: usize| Cmc { name: run.to_string(), shares: vec![0.5, 0.75, 1.0] };
    let runs: Vec<Cmc> = (0..36).map(curve).collect();
    let svg = figure::cmc("", "", &runs).to_svg(None);
    let pattern = |line: &str| {
        let rest = line.split("stroke-dasharray=\"").nth(1)?;
        rest.split('"').next().map(str::to_owned)
    };
    let styles: BTreeSet<(String, Option<String>)> = (svg.lines())
        .filter(|line| line.contains("stroke-width=\"1.75\""))
        .map(|line| (line.split('"').nth(1).unwrap().to_owned(), pattern(line)))
        .collect();
    assert_eq!(styles.len(), 36, "{styles:?}");
    for (class, dash) in [("l s0-l", None), ("l s1-l", Some("7 5")), ("l s5-l", Some("4 4 1 4"))] {
        assert!(styles.contains(&(class.to_owned(), dash.map(str::to_owned))), "{styles:?}");
    }
}

#[test]
fn a_curve_of_one_point_is_a_dot() {
    let dots = |shares: Vec<f64>| {
        let svg = figure::cmc("", "", &[Cmc { name: "run".into(), shares }]).to_svg(None);
        svg.matches("<path class=\"l s0-l\" stroke-width=\"5\"").count()
    };
    assert_eq!((dots(vec![0.5]), dots(vec![0.5, 0.75])), (1, 0));
}

#[test]
fn the_note_of_a_chart_is_drawn() {
    let series = vec![Series::new("map", [(1, 0.5), (2, 0.4)])];
    let chart =
        Chart { title: "Validation".into(), note: Some("all others".into()), series, ..Chart::default() };
    assert!(figure::curves("run", &[chart]).to_svg(None).contains(">all others</text>"));
}

#[test]
fn nothing_to_draw_is_an_empty_figure() {
    let nothing = MapFigure::default();
    let figures = [
        figure::curves("", &[]),
        figure::ranked("", None, &[]),
        figure::map(&nothing, &mut |_| None),
        figure::cmc("", "", &[]),
        figure::pr("", "", &[PrecisionRecall::default()]),
        figure::distances("", "", &[Distances::of("", &[], &[], 0)]),
        figure::clusters("", "", &[], 1),
    ];
    for figure in figures {
        elements(&figure.to_svg(None));
        figure.to_png(Theme::Light, 0.5).unwrap();
    }
}

#[test]
fn the_name_chooses_the_format() {
    let folder = tempfile::tempdir().unwrap();
    let (_, figure) = every_kind("heron").swap_remove(4);
    for (name, start) in [("a.svg", &b"<svg"[..]), ("a.png", b"\x89PNG")] {
        let path = folder.path().join(name);
        figure.write(&path, None).unwrap();
        assert!(std::fs::read(path).unwrap().starts_with(start));
    }
    let error = figure.write(folder.path().join("a.jpg"), None).unwrap_err();
    assert!(error.to_string().contains("a.jpg") && error.hint().unwrap().contains(".svg"), "{error}");
}
