//! Spinning processes of normal priority: the load that a job finds on machines in use. For
//! `vgas bench --busy`.

use crate::failure::Failure;
use rustix::process::{Signal, set_parent_process_death_signal};
use std::hint::black_box;
use std::process::{Child, Command, Stdio};

/// Neighbours that run until this is dropped, or this process has ended in whatever way.
pub struct Neighbours(Vec<Child>);

impl Neighbours {
    /// Starts `count` processes. Started ones are ended if one cannot be.
    pub fn start(count: u32) -> Result<Self, Failure> {
        let mut neighbours = Self(Vec::new());
        for _ in 0..count {
            let child = std::env::current_exe().and_then(|this| {
                Command::new(this)
                    .arg("neighbour")
                    .arg(std::process::id().to_string())
                    .stdin(Stdio::null())
                    .stdout(Stdio::null())
                    .spawn()
            });
            let child = child.map_err(|error| {
                Failure::new(format!("cannot start a busy neighbour: {error}"))
                    .hint("ask for fewer with --busy, or raise the limit of processes (ulimit -u)")
            })?;
            neighbours.0.push(child);
        }
        Ok(neighbours)
    }
}

impl Drop for Neighbours {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // One that has ended by itself is as good.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Counts until the process that started this one, whose number that is, has ended.
pub fn count(parent: u32) -> Result<u8, Failure> {
    let failed = |error| Failure::new(format!("cannot ask for the end of the parent: {error}"));
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(failed)?;
    // It may have ended before it could be asked for.
    let mut counted = 0u64;
    while counted > 0 || std::os::unix::process::parent_id() == parent {
        counted = black_box(counted + 1);
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process whose parent is another one than it was told has lost it already.
    #[test]
    fn a_neighbour_of_nobody_ends_at_once() {
        assert_eq!(count(0).unwrap(), 0);
    }
}
