//! Which items of the gallery count for a query.

use gallerist_retrieval::eval::{PROTOCOLS, Protocol, Setting};
use gallerist_retrieval::labels::SEPARATOR;
use gallerist_util::text::grouped;
use serde::Serialize;
use utoipa::ToSchema;

use crate::companion::Side;
use crate::gallery::{Catalog, Gallery, same_class};
use crate::{Error, Result};

/// The name for no published protocol.
pub(crate) const NONE: &str = "none";

/// Why an item of the gallery does not count for a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LeftOut {
    /// The protocol leaves it out for every query.
    Junk,
    /// It has the class and the camera of the query.
    SameCamera,
}

/// Label and camera of an item.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Shown<'a> {
    pub(crate) label: Option<&'a str>,
    pub(crate) camera: Option<&'a str>,
}

impl<'a> Shown<'a> {
    pub(crate) fn of(catalog: &'a Catalog, row: usize) -> Self {
        Self { label: catalog.labels.get(row), camera: catalog.cameras.get(row) }
    }
}

/// The rules of the gallery's protocol. They are those of [`Task`](gallerist_retrieval::eval::Task), but by label and
/// camera, because the rows of a gallery change.
pub(crate) struct Rules {
    /// The protocol of queries and gallery.
    pub(crate) protocol: Option<&'static Protocol>,
    pub(crate) junk: Option<&'static str>,
    cameras: bool,
    /// Whether the user asked for no protocol, so that cameras never count.
    is_none: bool,
    /// The rules in words; `None` if every item is a query and all others count.
    pub(crate) words: Option<String>,
}

impl Rules {
    /// The rules of the protocol `asked` (`none`: no protocol), else of the one that queries and gallery both name.
    /// Without a protocol cameras count if both sides have them, as in `gallerist evaluate`.
    pub(crate) fn new(
        asked: Option<&str>,
        gallery: &Gallery,
        queries: Option<&Side>,
        note: fn(&str),
    ) -> Result<Self> {
        let named = |name: &str| {
            Protocol::named(name).ok_or_else(|| Error::Option {
                problem: format!("there is no protocol `{name}`"),
                hint: Some(format!(
                    "the protocols are {}; `{NONE}` compares by none",
                    PROTOCOLS.iter().map(|protocol| protocol.name).collect::<Vec<_>>().join(", ")
                )),
            })
        };
        let Some(queries) = queries else { return Self::without_queries(asked, gallery, named, note) };
        let protocol = common_protocol(asked, gallery, queries, named, note)?;
        let catalog = gallery.catalog();
        let cameras = asked != Some(NONE) && uses_cameras(protocol, &queries.catalog, &catalog)?;
        let junk = protocol.and_then(|protocol| protocol.junk);
        let mut rules = Self { protocol, junk, cameras, is_none: asked == Some(NONE), words: None };
        rules.words = Some(rules.describe(&queries.catalog, &catalog));
        Ok(rules)
    }

    /// The rules if every item is a query. A protocol that needs a query set does not apply, but its junk is left out.
    fn without_queries(
        asked: Option<&str>,
        gallery: &Gallery,
        named: impl Fn(&str) -> Result<&'static Protocol>,
        note: fn(&str),
    ) -> Result<Self> {
        let protocol = match asked {
            Some(NONE) => None,
            Some(name) => Some(named(name)?),
            None => gallery.protocol().and_then(Protocol::named),
        };
        let protocol = protocol.filter(|protocol| protocol.setting != Setting::EveryImage);
        let junk = protocol.and_then(|protocol| protocol.junk);
        let rules = Self { protocol: None, junk, cameras: false, is_none: asked == Some(NONE), words: None };
        let Some(protocol) = protocol else { return Ok(rules) };
        if asked.is_some() {
            return Err(Error::Option {
                problem: format!("the protocol `{}` compares queries with a gallery", protocol.name),
                hint: Some("give the queries, too: --queries FILE".to_owned()),
            });
        }
        let junk = rules.junk.map_or(0, |label| gallery.catalog().labels.count(label));
        let left_out = rules.junk.filter(|_| junk > 0).map(|label| {
            format!(
                "; {} with the label {label} {} left out",
                items(junk),
                if junk == 1 { "is" } else { "are" }
            )
        });
        let words = format!(
            "{} is measured by queries, and there are none: every item is a query against all the others{}.",
            protocol.title,
            left_out.unwrap_or_default()
        );
        note(&format!("{words} Give the queries: --queries FILE"));
        Ok(Self { words: Some(words), ..rules })
    }

    fn describe(&self, queries: &Catalog, gallery: &Catalog) -> String {
        let junk = self.junk.map_or(0, |label| gallery.labels.count(label));
        let mut words = self.protocol.map_or_else(String::new, |p| format!("Protocol of {}: ", p.title));
        let queries = match queries.len() {
            1 => "1 query".to_owned(),
            n => format!("{} queries", grouped(n as u64)),
        };
        words += &format!("{queries} against {}.", items(gallery.len() - junk));
        if let Some(label) = self.junk.filter(|_| junk > 0) {
            words += &format!(" Junk, {} with the label {label}, does not count.", items(junk));
        }
        if self.cameras {
            words += " Items of a query's label from its own camera do not count for it.";
        }
        if self.protocol.is_none() && !self.cameras {
            words += " All items count.";
        }
        words
    }

    /// Why `item` does not count for `query`; `None` if it counts.
    pub(crate) fn left_out(&self, query: Shown, item: Shown) -> Option<LeftOut> {
        if self.junk.is_some() && self.junk == item.label {
            return Some(LeftOut::Junk);
        }
        let same = |a: Option<&str>, b: Option<&str>| a.is_some() && a == b;
        let alike = || query.label.zip(item.label).is_some_and(|(a, b)| same_class(a, b));
        (self.cameras && same(query.camera, item.camera) && alike()).then_some(LeftOut::SameCamera)
    }

    /// The number of junk items, and an upper bound of the items left out because of the queries' cameras.
    pub(crate) fn count(&self, gallery: &Catalog, queries: &[Shown]) -> (usize, usize) {
        let junk = self.junk.filter(|_| !queries.is_empty()).map_or(0, |junk| gallery.labels.count(junk));
        let seen = |query: &Shown| match (query.label, query.camera) {
            (Some(label), Some(camera)) if self.cameras && self.junk != query.label => {
                gallery.seen_by(label, camera)
            }
            _ => 0,
        };
        (junk, queries.iter().map(seen).sum())
    }

    /// Refuses an item with which the gallery could not be opened again: across cameras every image has one class.
    pub(crate) fn check_added(
        &self,
        queries: Option<&Side>,
        gallery: &Catalog,
        label: Option<&str>,
        camera: Option<&str>,
    ) -> Result<()> {
        let Some(Side { catalog: queries, .. }) = queries.filter(|_| !self.is_none) else { return Ok(()) };
        let first_camera = self.protocol.is_none() && camera.is_some() && has_cameras(queries);
        let is_set = label.is_some_and(|label| label.contains(SEPARATOR));
        match (self.cameras || first_camera) && (is_set || [queries, gallery].into_iter().any(has_sets)) {
            true => Err(sets_across_cameras()),
            false => Ok(()),
        }
    }

    /// Whether cameras count.
    pub(crate) fn uses_cameras(&self) -> bool {
        self.cameras
    }
}

/// The protocol of a query set and a gallery: the requested one, else the one that both files name.
fn common_protocol(
    asked: Option<&str>,
    gallery: &Gallery,
    queries: &Side,
    named: impl Fn(&str) -> Result<&'static Protocol>,
    note: fn(&str),
) -> Result<Option<&'static Protocol>> {
    match asked {
        Some(NONE) => Ok(None),
        Some(name) => {
            let protocol = named(name)?;
            if protocol.setting == Setting::EveryImage {
                return Err(Error::Option {
                    problem: format!(
                        "the protocol `{name}` compares every image with all the others, and there are queries"
                    ),
                    hint: Some("leave --queries or --protocol out".to_owned()),
                });
            }
            Ok(Some(protocol))
        }
        None => {
            let (ours, theirs) = (gallery.protocol(), queries.protocol.as_deref());
            if ours != theirs && (ours.is_some() || !gallery.is_index()) {
                let name = |of: Option<&str>| of.unwrap_or("none").to_owned();
                note(&format!(
                    "the protocol of the queries is {}, that of the gallery is {}; compared by none",
                    name(theirs),
                    name(ours)
                ));
            }
            // An index does not keep the name.
            let common = theirs.filter(|name| ours == Some(name) || ours.is_none() && gallery.is_index());
            let protocol = common.map(named).transpose()?;
            Ok(protocol.filter(|protocol| protocol.setting != Setting::EveryImage))
        }
    }
}

/// Whether cameras count: as the protocol says; without a protocol where both sides have cameras.
fn uses_cameras(protocol: Option<&Protocol>, queries: &Catalog, gallery: &Catalog) -> Result<bool> {
    let sides = [queries, gallery];
    let without = sides.iter().position(|catalog| !has_cameras(catalog));
    let cameras = match (protocol, without) {
        (None, without) => without.is_none(),
        (Some(protocol), _) if protocol.setting != Setting::Cameras => false,
        (Some(_), None) => true,
        (Some(protocol), Some(side)) => {
            return Err(Error::Option {
                problem: format!(
                    "the protocol `{}` needs the camera of each image, and the {} none",
                    protocol.name,
                    ["queries have", "gallery has"][side]
                ),
                hint: without_cameras(),
            });
        }
    };
    match cameras && sides.into_iter().any(has_sets) {
        true => Err(sets_across_cameras()),
        false => Ok(cameras),
    }
}

fn has_cameras(catalog: &Catalog) -> bool {
    catalog.cameras.counts().next().is_some()
}

fn has_sets(catalog: &Catalog) -> bool {
    catalog.labels.counts().any(|(label, _)| label.contains(SEPARATOR))
}

fn sets_across_cameras() -> Error {
    let problem = "comparing across cameras needs one class per image, and some have several labels (`a|b`)";
    Error::Option { problem: problem.to_owned(), hint: without_cameras() }
}

fn without_cameras() -> Option<String> {
    Some(format!("compare without cameras: --protocol {NONE}"))
}

fn items(count: usize) -> String {
    match count {
        1 => "1 item".to_owned(),
        n => format!("{} items", grouped(n as u64)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gallerist_retrieval::eval::{Named, Plan};

    #[test]
    fn junk_and_the_querys_person_from_its_own_camera_do_not_count() {
        let shown = |label, camera| Shown { label: Some(label), camera: Some(camera) };
        let of = |name: &str| {
            let protocol = Protocol::named(name).unwrap();
            let cameras = protocol.setting == Setting::Cameras;
            Rules { protocol: Some(protocol), junk: protocol.junk, cameras, is_none: false, words: None }
        };
        let query = shown("0001", "1");
        let items = [("0001", "1"), ("0001", "2"), ("0002", "1"), ("-1", "2"), ("0000", "1")];
        let left_out =
            |rules: &Rules| items.map(|(label, camera)| rules.left_out(query, shown(label, camera)));
        let (junk, seen) = (Some(LeftOut::Junk), Some(LeftOut::SameCamera));
        assert_eq!(left_out(&of("market1501")), [seen, None, None, junk, None]);
        assert_eq!(left_out(&of("duke")), [seen, None, None, None, None]);
        assert_eq!(left_out(&of("inshop")), [None; 5]);
        // The evaluation decides the same for every pair.
        let text = |of: &[&str]| of.iter().map(ToString::to_string).collect::<Vec<_>>();
        let (labels, cameras): (Vec<_>, Vec<_>) = items.into_iter().unzip();
        let (labels, cameras) = (text(&labels), text(&cameras));
        let gallery = Named { labels: &labels, cameras: Some(&cameras) };
        let (label, camera) = (text(&["0001"]), text(&["1"]));
        let asked = Named { labels: &label, cameras: Some(&camera) };
        for name in ["market1501", "duke", "inshop"] {
            let wanted = Plan::of(Protocol::named(name).unwrap()).rules(asked, Some(gallery)).unwrap();
            let counts = [0, 1, 2, 3, 4].map(|item| wanted.verdict(0, item).counts());
            assert_eq!(left_out(&of(name)).map(|reason| reason.is_none()), counts, "{name}");
        }
        // Two unknown cameras are not the same camera.
        let unknown = Shown { camera: None, ..query };
        assert_eq!(of("market1501").left_out(unknown, unknown), None);
    }

    #[test]
    fn thousands_are_grouped() {
        assert_eq!(
            [0, 12, 999, 1000, 19_732, 1_234_567_u64].map(grouped),
            ["0", "12", "999", "1,000", "19,732", "1,234,567"]
        );
    }
}
