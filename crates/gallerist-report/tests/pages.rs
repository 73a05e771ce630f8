//! The pages as a browser's tokenizer sees them.

use std::collections::{BTreeMap, BTreeSet};

use gallerist_report::figure::{self, Cmc, MapFigure};
use gallerist_report::{
    Atlas, Chart, Evaluation, Hit, Item, Metric, Panel, Picture, RankedList, RankedSection, Record, Report,
    Scale, SearchPage, Series, Sprite, charts_of,
};
use html5gum::{DefaultEmitter, Token, Tokenizer};

const VOID: [&str; 5] = ["meta", "br", "wbr", "link", "img"];

/// Markup and quotes that would leave every place in which a text can stand.
const HOSTILE: &str =
    r#""'></script></style></title><script>alert(1)</script><img src=x onerror=alert(2)>&amp;"#;

struct Element {
    name: String,
    attributes: BTreeMap<String, String>,
}

/// A page taken apart. Everything that a parser would have to repair is refused.
#[derive(Default)]
struct Page {
    elements: Vec<Element>,
    /// The text outside `script` and `style`, a line per piece.
    text: String,
    /// The elements with an id, a class of their own or a heading, indented.
    outline: String,
}

impl Page {
    fn read(html: &str) -> Self {
        let utf8 = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("pages are UTF-8");
        let mut emitter = DefaultEmitter::default();
        emitter.naively_switch_states(true);
        let mut page = Self::default();
        let mut open: Vec<String> = Vec::new();
        for token in Tokenizer::new_with_emitter(html, emitter) {
            match token.expect("a string cannot fail to be read") {
                Token::Error(error) => panic!("the tokenizer complains: {:?}", error.value),
                Token::Comment(_) => panic!("a page has no comments"),
                Token::Doctype(doctype) => assert!(!doctype.force_quirks),
                Token::StartTag(tag) => {
                    let name = utf8(&tag.name);
                    let attributes: BTreeMap<_, _> =
                        tag.attributes.iter().map(|(name, value)| (utf8(name), utf8(&value.value))).collect();
                    let label = ["id", "class"]
                        .iter()
                        .filter_map(|key| attributes.get(*key))
                        .fold(name.clone(), |label, value| format!("{label} {value}"));
                    let shown = ["section", "article", "figure", "header", "main", "table", "ol"];
                    if shown.contains(&name.as_str()) {
                        let depth = open.iter().filter(|o| shown.contains(&o.as_str())).count();
                        page.outline += &format!("{}{label}\n", "  ".repeat(depth));
                    }
                    if !VOID.contains(&name.as_str()) {
                        open.push(name.clone());
                    }
                    page.elements.push(Element { name, attributes });
                }
                Token::EndTag(tag) => {
                    assert_eq!(open.pop(), Some(utf8(&tag.name)), "tags close in order");
                }
                Token::String(text) => {
                    let text = utf8(&text.value);
                    match open.last().map(String::as_str) {
                        Some("script" | "style") => {}
                        Some(heading @ ("h1" | "h2" | "h3")) => {
                            page.outline += &format!("# {heading} {text}\n");
                            page.text += &format!("{text}\n");
                        }
                        _ => page.text += &format!("{text}\n"),
                    }
                }
            }
        }
        assert_eq!(open, [""; 0], "every tag is closed");
        page
    }

    fn count(&self, name: &str) -> usize {
        self.elements.iter().filter(|e| e.name == name).count()
    }

    fn with_class(&self, class: &str) -> usize {
        (self.elements.iter())
            .filter_map(|e| e.attributes.get("class"))
            .filter(|classes| classes.split(' ').any(|c| c == class))
            .count()
    }

    fn attributes(&self, name: &str) -> Vec<&str> {
        (self.elements.iter()).filter_map(|e| e.attributes.get(name).map(String::as_str)).collect()
    }
}

/// What holds for every page: it is well formed, loads nothing and runs nothing
/// but its own script.
fn check(html: &str) -> Page {
    let page = Page::read(html);
    let ids: Vec<&str> = page.attributes("id");
    let unique: BTreeSet<&str> = ids.iter().copied().collect();
    assert_eq!(ids.len(), unique.len(), "ids are unique");
    for href in page.attributes("href") {
        match href.strip_prefix('#') {
            Some(id) => assert!(unique.contains(id), "nothing has the id {id}"),
            None => assert!(href.starts_with("data:image/"), "{href} is outside of the page"),
        }
    }
    for element in &page.elements {
        for (name, value) in &element.attributes {
            assert!(!name.starts_with("on"), "{name} would run {value}");
            assert!(!["srcset", "action"].contains(&name.as_str()), "{name}={value}");
            assert!(name != "src" || value.starts_with("data:image/"), "{value} is outside of the page");
        }
    }
    for outside in ["http:", "https:", "url(", "@import", "xmlns"] {
        assert!(!html.contains(outside), "the page holds {outside}");
    }
    assert_eq!(page.count("script"), 1);
    assert_eq!(page.count("style"), 1);
    assert_eq!(page.count("h1"), 1);
    assert_eq!(page.count("title"), 1);
    page
}

fn picture(seed: u8) -> Picture {
    let pixels: Vec<u8> = (0..28 * 28_u32).map(|i| (i % (u32::from(seed) + 3) * 20) as u8).collect();
    Picture::from_pixels(28, 28, 1, &pixels).unwrap()
}

fn item(seed: u8, label: &str) -> Item {
    Item {
        picture: Some(picture(seed)),
        label: Some(label.to_owned()),
        path: Some(format!("test/{label}/{seed}.png")),
        ..Item::default()
    }
}

fn ranked(results: u8) -> RankedList {
    RankedList {
        query: item(0, "heron"),
        scores: vec![Metric::share("AP@R", 0.25)],
        note: Some("first match at rank 2".into()),
        results: (0..results)
            .map(|rank| Hit {
                item: item(rank + 1, if rank % 2 == 0 { "crane" } else { "heron" }),
                distance: 0.125 * f64::from(rank),
                correct: Some(rank % 2 == 1),
            })
            .collect(),
    }
}

fn report() -> Report {
    let steps: Vec<Record> = (1..=60)
        .map(|step| Record {
            step,
            epoch: Some(step / 20),
            values: [
                ("loss".to_owned(), 1.0 / step as f64),
                ("positives".to_owned(), 0.9),
                ("negatives".to_owned(), 0.5),
                ("learning_rate".to_owned(), 1e-3),
            ]
            .into(),
        })
        .collect();
    let panels = [
        Panel { title: "Loss", smooth: true, columns: &[("loss", "loss")], ..Panel::default() },
        Panel {
            title: "Share of non-trivial pairs",
            scale: Scale::Share,
            columns: &[("positives", "positives"), ("negatives", "negatives")],
            ..Panel::default()
        },
    ];
    let evaluation = |name: &str, recall: f64| Evaluation {
        name: name.into(),
        protocol: "every image is a query against all others".into(),
        metrics: vec![
            Metric::share("recall@1", recall),
            Metric::share("recall@2", recall + 0.1),
            Metric::share("map@r", recall / 2.0),
        ],
        recall_at: vec![(1, recall), (2, recall + 0.1)],
        queries: 13_180,
        queries_without_match: 3,
        ties: Some(12),
        ..Evaluation::default()
    };
    Report {
        title: "A run".into(),
        summary: Some("What it was for.".into()),
        notices: vec!["2 images are left out.".into()],
        facts: vec![("seed".into(), "7".into())],
        evaluations: vec![evaluation("after training", 0.8), evaluation("before training", 0.4)],
        charts: charts_of(&steps, &panels),
        ranked_lists: vec![RankedSection {
            title: "Worst queries".into(),
            note: Some("By AP@R.".into()),
            measure: "Euclidean distance".into(),
            lists: vec![ranked(3)],
        }],
        configuration: Some("seed = 7\n".into()),
        ..Report::default()
    }
}

#[test]
fn a_report_has_this_outline() {
    let page = check(&report().to_html());
    insta::assert_snapshot!(page.outline);
}

#[test]
fn a_report_holds_every_number_it_was_given() {
    let html = report().to_html();
    let page = check(&html);
    for text in [
        "80.00",
        "40.00",
        "90.00",
        "50.00",
        "13,180",
        "12",
        "0.1250",
        "25.00 %",
        "loss",
        "positives",
        "negatives",
        "learning rate",
        "2 images are left out.",
        "first match at rank 2",
        "seed = 7\n",
        "crane",
        "Pale: all values. Strong: the mean of 5 around each.",
        "; the number is the ",
        "Euclidean distance",
    ] {
        assert!(page.text.contains(text), "`{text}` is missing from:\n{}", page.text);
    }
    // Two recall series and four of the log, each with all its values.
    let series = page.attributes("data-points");
    let values: Vec<usize> = series.iter().map(|s| s.split(';').count()).collect();
    assert_eq!(values, [2, 2, 60, 60, 60, 60]);
    assert!(series[2].starts_with("1,0,1.000,"), "{}", series[2]);
    assert_eq!(page.with_class("right"), 2, "one result and the sample of the key");
    assert_eq!(page.with_class("wrong"), 3);
    assert_eq!(page.count("image"), 4, "each picture is stored once");
}

#[test]
fn the_same_report_is_the_same_bytes() {
    assert_eq!(report().to_html(), report().to_html());
}

#[test]
fn the_policy_names_the_digest_of_the_script_that_is_there() {
    use base64::Engine as _;
    use sha2::Digest as _;

    let html = SearchPage::default().to_html();
    let script = html.split("<script>").nth(1).and_then(|rest| rest.split("</script>").next()).unwrap();
    let digest = base64::engine::general_purpose::STANDARD.encode(sha2::Sha256::digest(script));
    assert!(html.contains("default-src 'none'; img-src data:;"));
    assert!(html.contains(&format!("script-src 'sha256-{digest}'")), "{digest}");
    assert!(!script.contains('\r'), "browsers read other line ends before they compare");
}

#[test]
fn no_text_can_leave_its_place() {
    let hostile = || HOSTILE.to_owned();
    let item = Item {
        picture: Some(picture(1)),
        label: Some(hostile()),
        path: Some(format!("{HOSTILE}/{HOSTILE}/a.png")),
        details: vec![(hostile(), hostile())],
    };
    let missing = Item { picture: None, ..item.clone() };
    let metric = Metric::number(hostile(), 1.0);
    let list = |correct| RankedList {
        query: item.clone(),
        scores: vec![metric.clone()],
        note: Some(hostile()),
        results: vec![Hit { item: missing.clone(), distance: f64::NAN, correct }; 2],
    };
    let report = Report {
        title: hostile(),
        summary: Some(hostile()),
        notices: vec![hostile()],
        facts: vec![(hostile(), hostile())],
        evaluations: vec![Evaluation {
            name: hostile(),
            protocol: hostile(),
            metrics: vec![metric.clone()],
            recall_at: vec![(1, 0.5)],
            ..Evaluation::default()
        }],
        charts: vec![Chart {
            title: hostile(),
            note: Some(hostile()),
            series: vec![Series::new(hostile(), [(1, f64::NAN), (2, 1.0)])],
            ..Chart::default()
        }],
        ranked_lists: vec![RankedSection {
            title: hostile(),
            note: Some(hostile()),
            measure: hostile(),
            lists: vec![list(Some(false)), list(Some(true)), list(None)],
        }],
        broken_images: vec![[hostile(), hostile(), hostile()]],
        configuration: Some(hostile()),
        intervals: Some(hostile()),
        figures: vec![figure::cmc(HOSTILE, HOSTILE, &[Cmc { name: hostile(), shares: vec![0.5] }])],
        maps: vec![Atlas {
            map: MapFigure {
                title: hostile(),
                note: hostile(),
                points: vec![[0.0, 1.0], [2.0, 0.5]],
                classes: vec![0, 1],
                names: vec![hostile(), "wren".into()],
                scaled: false,
            },
            sprite: Some(Sprite { picture: picture(1), tile: 14, columns: 2 }),
        }],
    };
    let search = SearchPage {
        title: hostile(),
        summary: Some(hostile()),
        notices: vec![hostile()],
        facts: vec![(hostile(), hostile())],
        measure: hostile(),
        lists: vec![list(Some(false)), list(None)],
    };
    // The drawing, the still map, its thumbnails.
    for (html, pictures) in [(report.to_html(), 3), (search.to_html(), 0)] {
        // `check` has seen that nothing but the page's own elements came out.
        let page = check(&html);
        assert_eq!(page.count("img"), pictures);
        assert!(page.text.contains(HOSTILE), "and the text is shown as it is");
    }
}

#[test]
fn an_empty_report_is_a_page() {
    let page = check(&Report::default().to_html());
    assert_eq!(page.count("section"), 0);
    assert_eq!(page.count("nav"), 0);
}

#[test]
fn parts_without_content_are_left_out() {
    let report = Report {
        evaluations: vec![Evaluation::default()],
        charts: vec![
            Chart::default(),
            Chart { title: "Empty".into(), series: vec![Series::default()], ..Chart::default() },
        ],
        ranked_lists: vec![RankedSection::default()],
        ..Report::default()
    };
    let page = check(&report.to_html());
    assert_eq!(page.count("figure"), 0, "no recalls, no values, no figure");
    let page = check(&Report { charts: report.charts, ..Report::default() }.to_html());
    assert_eq!(page.count("section"), 0, "no training section without a curve");
}

#[test]
fn one_step_makes_a_chart() {
    let report = Report {
        charts: vec![Chart {
            title: "Loss".into(),
            smooth: true,
            series: vec![Series::new("loss", [(1, 0.5)])],
            ..Chart::default()
        }],
        ..Report::default()
    };
    let page = check(&report.to_html());
    assert_eq!(page.attributes("data-points"), ["1,,0.5000"]);
}

#[test]
fn coordinates_are_finite_whatever_the_values_are() {
    let values = [
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::MAX,
        f64::MIN,
        f64::MIN_POSITIVE,
        5e-324,
        -0.0,
        1.0,
    ];
    for scale in [Scale::Linear, Scale::Log, Scale::Share] {
        for &a in &values {
            for &b in &values {
                let report = Report {
                    charts: vec![Chart {
                        title: "Odd".into(),
                        scale,
                        series: vec![Series::new("odd", [(0, a), (1, b), (u64::MAX, a)])],
                        ..Chart::default()
                    }],
                    ..Report::default()
                };
                let page = check(&report.to_html());
                for name in ["d", "style"] {
                    for value in page.attributes(name) {
                        assert!(
                            !value.contains("NaN") && !value.contains("inf"),
                            "{scale:?} {a} {b}: {value}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn metrics_that_one_evaluation_lacks_are_dashes() {
    let report = Report {
        evaluations: vec![
            Evaluation { metrics: vec![Metric::share("map@r", 0.5)], ..Evaluation::default() },
            Evaluation {
                metrics: vec![Metric::number("rank", 12.5)],
                protocol: "another".into(),
                ..Evaluation::default()
            },
        ],
        ..Report::default()
    };
    let page = check(&report.to_html());
    let cells: Vec<&str> = page.text.lines().filter(|l| *l == "–").collect();
    assert_eq!(cells.len(), 2);
    assert!(page.text.contains("protocol\n") && page.text.contains("another\n"));
    assert!(page.text.contains("12.50"));
}

#[test]
fn a_search_shows_its_lists_with_labels_set_off_in_the_paths() {
    let mut list = ranked(2);
    for hit in &mut list.results {
        hit.correct = None;
    }
    list.results[1].item.label = Some("egret".into());
    let search = SearchPage {
        title: "Search".into(),
        measure: "cosine similarity".into(),
        lists: vec![list, RankedList::default()],
        ..SearchPage::default()
    };
    let page = check(&search.to_html());
    assert_eq!(page.with_class("unknown"), 2);
    assert_eq!(page.with_class("right") + page.with_class("wrong"), 0);
    assert!(page.text.contains("cosine similarity"));
    assert!(page.text.contains("crane\n"), "{}", page.text);
    assert!(page.text.contains("egret\n"), "a label that is no folder of the path");
    assert!(page.text.contains("Nothing was found."));
    assert!(page.text.contains("no picture"));
    let empty = check(&SearchPage::default().to_html());
    assert!(empty.text.contains("There was no query."));
}

#[test]
fn forty_queries_of_eleven_pictures_stay_small() {
    let lists: Vec<RankedList> = (0..40)
        .map(|query: u32| RankedList {
            query: noise(query * 11),
            results: (1..11)
                .map(|rank| Hit {
                    item: noise(query * 11 + rank),
                    distance: f64::from(rank),
                    correct: Some(rank < 4),
                })
                .collect(),
            ..RankedList::default()
        })
        .collect();
    let html = Report { ranked_lists: vec![RankedSection { lists, ..RankedSection::default() }], ..report() }
        .to_html();
    let page = check(&html);
    assert_eq!(page.count("image"), 440, "all pictures differ");
    // 440 pictures of 784 bytes that no encoder can shorten, a third longer in
    // base64, are 460 kB; the rest is markup.
    assert!(html.len() < 800_000, "{} bytes", html.len());
}

/// A picture of 28 x 28 pixels that does not compress.
fn noise(seed: u32) -> Item {
    let mut state = seed.wrapping_mul(0x9e37_79b9) | 1;
    let pixels: Vec<u8> = (0..28 * 28)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            state as u8
        })
        .collect();
    Item {
        picture: Some(Picture::from_pixels(28, 28, 1, &pixels).unwrap()),
        label: Some(format!("Alphabet/character{:02}", seed % 30)),
        ..Item::default()
    }
}

#[test]
fn pages_are_written_to_files() {
    let folder = tempfile::tempdir().unwrap();
    let report = report();
    let path = folder.path().join("report.html");
    report.write(&path).unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), report.to_html());
    SearchPage::default().write(&path).unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), SearchPage::default().to_html());
}

#[test]
fn the_page_has_a_colour_for_each_hue_of_its_script() {
    let html = Report::default().to_html();
    let hues = (0..).take_while(|hue| html.contains(&format!("--h{hue}:"))).count();
    assert!(html.contains(&format!("const HUES = {hues},")), "{hues} colours in the style");
}
