//! Counters for Prometheus.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

/// The upper bounds of the latency histogram, in seconds: from a search of a small gallery to the time limit.
const SECONDS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Kind {
    method: String,
    path: String,
    status: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Place {
    path: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfGallery {
    gallery: String,
}

pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<Kind, Counter>,
    seconds: Family<Place, Histogram>,
    /// Open connections.
    pub(crate) connections: Gauge,
    /// Connections that were closed because their client had too many.
    pub(crate) connections_refused: Counter,
    items: Family<OfGallery, Gauge>,
    uploads: Gauge,
    ready: Gauge,
    memory: Gauge,
}

/// What is measured when it is asked for.
pub(crate) struct Now {
    /// The names of the galleries, and how many items each has.
    pub(crate) items: Vec<(Arc<str>, usize)>,
    /// Uploads and other work that runs or waits.
    pub(crate) uploads: usize,
    pub(crate) ready: bool,
    /// Bytes of memory in use, if the system says it.
    pub(crate) memory: Option<u64>,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut registry = Registry::default();
        let memory = Gauge::default();
        // The name by which Prometheus knows it of all programs.
        registry.register_with_unit("process_resident_memory", "Memory in use", Unit::Bytes, memory.clone());
        let own = registry.sub_registry_with_prefix("gallerist");
        let requests = Family::<Kind, Counter>::default();
        let items = Family::<OfGallery, Gauge>::default();
        let seconds = Family::<Place, Histogram>::new_with_constructor(|| Histogram::new(SECONDS));
        own.register("requests", "Requests answered", requests.clone());
        own.register_with_unit("request", "Time to the answer", Unit::Seconds, seconds.clone());
        own.register("items", "Items in each gallery", items.clone());
        let mut gauge = |name: &str, help: &str| {
            let gauge = Gauge::default();
            own.register(name, help, gauge.clone());
            gauge
        };
        let connections = gauge("connections", "Open connections");
        let uploads = gauge("uploads", "Uploads, changes and other work of the network that run or wait");
        let ready = gauge("ready", "1 if the server is ready for requests, else 0");
        let connections_refused = Counter::default();
        own.register(
            "connections_refused",
            "Connections closed because their client had too many",
            connections_refused.clone(),
        );
        Self { registry, requests, seconds, connections, connections_refused, items, uploads, ready, memory }
    }

    pub(crate) fn request(&self, path: String, method: String, status: u16, time: Duration) {
        // Clients may send any word as a method: count unknown ones together.
        let method = if ["GET", "HEAD", "POST", "DELETE"].contains(&method.as_str()) {
            method
        } else {
            "other".to_owned()
        };
        self.seconds.get_or_create(&Place { path: path.clone() }).observe(time.as_secs_f64());
        self.requests.get_or_create(&Kind { method, path, status }).inc();
    }

    pub(crate) fn text(&self, now: &Now) -> Result<String, fmt::Error> {
        for (gallery, items) in &now.items {
            self.items.get_or_create(&OfGallery { gallery: escaped(gallery) }).set(*items as i64);
        }
        self.uploads.set(now.uploads as i64);
        self.ready.set(now.ready.into());
        self.memory.set(now.memory.unwrap_or_default() as i64);
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

/// The value of a label. The encoder writes values as they are, and a name may have any character.
fn escaped(name: &str) -> String {
    name.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_gallery_has_its_items_and_its_name_is_escaped() {
        let metrics = Metrics::new();
        let items = vec![("a".into(), 3), ("b \"\\\n".into(), 5)];
        let text = metrics.text(&Now { items, uploads: 0, ready: true, memory: None }).unwrap();
        let lines: Vec<&str> = text.lines().filter(|line| line.contains("gallerist_items{")).collect();
        assert_eq!(lines.len(), 2, "{text}");
        for line in [r#"gallerist_items{gallery="a"} 3"#, r#"gallerist_items{gallery="b \"\\\n"} 5"#] {
            assert!(lines.contains(&line), "{line} in {text}");
        }
    }
}
