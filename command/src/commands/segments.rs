//! `vgas segments`: named segments stored by jobs.

use super::objects::size;
use crate::cli::{SegmentsAction, SegmentsFlags};
use crate::failure::Failure;
use crate::{job, output};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use vgas::{AtRest, CopyTarget, StoredPart, StoredSegment, copy_segment, remove_segments, stored_segments};

/// A segment, for machines.
#[derive(Debug, Serialize)]
struct Segment {
    name: String,
    /// Bytes that jobs see, over the ranks that are here.
    bytes: u64,
    /// Bytes that the files take.
    stored_bytes: u64,
    /// The newest checkpoint of every part that is here; none if they differ, or a part cannot be read. 0: none was made.
    checkpoint: Option<u64>,
    in_use: bool,
    parts: Vec<Part>,
}

/// The file of a rank.
#[derive(Debug, Serialize)]
struct Part {
    rank: u32,
    file: PathBuf,
    stored_bytes: u64,
    /// Seconds since it was last written.
    age_seconds: u64,
    in_use: bool,
    #[serde(flatten)]
    content: Option<Content>,
    /// Reason why it cannot be used.
    problem: Option<String>,
}

#[derive(Debug, Serialize)]
struct Content {
    bytes: u64,
    page_bytes: u32,
    checkpoint: u64,
    /// The segments that took part in the checkpoint, as far as they are stored here too.
    together_with: Vec<String>,
    /// Number of others that took part.
    others: usize,
}

/// Does what is asked for.
pub fn segments(action: &SegmentsAction) -> Result<u8, Failure> {
    match action {
        SegmentsAction::List { common } => list(common),
        SegmentsAction::Show { name, common } => show(name, common),
        SegmentsAction::Copy { name, to, common } => copy(name, to, common),
        SegmentsAction::Remove { names, common } => remove(names, common),
    }
}

fn folder_of(common: &SegmentsFlags) -> Result<PathBuf, Failure> {
    Ok(job::config(&common.config)?.settings().nvm.directory_path())
}

/// All that is stored in a folder.
fn stored(folder: &Path) -> Result<Vec<Segment>, Failure> {
    let found = stored_segments(folder).map_err(|error| {
        Failure::new(format!("cannot read {}: {error}", folder.display()))
            .hint("`--set nvm.directory=FOLDER` says where segments are")
    })?;
    let names: Vec<&str> = found.iter().map(|segment| &segment.name[..]).collect();
    Ok(found.iter().map(|segment| Segment::of(segment, &names)).collect())
}

impl Segment {
    fn of(found: &StoredSegment, names: &[&str]) -> Self {
        let parts: Vec<Part> = found.parts.iter().map(|(&rank, part)| Part::of(rank, part, names)).collect();
        let checkpoints = || parts.iter().map(|part| part.content.as_ref().map(|content| content.checkpoint));
        let first = checkpoints().next().flatten();
        Self {
            name: found.name.clone(),
            bytes: parts.iter().filter_map(|part| Some(part.content.as_ref()?.bytes)).sum(),
            stored_bytes: parts.iter().map(|part| part.stored_bytes).sum(),
            checkpoint: first.filter(|_| checkpoints().all(|one| one == first)),
            in_use: found.is_in_use(),
            parts,
        }
    }
}

impl Part {
    fn of(rank: u32, part: &StoredPart, names: &[&str]) -> Self {
        let content = part.content.as_ref().map(|rest| Content::of(rest, names));
        Self {
            rank,
            file: part.path.clone(),
            stored_bytes: part.stored_bytes,
            age_seconds: SystemTime::now().duration_since(part.changed).map_or(0, |age| age.as_secs()),
            in_use: part.is_in_use,
            problem: content.as_ref().err().map(|why| (*why).clone()),
            content: content.ok(),
        }
    }
}

impl Content {
    fn of(rest: &AtRest, names: &[&str]) -> Self {
        let named = |hash: u64| names.iter().find(|name| vgas::name_hash(name) == hash);
        let companions = rest.companions();
        let together_with: Vec<String> =
            companions.iter().filter_map(|one| Some((*named(one.name_hash)?).to_owned())).collect();
        Self {
            bytes: rest.bytes(),
            page_bytes: rest.page_bytes(),
            checkpoint: rest.checkpoint().generation,
            others: companions.len() - together_with.len(),
            together_with,
        }
    }
}

fn list(common: &SegmentsFlags) -> Result<u8, Failure> {
    let folder = folder_of(common)?;
    let all = stored(&folder)?;
    if common.json {
        return output::print_json(&all);
    }
    if all.is_empty() {
        return output::print(&format!("no segment is stored in {}\n", folder.display()));
    }
    output::print(&table(&all))
}

/// Each segment in one line.
fn table(all: &[Segment]) -> String {
    let mut rows = vec![["NAME", "RANKS", "BYTES", "STORED", "CHECKPOINT", "CHANGED", ""].map(str::to_owned)];
    for one in all {
        let age = one.parts.iter().map(|part| part.age_seconds).min().unwrap_or(0);
        rows.push([
            one.name.clone(),
            ranks(&one.parts),
            size(one.bytes),
            size(one.stored_bytes),
            checkpoint(one),
            format!("{} ago", duration(age)),
            note(one),
        ]);
    }
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        let line: String =
            row.iter().zip(&widths).map(|(word, width)| format!("{word:width$}  ", width = *width)).collect();
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// Formats the ranks: `0-3`, or `0,2`.
fn ranks(parts: &[Part]) -> String {
    let mut text = String::new();
    let mut parts = parts.iter().map(|part| part.rank).peekable();
    while let Some(first) = parts.next() {
        let mut last = first;
        while let Some(next) = parts.next_if_eq(&(last + 1)) {
            last = next;
        }
        let comma = if text.is_empty() { "" } else { "," };
        // Writing into a string does not fail.
        let _ = match first == last {
            true => write!(text, "{comma}{first}"),
            false => write!(text, "{comma}{first}-{last}"),
        };
    }
    text
}

fn checkpoint(of: &Segment) -> String {
    match of.checkpoint {
        Some(0) => "none".into(),
        Some(number) => number.to_string(),
        None => "differ".into(),
    }
}

fn note(of: &Segment) -> String {
    match (of.in_use, of.parts.iter().any(|part| part.problem.is_some())) {
        (_, true) => "damaged: see `vgas segments show`".into(),
        (true, false) => "in use".into(),
        (false, false) => String::new(),
    }
}

/// A time, in its largest unit.
fn duration(seconds: u64) -> String {
    let (count, unit) = match seconds {
        0..60 => (seconds, "second"),
        60..3600 => (seconds / 60, "minute"),
        3600..86_400 => (seconds / 3600, "hour"),
        _ => (seconds / 86_400, "day"),
    };
    format!("{count} {unit}{}", if count == 1 { "" } else { "s" })
}

fn show(name: &str, common: &SegmentsFlags) -> Result<u8, Failure> {
    let folder = folder_of(common)?;
    let found = stored(&folder)?.into_iter().find(|one| one.name == name);
    let found = found.ok_or_else(|| missing(name, &folder))?;
    if common.json {
        return output::print_json(&found);
    }
    output::print(&text(&found))
}

fn text(of: &Segment) -> String {
    let mut text = format!(
        "{}: {} of {} ranks in all, {} stored, {}\n",
        of.name,
        size(of.bytes),
        of.parts.len(),
        size(of.stored_bytes),
        match of.checkpoint {
            Some(0) => "no checkpoint was made: the next job finds zeros".to_owned(),
            Some(number) => format!("checkpoint {number}"),
            None => "at different checkpoints".to_owned(),
        }
    );
    for part in &of.parts {
        let file = part.file.display();
        // Writing into a string does not fail.
        let _ = write!(text, "  rank {}: {file}, {} stored", part.rank, size(part.stored_bytes));
        if let Some(content) = &part.content {
            let _ = write!(
                text,
                ", {} in pages of {}, checkpoint {}",
                size(content.bytes),
                size(content.page_bytes.into()),
                content.checkpoint
            );
        }
        let _ = write!(text, ", changed {} ago", duration(part.age_seconds));
        text += if part.in_use { ", in use by a job\n" } else { "\n" };
        if let Some(problem) = &part.problem {
            let _ = writeln!(text, "    {problem}");
        }
    }
    let first = of.parts.iter().find_map(|part| part.content.as_ref());
    if let Some(content) = first.filter(|content| content.others + content.together_with.len() > 0) {
        let mut names = content.together_with.clone();
        if content.others > 0 {
            names.push(format!("{} that are not stored here", content.others));
        }
        let _ = writeln!(text, "  one checkpoint with: {}", names.join(", "));
    }
    text
}

fn missing(name: &str, folder: &Path) -> Failure {
    Failure::new(format!("no segment {name:?} is stored in {}", folder.display()))
        .hint("`vgas segments list` shows what is; `--set nvm.directory=FOLDER` looks elsewhere")
}

fn copy(name: &str, to: &Path, common: &SegmentsFlags) -> Result<u8, Failure> {
    let folder = folder_of(common)?;
    if !stored(&folder)?.iter().any(|one| one.name == name) {
        return Err(missing(name, &folder));
    }
    let target = target(name, to, &folder)?;
    let bar = ProgressBar::new(0);
    // A wrong template would be this file's mistake; then the default looks will do.
    if let Ok(style) = ProgressStyle::with_template("copy {bar:40} {percent:>3} %  {elapsed} (left: {eta})") {
        bar.set_style(style);
    }
    let copied = copy_segment(&folder, name, &target, &mut |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    told("copied", &copied.map_err(Failure::new)?, common)
}

/// Interprets the second argument of a copy: an existing folder, or a name, in a folder if it has one.
fn target(name: &str, to: &Path, folder: &Path) -> Result<CopyTarget, Failure> {
    if to.is_dir() {
        return Ok(CopyTarget { folder: to.to_owned(), name: name.to_owned() });
    }
    let new = to.file_name().and_then(|name| name.to_str());
    let new = new.ok_or_else(|| Failure::usage(format!("{} is no folder and no name", to.display())))?;
    let parent = to.parent().filter(|parent| !parent.as_os_str().is_empty());
    if let Some(parent) = parent.filter(|parent| !parent.is_dir()) {
        return Err(Failure::usage(format!("there is no folder {}", parent.display())));
    }
    Ok(CopyTarget { folder: parent.unwrap_or(folder).to_owned(), name: new.to_owned() })
}

fn remove(names: &[String], common: &SegmentsFlags) -> Result<u8, Failure> {
    let folder = folder_of(common)?;
    let all = stored(&folder)?;
    if let Some(name) = names.iter().find(|name| all.iter().all(|one| one.name != **name)) {
        return Err(missing(name, &folder));
    }
    // The same file twice would wait for itself.
    let mut names = names.to_vec();
    names.sort_unstable();
    names.dedup();
    let gone = remove_segments(&folder, &names).map_err(Failure::new)?;
    told("removed", &gone, common)
}

fn told(done: &str, files: &[PathBuf], common: &SegmentsFlags) -> Result<u8, Failure> {
    if common.json {
        return output::print_json(&files);
    }
    output::print(&files.iter().map(|file| format!("{done} {}\n", file.display())).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(rank: u32, checkpoint: u64) -> Part {
        let content = Content {
            bytes: 1 << 20,
            page_bytes: 4096,
            checkpoint,
            together_with: vec!["index".into()],
            others: 1,
        };
        Part {
            rank,
            file: format!("/scratch/store.{rank}.{rank}.vgas").into(),
            stored_bytes: 8192,
            age_seconds: 7200,
            in_use: false,
            content: Some(content),
            problem: None,
        }
    }

    /// Goal: the output has each fact once, in words.
    #[test]
    fn segments_are_for_people() {
        let parts = vec![part(0, 3), part(1, 3), part(3, 3)];
        let (name, stored_bytes, bytes) = ("store".into(), 24576, 3 << 20);
        let segment = Segment { name, bytes, stored_bytes, checkpoint: Some(3), in_use: true, parts };
        let shown = text(&segment);
        for line in [
            "store: 3.0 MiB of 3 ranks in all, 24.0 KiB stored, checkpoint 3",
            "  rank 0: /scratch/store.0.0.vgas, 8.0 KiB stored, 1.0 MiB in pages of 4.0 KiB, checkpoint 3, changed 2 hours ago",
            "  one checkpoint with: index, 1 that are not stored here",
        ] {
            assert!(shown.lines().any(|other| other == line), "{line:?} is not in\n{shown}");
        }
        let listed = table(&[segment]);
        let row: Vec<&str> =
            listed.lines().nth(1).unwrap().split("  ").filter(|word| !word.is_empty()).collect();
        let row: Vec<&str> = row.into_iter().map(str::trim).collect();
        assert_eq!(row, ["store", "0-1,3", "3.0 MiB", "24.0 KiB", "3", "2 hours ago", "in use"]);
    }
}
