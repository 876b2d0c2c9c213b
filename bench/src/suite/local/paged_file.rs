//! The reference: a mapped file, used by a process of its own in a control group whose memory is limited. That process is this command
//! again; it reads one [`MemoryStep`] a line and answers each.
//!
//! The limit is the cache's size and [an allowance](limit) for memory that the cache's size does not count for the segment either.
//!
//! # Rule for the unsafe code in this file
//!
//! The file has no name and is never shortened. It is mapped once at a time, and used by [`BlockMemory::run`] only, while it is.

use super::memory::{BLOCK_BYTES, BlockMemory, RoundTime};
use super::{MeasuredMemory, MemoryStep};
use crate::gemm::output::scratch;
use crate::suite::job::Result;
use crate::suite::raw::RawReader;
use rustix::fs::{Advice, fadvise};
use rustix::mm::{self, MapFlags, ProtFlags};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use vgas::launch::Group;
use vgas::say;

/// The parameter that makes this command the process of the file.
pub(super) const PART: &str = "mapped-file";

/// Returns the bytes of the control group for a cache of `cache_bytes`: 16 MiB for the process (its heap, its stacks, a round's order), and a 64th of the
/// cache for what the kernel keeps of mapped pages and charges to the group: page tables of a mapping of four times the cache (a 128th of
/// the cache), and its index of cached pages (a 450th).
pub(super) fn limit(cache_bytes: u64) -> u64 {
    cache_bytes + cache_bytes / 64 + (16 << 20)
}

/// First line to the process.
#[derive(Serialize, Deserialize)]
struct StartRequest {
    group: PathBuf,
    folder: PathBuf,
}

type StepResult = std::result::Result<RoundTime, String>;

/// Handle of the process. Dropping it ends the process and removes its group.
pub(super) struct PagedFileProcess {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    group: Group,
    bytes: u64,
}

impl PagedFileProcess {
    /// Starts it in a group of `bytes` bytes, with its files in a folder.
    ///
    /// # Errors
    /// Where control groups cannot be made.
    pub fn start(bytes: u64, folder: &Path) -> Result<Self> {
        let group = Group::create("mmap", bytes)?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["bench", "local", "--param"]).arg(format!("part={PART}"));
        // It is not killed with the processes of the job: it ends when the rank has, and removes the group.
        command.process_group(0);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (Some(to), Some(from)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("a process was started without pipes".into());
        };
        let mut process = Self { child, to, from: BufReader::new(from), group, bytes };
        let hello = StartRequest { group: process.group.path().to_owned(), folder: folder.to_owned() };
        process.ask(&serde_json::to_string(&hello)?)?;
        Ok(process)
    }

    fn ask(&mut self, line: &str) -> Result<RoundTime> {
        let asked = writeln!(self.to, "{line}");
        let mut answer = String::new();
        if asked.is_err() || self.from.read_line(&mut answer)? == 0 {
            let (status, limit) = (self.child.wait()?, self.bytes >> 20);
            let why = format!("the process of the mapped file ended ({status}), in a group of {limit} MiB");
            return Err(why.into());
        }
        let answer: StepResult = serde_json::from_str(&answer)?;
        Ok(answer.map_err(|why| format!("the mapped file: {why}"))?)
    }
}

impl MeasuredMemory for PagedFileProcess {
    fn act(&mut self, action: &MemoryStep) -> Result<RoundTime> {
        self.ask(&serde_json::to_string(action)?)
    }
}

impl Drop for PagedFileProcess {
    fn drop(&mut self) {
        // One that has ended by itself is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Serves as that process until its standard input ends.
///
/// # Errors
/// If it is not the rank of `vgas bench local` that has started it, or the rank is gone.
pub(super) fn serve() -> Result<()> {
    let mut hello = String::new();
    if std::io::stdin().read_line(&mut hello)? == 0 {
        return Err("this part of the benchmark is started by the benchmark itself".into());
    }
    let StartRequest { group, folder } = serde_json::from_str(&hello)?;
    let joined: StepResult =
        Group::join(&group).map_or_else(|why| Err(why.to_string()), |()| Ok(RoundTime::default()));
    let (steps, received) = mpsc::channel();
    let joined_group = group.clone();
    std::thread::Builder::new().spawn(move || {
        for line in std::io::stdin().lines().map_while(std::io::Result::ok) {
            if steps.send(line).is_err() {
                break;
            }
        }
        // The rank is gone, in the middle of a round perhaps: it cannot end this process, nor remove the group.
        Group::leave_and_remove(&joined_group);
        std::process::exit(0);
    })?;
    let served = answer(&joined).and_then(|()| serve_steps(received, folder));
    Group::leave_and_remove(&group);
    served
}

/// Executes steps until the rank sends no more, or takes no answer.
fn serve_steps(steps: mpsc::Receiver<String>, folder: PathBuf) -> Result<()> {
    let mut file = PagedFile { file: scratch(&folder)?, folder, blocks: 0, mapped: None };
    for line in steps {
        let action = serde_json::from_str(&line)?;
        answer(&file.act(&action).map_err(|error| error.to_string()))?;
    }
    Ok(())
}

fn answer(answer: &StepResult) -> Result<()> {
    Ok(say::print(format_args!("{}\n", serde_json::to_string(answer)?))?)
}

/// A file without a name.
struct PagedFile {
    file: File,
    folder: PathBuf,
    blocks: u32,
    mapped: Option<FileMapping>,
}

/// A mapping of the whole file.
struct FileMapping {
    base: *mut u8,
    bytes: usize,
}

impl Drop for FileMapping {
    fn drop(&mut self) {
        // SAFETY: mapped in `PagedFile::map`; this file's rule.
        let _ = unsafe { mm::munmap(self.base.cast(), self.bytes) };
    }
}

impl PagedFile {
    fn bytes(&self) -> usize {
        self.blocks as usize * BLOCK_BYTES
    }

    fn map(&mut self) -> Result<()> {
        self.mapped = None;
        let (bytes, access) = (self.bytes(), ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: a new place; this file's rule.
        let base = unsafe { mm::mmap(std::ptr::null_mut(), bytes, access, MapFlags::SHARED, &self.file, 0)? };
        self.mapped = Some(FileMapping { base: base.cast(), bytes });
        Ok(())
    }

    fn mapped(&self) -> Result<&FileMapping> {
        self.mapped.as_ref().ok_or_else(|| "the file is not mapped".into())
    }
}

impl MeasuredMemory for PagedFile {
    fn act(&mut self, action: &MemoryStep) -> Result<RoundTime> {
        match action {
            MemoryStep::Create { blocks } => {
                self.mapped = None;
                self.file = scratch(&self.folder)?;
                self.blocks = *blocks;
                self.file.set_len(self.bytes() as u64)?;
            }
            MemoryStep::Put => super::put_numbers(self.blocks, |_, words| {
                Ok(self.file.write_all(bytemuck::cast_slice(words))?)
            })?,
            MemoryStep::Map => self.map()?,
            MemoryStep::Settle => {
                self.mapped = None;
                self.file.sync_all()?;
                fadvise(&self.file, 0, None, Advice::DontNeed)?;
                self.map()?;
            }
            MemoryStep::Advise { random } => {
                let mapped = self.mapped()?;
                let advice = if *random { mm::Advice::Random } else { mm::Advice::Normal };
                // SAFETY: it is mapped, and how it is read ahead changes nothing in it.
                unsafe { mm::madvise(mapped.base.cast(), mapped.bytes, advice)? };
            }
            MemoryStep::Round(round) => {
                let mapped = self.mapped()?;
                // SAFETY: mapped until this returns, for all threads; this file's rule.
                let memory = unsafe { BlockMemory::new(mapped.base, self.blocks, || ()) };
                return memory.run(round);
            }
            MemoryStep::Read { page_bytes, offsets } => {
                let path: PathBuf = format!("/proc/self/fd/{}", self.file.as_raw_fd()).into();
                let time = RawReader::open(&path, *page_bytes, 1)?.read(offsets)?;
                return Ok(RoundTime { accesses: offsets.len() as u64, time });
            }
        }
        Ok(RoundTime::default())
    }
}

#[cfg(test)]
mod tests {
    use super::super::memory::{AccessKind, AccessOrder, Round};
    use super::*;
    use std::time::Duration;

    /// Goal: a file carries its numbers after each way of filling it, cached, not cached and read directly, and has no name.
    #[test]
    fn a_file_holds_what_was_put_and_stored() {
        let folder = tempfile::tempdir().unwrap();
        let file = scratch(folder.path()).unwrap();
        let mut file = PagedFile { file, folder: folder.path().to_owned(), blocks: 0, mapped: None };
        let blocks = 600;
        let round = |access, order| {
            let time = Duration::from_secs(60);
            let accesses = u64::from(blocks);
            MemoryStep::Round(Round {
                access,
                order,
                blocks,
                stride: 1,
                threads: 2,
                accesses,
                time,
                stamp: 3,
            })
        };
        assert!(file.act(&round(AccessKind::Load, AccessOrder::From(0))).is_err());
        for action in [
            MemoryStep::Create { blocks },
            MemoryStep::Put,
            MemoryStep::Map,
            MemoryStep::Advise { random: true },
            round(AccessKind::LoadAll, AccessOrder::Apart(1)),
            MemoryStep::Settle,
            round(AccessKind::LoadStore, AccessOrder::From(0)),
            MemoryStep::Create { blocks },
            MemoryStep::Map,
            round(AccessKind::StoreAll, AccessOrder::From(0)),
            round(AccessKind::LoadAll, AccessOrder::Apart(1)),
        ] {
            file.act(&action).unwrap();
        }
        // A file system without O_DIRECT says so.
        if let Err(error) = file.act(&MemoryStep::Read { page_bytes: 8192, offsets: vec![8192, 0] }) {
            assert!(
                error.to_string().contains("O_DIRECT") || error.to_string().contains("io_uring"),
                "{error}"
            );
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn the_limit_is_the_cache_and_little_more() {
        assert_eq!(limit(64 << 20), 81 << 20);
    }
}
