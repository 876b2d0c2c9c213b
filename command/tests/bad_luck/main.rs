//! Goal: whatever is asked for wrongly or goes wrong, as users of the command meet it: one line on standard error that
//! says what to do, a status that is not 0, within five seconds, and nothing left: no process, no file, no half output.
//!
//! Method: the real command in a folder of its own, watched from outside. Where a job has to run while something
//! happens to it, its ranks are this very test program (see [`rank`]). Without what is tested here, users find hanging
//! terminals, orphans that hold memory, and files that look like results.
//!
//! What a machine does not allow (mounts, filters) is skipped with a line that says so.

mod checkpoints;
mod cluster;
mod disks;
mod files;
mod harness;
mod limits;
mod network;
mod processes;
mod rank;
mod streams;
