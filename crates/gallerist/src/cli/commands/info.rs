//! `gallerist info`.

use std::process::ExitCode;

use serde_json::Value;

use crate::cli::args::Info;
use crate::cli::failure::CommandResult;
use crate::cli::next::Done;
use crate::cli::printer::{self, grouped};
use crate::retrieval::file::TableColumns;
use crate::train::RunDirectory;
use crate::unread::warn_of_unread;
use crate::{Contents, ContentsKind, contents};

pub(super) fn run(args: Info) -> CommandResult {
    let found = contents(&args.path)?;
    if found.kind == ContentsKind::Embeddings {
        warn_of_unread(&args.path, &TableColumns::default(), |warning| printer::warning(&warning))?;
    }
    if args.json {
        printer::json(&found)?;
        return Ok(ExitCode::SUCCESS);
    }
    let checksum = if found.checksum { ", the checksum holds" } else { "" };
    printer::out(&format!("{}, {} bytes{checksum}\n", found.kind.words(), grouped(found.bytes as usize)))?;
    facts(&found)?;
    let path = &args.path;
    match found.kind {
        ContentsKind::Run => Done::Run(&RunDirectory::open(path)?).show(),
        ContentsKind::Embeddings => Done::Embeddings(path).show(),
        ContentsKind::Index => Done::Gallery(path).show(),
        ContentsKind::RunFile => Done::RunFile(path).show(),
        ContentsKind::Onnx => Done::Model(path).show(),
        ContentsKind::Weights => Done::Weights(path).show(),
        _ => {}
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the facts, one a line.
pub(super) fn facts(found: &Contents) -> std::io::Result<()> {
    let facts: Vec<(&str, String)> =
        found.facts.0.iter().map(|(name, value)| (name.as_str(), text(value))).collect();
    printer::facts(&facts)
}

fn text(value: &Value) -> String {
    match value {
        Value::Bool(true) => "yes".into(),
        Value::Bool(false) => "no".into(),
        Value::String(text) => text.clone(),
        Value::Array(list) => list.iter().map(text).collect::<Vec<_>>().join(", "),
        Value::Number(number) => match (number.as_u64(), number.as_f64()) {
            (Some(count), _) => grouped(count as usize),
            (None, Some(value)) => format!("{value:.4}"),
            (None, None) => number.to_string(),
        },
        other => other.to_string(),
    }
}
