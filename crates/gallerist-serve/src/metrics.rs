//! Counters for Prometheus.

use std::fmt;
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

pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<Kind, Counter>,
    seconds: Family<Place, Histogram>,
    items: Gauge,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut registry = Registry::with_prefix("gallerist");
        let requests = Family::<Kind, Counter>::default();
        let seconds = Family::<Place, Histogram>::new_with_constructor(|| Histogram::new(SECONDS));
        let items = Gauge::default();
        registry.register("requests", "Requests answered", requests.clone());
        registry.register_with_unit("request", "Time to the answer", Unit::Seconds, seconds.clone());
        registry.register("items", "Items in the gallery", items.clone());
        Self { registry, requests, seconds, items }
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

    pub(crate) fn text(&self, items: usize) -> Result<String, fmt::Error> {
        self.items.set(items as i64);
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}
