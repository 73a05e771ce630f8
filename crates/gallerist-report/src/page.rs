//! The frame that all pages share.

use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use sha2::{Digest as _, Sha256};

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// The content security policy: a page loads nothing. The script is allowed by its digest, so that no other script runs
/// even if a label were inserted into the markup without escaping.
static POLICY: LazyLock<String> = LazyLock::new(|| {
    format!(
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; \
         script-src 'sha256-{}'; base-uri 'none'; form-action 'none'",
        STANDARD.encode(Sha256::digest(SCRIPT))
    )
});

/// A complete page with the content `body`.
pub(crate) fn page(title: &str, body: &Markup) -> String {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(*POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                (body)
                footer {
                    "Written by gallerist " (env!("CARGO_PKG_VERSION"))
                    ". This page holds all it shows and loads nothing."
                }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    }
    .into_string()
}

/// Title, summary, the list of sections and the notices.
pub(crate) fn head(
    title: &str,
    summary: Option<&str>,
    sections: &[(&str, &str)],
    notices: &[String],
) -> Markup {
    html! {
        header {
            h1 { (title) }
            @if let Some(summary) = summary { p.summary { (summary) } }
            @if sections.len() > 1 {
                nav aria-label="Sections" {
                    @for (id, name) in sections { a href={ "#" (id) } { (name) } }
                }
            }
            @if !notices.is_empty() {
                ul.notices aria-label="Notices" {
                    @for notice in notices { li { (notice) } }
                }
            }
        }
    }
}

/// Name and value pairs.
pub(crate) fn facts(facts: &[(String, String)]) -> Markup {
    html! {
        dl.facts {
            @for (name, value) in facts {
                div { dt { (name) } dd { (value) } }
            }
        }
    }
}
