//! `gallerist merge`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use gallerist_data::ManifestPart;
use serde::Serialize;

use crate::cli::args::Merge;
use crate::cli::failure::{CommandResult, Failure};
use crate::cli::next::{Done, quoted};
use crate::cli::output::{check_output, has_extension, warn_of_columns, warn_of_lost_threshold};
use crate::cli::printer;
use crate::retrieval::eval::MatchRule;
use crate::retrieval::file::{columns_of, read_threshold};
use crate::retrieval::search::Metric;
use crate::retrieval::shards::{CheckedShards, JoinedShards, Shard, ShardFolder, ShardRecord, UnusableShard};

/// Commands and images that are shown.
const SHOWN: usize = 20;

/// What `--json` prints.
#[derive(Serialize)]
struct Summary {
    file: String,
    shards: u32,
    embeddings: u64,
    dimensions: usize,
    broken: Vec<String>,
    model: String,
    metric: Metric,
}

pub(super) fn run(args: Merge) -> CommandResult {
    check_output(&args.out)?;
    check_replaced(&args.out)?;
    let mut checked = ShardFolder::open(&args.folder)?.check()?;
    compare_with_manifest(&mut checked);
    if !checked.unusable.is_empty() {
        return Err(unusable(&args.folder, &checked));
    }
    let joined = checked.join(&args.out)?;
    warn_of_shards(&args.folder, &checked)?;
    let broken = checked.whole.iter().flat_map(|record| &record.broken);
    let broken: Vec<String> = broken.map(|one| one.reason.clone()).collect();
    for one in broken.iter().take(SHOWN) {
        printer::warning(&format!("{one}; it was left out"));
    }
    if broken.len() > SHOWN {
        let all = printer::count(broken.len(), "image");
        printer::warning(&format!("{all} in all could not be read and were left out"));
    }
    if args.json {
        printer::json(&Summary {
            file: args.out.display().to_string(),
            shards: checked.count,
            embeddings: joined.rows,
            dimensions: joined.dimensions,
            broken: broken.clone(),
            model: joined.model,
            metric: joined.metric,
        })?;
    } else {
        printer::note(&format!(
            "{} x {} embeddings of {} listed in {}",
            printer::grouped(joined.rows as usize),
            joined.dimensions,
            printer::count(checked.count as usize, "shard"),
            args.out.display()
        ));
        Done::Embeddings(&args.out).show();
    }
    Ok(ExitCode::from(u8::from(!broken.is_empty())))
}

/// Refuses to replace a file that is not a list of shards, and the name of a shard's record.
fn check_replaced(out: &Path) -> Result<(), Failure> {
    let name = out.file_name().unwrap_or_default().to_string_lossy();
    if Shard::of_name(&name).is_some() {
        let message = format!("`{}` is the name of the record of a shard", out.display());
        return Err(Failure::new(message, Some("give the list another name: --out gallery.json")));
    }
    if !out.exists() {
        return Ok(());
    }
    match JoinedShards::read(out) {
        Ok(list) => {
            if list.threshold.is_some() {
                warn_of_lost_threshold("list", out);
            }
            Ok(())
        }
        Err(_) => Err(Failure::new(
            format!("`{}` exists, and is no list of shards: the list would replace it", out.display()),
            Some("give another --out, or remove the file first"),
        )),
    }
}

/// Finds the shards that other lines were embedded of than the manifest has now, where it is a file of this machine.
fn compare_with_manifest(checked: &mut CheckedShards) {
    let is_other = |record: &ShardRecord| {
        let (shard, manifest) = (Shard::new(record.index, record.count)?, Path::new(&record.manifest));
        let part = manifest.is_file().then(|| ManifestPart::read(manifest, shard).ok()).flatten()?;
        Some(part.sha256 != record.origin.lines_sha256)
    };
    let others: Vec<bool> = checked.whole.iter().map(|record| is_other(record) == Some(true)).collect();
    let count = others.iter().filter(|&&is_other| is_other).count();
    if count == 0 {
        return;
    }
    if count == others.len() {
        printer::warning(
            &"the manifest has changed since the shards were embedded, and none has the lines that it has now: images that were added to it are \
              not in the list (embed the shards again for them)",
        );
        return;
    }
    let records = std::mem::take(&mut checked.whole);
    for (record, is_other) in records.into_iter().zip(others) {
        match (is_other, Shard::new(record.index, record.count)) {
            (true, Some(shard)) => {
                let problem = format!("it is of other lines than `{}` has now", record.manifest);
                checked.unusable.push(UnusableShard { shard, problem });
            }
            _ => checked.whole.push(record),
        }
    }
    checked.unusable.sort_by_key(|one| one.shard.index());
}

/// Warns of columns of numbers or dates that are of another kind in other shards, and of thresholds that differ; shards in an object
/// store are not read again.
fn warn_of_shards(folder: &Path, checked: &CheckedShards) -> Result<(), Failure> {
    if !folder.is_dir() {
        return Ok(());
    }
    let files = checked.whole.iter().filter_map(|record| record.file.as_ref());
    let files: Vec<PathBuf> = files.map(|file| folder.join(&file.name)).collect();
    let columns = files.iter().map(columns_of).collect::<Result<Vec<_>, _>>()?;
    warn_of_columns(&columns);
    let of_file =
        |file: &PathBuf| if has_extension(file, "safetensors") { read_threshold(file) } else { Ok(None) };
    let thresholds = files.iter().map(of_file).collect::<Result<Vec<_>, _>>()?;
    if MatchRule::distinct(thresholds.iter().flatten()).len() > 1 {
        printer::warning(
            &"the shards have different thresholds, and the list has none (save one with `gallerist threshold --save`)",
        );
    }
    Ok(())
}

/// Names the shards that cannot be used, and the commands that embed them.
fn unusable(folder: &Path, checked: &CheckedShards) -> Failure {
    let mut message = format!(
        "{} of {} shards in `{}` cannot be used",
        checked.unusable.len(),
        checked.count,
        folder.display()
    );
    for one in checked.unusable.iter().take(SHOWN) {
        message.push_str(&format!("\n  shard {}: {}", one.shard, one.problem));
    }
    if checked.unusable.len() > SHOWN {
        message.push_str(&format!("\n  and {} more", checked.unusable.len() - SHOWN));
    }
    let numbers = ranges(checked.unusable.iter().map(|one| one.shard.index()));
    let Some(like) = checked.whole.first() else {
        let hint = format!("embed the shards {numbers} of {} again with one network", checked.count);
        return Failure::new(message, Some(&hint));
    };
    let commands = checked.unusable.iter().take(SHOWN).map(|one| command(folder, like, one.shard));
    let commands = commands.collect::<Vec<_>>().join("\n  ");
    Failure::new(
        message,
        Some(&format!(
            "embed the shards {numbers} (remove their files first if they are of another network or of other lines):\n  {commands}"
        )),
    )
}

/// The command that embeds a shard like another.
fn command(folder: &Path, like: &ShardRecord, shard: Shard) -> String {
    let mut line = format!(
        "gallerist embed --run {} --shards {} --shard {shard} --out {}",
        quoted(&like.run),
        quoted(&like.manifest),
        quoted(&folder.to_string_lossy())
    );
    for (name, value) in &like.origin.options {
        let is_default =
            matches!((name.as_str(), value.as_str()), ("format", "safetensors") | ("precision", "f32"));
        if !is_default {
            line.push_str(&format!(" --{name} {}", quoted(value)));
        }
    }
    line
}

/// Ascending numbers as `3,7-9`, the form of Slurm arrays.
fn ranges(numbers: impl Iterator<Item = u32>) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, end)) if *end + 1 == number => *end = number,
            _ => ranges.push((number, number)),
        }
    }
    let text = |(start, end): &(u32, u32)| match start == end {
        true => start.to_string(),
        false => format!("{start}-{end}"),
    };
    ranges.iter().map(text).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::ranges;

    #[test]
    fn numbers_that_follow_each_other_are_a_range() {
        assert_eq!(ranges([3, 7, 8, 9, 11].into_iter()), "3,7-9,11");
        assert_eq!(ranges([0].into_iter()), "0");
    }
}
