//! Files of comma-separated values, of the layout G1: pieces of a file are read by different threads and ranks.

use super::common::Outcome;
use super::rows::{Rows, bytes_of, text};
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;

const HEADER: [&str; 9] = ["id1", "id2", "id3", "id4", "id5", "id6", "v1", "v2", "v3"];

/// Longest line: a file of longer ones is none of this benchmark.
const LINE_MAX: usize = 4096;

/// Bytes of a file that are read at a time.
const PIECE: u64 = 4 << 20;

/// First and last byte of a piece of a file: it has the lines that begin there.
pub type Piece = (u64, u64);

/// The first bad line of a piece, counted from the piece's first, and the reason.
pub type Wrong = (u64, String);

fn quoted(field: &[u8]) -> String {
    vgas::say::Quoted(String::from_utf8_lossy(field)).to_string()
}

/// A line without its end.
fn trimmed(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// The fields of a line, without quotes around them.
fn fields(line: &[u8]) -> Result<[&[u8]; 9], String> {
    let mut all = [&[][..]; 9];
    let mut count = 0;
    for field in line.split(|byte| *byte == b',') {
        let is_quoted = field.first() == Some(&b'"');
        let field = match field {
            [b'"', inner @ .., b'"'] => inner,
            other => other,
        };
        if field.contains(&b'"') {
            let why = if is_quoted {
                "has a quotation that does not end before the comma"
            } else {
                "has a quotation mark"
            };
            return Err(format!("field {} {why}: `{}`", count + 1, quoted(field)));
        }
        if let Some(place) = all.get_mut(count) {
            *place = field;
        }
        count += 1;
    }
    match count {
        9 => Ok(all),
        _ => Err(format!("{count} fields instead of 9")),
    }
}

/// The pieces of a file, after a look at its first line.
pub fn pieces(path: &Path) -> Outcome<Vec<Piece>> {
    let name = path.display();
    let cannot = |why| format!("cannot read {name}: {why}");
    let file = File::open(path).map_err(cannot)?;
    let bytes = file.metadata().map_err(cannot)?.len();
    let mut first = Vec::new();
    BufReader::new(file).take(LINE_MAX as u64).read_until(b'\n', &mut first).map_err(cannot)?;
    if first.is_empty() {
        return Err(
            format!("{name}:1: the file is empty: a line with the names of the columns is missing").into()
        );
    }
    let expected = HEADER.join(",");
    let names =
        fields(trimmed(&first)).map_err(|why| format!("{name}:1: {why}; the columns are {expected}"))?;
    if let Some((found, name_of)) = names.iter().zip(HEADER).find(|(found, name)| **found != name.as_bytes())
    {
        return Err(format!(
            "{name}:1: column `{}` instead of {name_of}; the columns are {expected}",
            quoted(found)
        )
        .into());
    }
    let begins = first.len() as u64;
    if begins >= bytes {
        return Err(format!("{name}:2: the file has no rows").into());
    }
    Ok((begins..bytes).step_by(PIECE as usize).map(|from| (from, (from + PIECE).min(bytes))).collect())
}

/// The lines that begin in a piece, from the first one that does.
fn lines_of(path: &Path, (from, to): Piece) -> std::io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    // The byte before tells whether a line begins with the piece.
    file.seek(SeekFrom::Start(from - 1))?;
    let mut file = BufReader::new(file);
    let mut skipped = Vec::new();
    let before = (&mut file).take(to - from + 1).read_until(b'\n', &mut skipped)? as u64;
    let mut lines = Vec::new();
    (&mut file).take((to - from + 1).saturating_sub(before)).read_to_end(&mut lines)?;
    if !lines.is_empty() && lines.last() != Some(&b'\n') {
        file.take(LINE_MAX as u64 + 1).read_until(b'\n', &mut lines)?;
    }
    Ok(lines)
}

/// The rows of a piece, and how many lines it has; or what is wrong in it.
pub fn read(path: &Path, piece: Piece) -> Result<(Rows, u64), Wrong> {
    let lines = lines_of(path, piece).map_err(|why| (0, format!("cannot be read: {why}")))?;
    let mut rows = Rows::default();
    let mut count = 0;
    for line in lines.split_inclusive(|byte| *byte == b'\n') {
        add(line, &mut rows).map_err(|why| (count, why))?;
        count += 1;
    }
    Ok((rows, count))
}

fn add(line: &[u8], rows: &mut Rows) -> Result<(), String> {
    if line.len() > LINE_MAX {
        return Err(format!("the line is longer than {LINE_MAX} bytes"));
    }
    let line = trimmed(line);
    if line.is_empty() {
        return Err("the line is empty".into());
    }
    let fields = fields(line)?;
    let named = |at: usize| {
        let found = fields[at];
        text(found)
            .filter(|_| !found.is_empty())
            .ok_or_else(|| format!("{} is `{}`, not a name of 1 to 16 bytes", HEADER[at], quoted(found)))
    };
    let whole = |at: usize| {
        let found = fields[at];
        let number = std::str::from_utf8(found).ok().and_then(|text| text.parse::<i32>().ok());
        number.ok_or_else(|| format!("{} is `{}`, not a whole number of 32 bits", HEADER[at], quoted(found)))
    };
    let number = std::str::from_utf8(fields[8]).ok().and_then(|text| text.parse::<f64>().ok());
    let v3 = number.filter(|number| number.is_finite());
    let v3 = v3.ok_or_else(|| format!("v3 is `{}`, not a number", quoted(fields[8])))?;
    let (id1, id2, id3) = (named(0)?, named(1)?, named(2)?);
    let (id4, id5, id6, v1, v2) = (whole(3)?, whole(4)?, whole(5)?, whole(6)?, whole(7)?);
    rows.id1.push(id1);
    rows.id2.push(id2);
    rows.id3.push(id3);
    rows.id4.push(id4);
    rows.id5.push(id5);
    rows.id6.push(id6);
    rows.v1.push(v1);
    rows.v2.push(v2);
    rows.v3.push(v3);
    Ok(())
}

/// Checks the results of several threads, thread `t` having read every n-th piece from `t` on: the line
/// counts of good pieces, and the error in the next one. An error names the first line of the file that is
/// wrong.
pub fn check(path: &Path, found: &[(Vec<u64>, Option<Wrong>)]) -> Outcome {
    let threads = found.len();
    let wrong = found.iter().enumerate().filter_map(|(thread, (lines, wrong))| {
        wrong.as_ref().map(|wrong| (thread + lines.len() * threads, wrong))
    });
    let Some((piece, (line, why))) = wrong.min_by_key(|(piece, _)| *piece) else { return Ok(()) };
    let before: u64 = (0..piece).map(|piece| found[piece % threads].0[piece / threads]).sum();
    // The names of the columns are the first line.
    Err(format!("{}:{}: {why}", path.display(), before + line + 2).into())
}

/// Writes a generated table.
pub fn write(path: &Path, seed: u64, rows: u64, groups: u64) -> Outcome {
    let cannot = |why| format!("cannot write {}: {why}", path.display());
    let mut file = BufWriter::new(File::create(path).map_err(cannot)?);
    writeln!(file, "{}", HEADER.join(",")).map_err(cannot)?;
    let mut progress = super::common::Progress::new("rows", rows.div_ceil(10_000));
    for from in (0..rows).step_by(10_000) {
        let some = Rows::generate(seed, from, (from + 10_000).min(rows), rows, groups);
        for row in 0..some.v3.len() {
            for id in [some.id1[row], some.id2[row], some.id3[row]] {
                file.write_all(&bytes_of(id)).and_then(|()| file.write_all(b",")).map_err(cannot)?;
            }
            let (id4, id5, id6) = (some.id4[row], some.id5[row], some.id6[row]);
            writeln!(file, "{id4},{id5},{id6},{},{},{:.6}", some.v1[row], some.v2[row], some.v3[row])
                .map_err(cannot)?;
        }
        progress.step();
    }
    Ok(file.flush().map_err(cannot)?)
}
