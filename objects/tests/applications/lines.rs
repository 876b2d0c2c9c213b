//! How many lines of a program on owned objects are others than of the same on std.
//!
//! A program on std is all of its files but `objects.rs`, and `baselines.rs`, which neither has. A line is another one if it is in one of
//! `plain.rs` and `objects.rs` only (as the shortest list of changes says), or names what types must have to lie in the heap.

use std::path::Path;

/// Lines that count, without space around them: no remarks, and none without words.
fn lines(path: &Path) -> Result<Vec<String>, String> {
    let text = std::fs::read_to_string(path).map_err(|why| format!("{}: {why}", path.display()))?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//"));
    Ok(lines.map(str::to_owned).collect())
}

/// The most lines that two texts have in common, in their order.
fn common(a: &[String], b: &[String]) -> usize {
    let mut row = vec![0; b.len() + 1];
    for line in a {
        let mut left_above = 0;
        for (at, other) in b.iter().enumerate() {
            let above = row[at + 1];
            row[at + 1] = if line == other { left_above + 1 } else { above.max(row[at]) };
            left_above = above;
        }
    }
    row[b.len()]
}

/// Lines of a program on std, and those of them and of the program on objects that are others.
fn count(name: &str) -> Result<(usize, usize), String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(name);
    let (plain, objects) = (lines(&folder.join("plain.rs"))?, lines(&folder.join("objects.rs"))?);
    let changed = plain.len().max(objects.len()) - common(&plain, &objects);
    let (mut all, mut others) = (plain.len(), changed);
    for entry in std::fs::read_dir(&folder).map_err(|why| why.to_string())? {
        let path = entry.map_err(|why| why.to_string())?.path();
        let is_version = |name: &str| path.file_name().is_some_and(|file| file == name);
        if ["plain.rs", "objects.rs", "baselines.rs"].into_iter().any(is_version) {
            continue;
        }
        let shared = lines(&path)?;
        all += shared.len();
        others +=
            shared.iter().filter(|line| line.contains("Portable") || line.contains("objects::")).count();
    }
    Ok((all, others))
}

/// Goal: what is recorded of the lines that differ (bench/OBJECTS.md) is so: at most so many of a hundred.
pub fn are_as_few_as_recorded() -> Result<(), String> {
    for (name, most) in [("dataframe", 6), ("kv", 10), ("matrix", 11), ("socialnet", 11)] {
        let (all, others) = count(name)?;
        println!(
            "        {name}: {others} of {all} lines are others, {:.1} of 100",
            others as f64 * 100.0 / all as f64
        );
        if others * 100 > all * most {
            return Err(format!("{name}: {others} of {all} lines are others: more than {most} of 100"));
        }
    }
    Ok(())
}
