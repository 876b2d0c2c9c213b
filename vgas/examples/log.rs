//! A log that all ranks append to, in tiered memory: a service at the home of node 0 gives each line its place. The ranks there may
//! compute meanwhile, as rank 0 does here.
//!
//! Run it: `cargo build --release --examples && target/release/vgas run --own-nodes -n 4 --nodes 2 -- target/release/examples/log`

use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::time::{Duration, Instant};
use vgas::service::{Call, Home, Service, Services};
use vgas::{NodeId, Rank, Runtime, SegmentOptions};

/// Rank of the log: it is at the beginning of this rank's tiered segment.
const OWNER: Rank = Rank(0);
const LOG_BYTES: u64 = 1 << 20;
const LINES: u64 = 1000;

/// The log's end, and the appends in flight.
#[derive(Default)]
struct Log {
    end: u64,
    writing: HashMap<u64, Call>,
}

#[derive(Serialize, Deserialize)]
struct Append(String);

/// Offset of the line; none when the log is full or cannot be written.
#[derive(Serialize, Deserialize)]
struct Appended(Option<u64>);

impl Service for Log {
    type Request = Append;
    type Answer = Appended;
    const NAME: &'static str = "example.log";

    fn called(&mut self, call: Call, Append(line): Append, home: &mut Home<'_, Self>) {
        let (at, end) = (self.end, self.end + line.len() as u64);
        if line.is_empty() || end > LOG_BYTES {
            return home.answer(call, &Appended(None));
        }
        self.end = end;
        // The place is the ticket.
        home.write(OWNER, at, line.into_bytes(), at);
        self.writing.insert(at, call);
    }

    fn done(&mut self, at: u64, result: Result<Vec<u8>, vgas::service::Failure>, home: &mut Home<'_, Self>) {
        if let Some(call) = self.writing.remove(&at) {
            home.answer(call, &Appended(result.ok().map(|_| at)));
        }
    }
}

fn main() -> vgas::Result<()> {
    vgas::service::serve_node(|| Services::default().with(Log::default()));
    let runtime = Runtime::init()?;
    let me = runtime.rank();
    let segment = runtime.attach(&SegmentOptions::tiered(if me == OWNER { LOG_BYTES } else { 0 }))?;
    if me == OWNER {
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(100) {
            std::hint::spin_loop();
        }
    } else {
        for number in 0..LINES {
            let line = Append(format!("{me}: line {number}\n"));
            let Appended(Some(_)) = runtime.call::<Log>(NodeId(0), &line)? else { break };
        }
    }
    runtime.barrier()?;
    if me == OWNER {
        let mut log = vec![0u8; LOG_BYTES as usize];
        segment.get(OWNER, 0, &mut log)?;
        let text = String::from_utf8_lossy(&log);
        let lines = text.trim_end_matches('\0').lines().count();
        let counts = runtime.service_counts::<Log>(NodeId(0))?;
        vgas::print(format_args!("{lines} lines, {} calls\n", counts.calls))?;
    }
    runtime.finalize()
}
