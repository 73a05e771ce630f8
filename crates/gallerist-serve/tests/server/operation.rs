//! Health, readiness and metrics, as `deploy/` uses them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gallerist_serve::{Contents, Options};
use serde_json::Value;

use crate::common::{Barrier, Colours, Fixture, Running, options, square};

#[test]
fn a_server_with_too_much_to_do_or_too_much_memory_is_healthy_and_not_ready() {
    let fixture = Fixture::new();
    let barrier = Arc::new(Barrier::default());
    let contents =
        Contents { embedder: Some(Arc::new(Colours(Some(Arc::clone(&barrier))))), ..fixture.contents() };
    let server = Running::start(contents, Options { threads: 1, waiting: 0, ..options() });
    let ready = || {
        let answer = server.get("/ready");
        (answer.status, answer.json()["ready"].clone(), answer.json()["reason"].clone())
    };
    assert_eq!(ready(), (200, Value::Bool(true), Value::Null));
    let png = square([1, 2, 3], 2);
    std::thread::scope(|scope| {
        let upload = scope.spawn(|| server.post_form("/api/v1/search/upload", &[], &[("image", None, &png)]));
        barrier.reached(1);
        assert_eq!(ready(), (503, Value::Bool(false), "too many uploads wait".into()));
        assert_eq!(server.get("/health").status, 200);
        assert!(metrics(&server).contains("\ngallerist_ready 0\n"));
        barrier.open();
        assert_eq!(upload.join().unwrap().status, 200);
    });
    assert_eq!(ready().0, 200);
    #[cfg(target_os = "linux")]
    for (limit, status) in [(1 << 20, 503), (1 << 50, 200)] {
        let options = Options { ready_memory: Some(limit), ..options() };
        let server = Running::start(fixture.contents(), options);
        let answer = server.get("/ready");
        assert_eq!(answer.status, status);
        assert_eq!(answer.json()["reason"].is_string(), status == 503);
        assert_eq!(server.get("/api/v1/gallery").status, 200, "it answers in any case");
    }
}

fn metrics(server: &Running) -> String {
    String::from_utf8(server.get("/metrics").body).unwrap()
}

/// The names of metrics in the expressions of a dashboard.
fn names(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            if let Some(Value::String(expression)) = fields.get("expr") {
                let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                let ours =
                    words.filter(|word| word.starts_with("gallerist_") || word.starts_with("process_"));
                found.extend(ours.map(str::to_owned));
            }
            fields.values().for_each(|value| names(value, found));
        }
        Value::Array(values) => values.iter().for_each(|value| names(value, found)),
        _ => {}
    }
}

#[test]
fn every_metric_of_the_dashboard_and_of_the_alerts_is_exported() {
    let fixture = Fixture::new();
    let server = Running::start(fixture.contents(), options());
    assert_eq!(server.get("/health").status, 200);
    // The connection of the request before may still be closing.
    let start = Instant::now();
    let text = loop {
        let text = metrics(&server);
        if text.contains("\ngallerist_connections 1\n") || start.elapsed() > Duration::from_secs(30) {
            break text;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let dashboard: Value = serde_json::from_str(include_str!("../../../../deploy/grafana.json")).unwrap();
    let mut used = Vec::new();
    names(&dashboard, &mut used);
    let alerts = include_str!("../../../../deploy/alerts.yml");
    for line in alerts.lines().filter_map(|line| line.trim().strip_prefix("expr:")) {
        names(&serde_json::json!({ "expr": line }), &mut used);
    }
    assert!(used.len() >= 12, "{used:?}");
    for name in used {
        let exported = |end: &str| text.contains(&format!("\n{name}{end}"));
        assert!(exported("{") || exported(" "), "{name} in\n{text}");
    }
    let gallery = server.json("/api/v1/gallery")["gallery"].clone();
    let items = format!("gallerist_items{{gallery={gallery}}} 12");
    for name in ["gallerist_connections 1", &items, "gallerist_ready 1", "gallerist_uploads 0"] {
        assert!(text.contains(&format!("\n{name}\n")), "{name}\n{text}");
    }
}
