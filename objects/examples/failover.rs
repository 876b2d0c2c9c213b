//! Measures the time from a node's death until its objects are usable again, and the cost of replication.
//!
//! Run it: `cargo build --release --examples && target/release/vgas run -n 3 --nodes 3 --conduit tcp --set run.survive=on -- \
//! target/release/examples/failover 20000 daemon`. Rank 1 makes that many objects of 1 KiB, and gives a list of them to rank 0; then it kills its daemon
//! (`daemon`), or itself (`rank`), while rank 0 reads them. Rank 0 says when it had the first that it got after that, and whether all are as
//! they were made. With `first` as the third word, the two ranks change places: the first node is lost. For several kills: a loop around the job.

use rustix::process::{Signal, getpid, getppid, kill_process};
use std::time::{Duration, Instant, SystemTime};
use vgas::{Rank, Runtime};
use vgas_objects::{DBox, DVec, HeapOptions, Objects, Portable, Shareable};

#[derive(Portable, Shareable)]
struct Node {
    number: u64,
    data: [u64; 127],
}

impl Node {
    fn is_right(&self) -> bool {
        self.data.iter().enumerate().all(|(at, word)| *word == value_of(self.number + at as u64))
    }
}

fn value_of(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64)
}

fn say(what: std::fmt::Arguments<'_>) -> vgas::Result<()> {
    vgas::print(format_args!("{what}\n"))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let count: u64 = std::env::args().nth(1).map_or(Ok(20_000), |count| count.parse())?;
    let kills_daemon = std::env::args().nth(2).is_none_or(|victim| victim != "rank");
    let is_first_lost = std::env::args().nth(3).is_some_and(|lost| lost == "first");
    let runtime = Runtime::init()?;
    let bytes = (count * 1536).next_multiple_of(1 << 20) + (8 << 20);
    let options = HeapOptions { bytes, replicas: 1, copies: 64, ..HeapOptions::default() };
    let objects = Objects::attach(&runtime, &options)?;
    let (me, maker, reader) = match is_first_lost {
        false => (objects.rank(), Rank(1), Rank(0)),
        true => (objects.rank(), Rank(0), Rank(1)),
    };
    let list = (me == maker).then(|| {
        let all = (0..count).map(|number| {
            DBox::new(Node { number, data: std::array::from_fn(|at| value_of(number + at as u64)) })
        });
        DBox::new(all.collect::<DVec<DBox<Node>>>())
    });
    if me == maker {
        for what in ["everything", "nothing new"] {
            let began = Instant::now();
            let done = objects.replicate()?;
            let took = began.elapsed();
            let speed = done.looked_at as f64 / took.as_secs_f64() / 1e9;
            say(format_args!(
                "replicated {what}: looked at {} bytes, sent {}, in {took:.1?} ({speed:.2} GB/s)",
                done.looked_at, done.sent
            ))?;
        }
    }
    let list = objects.hand(maker, reader, list)?;
    objects.barrier()?;
    let file = std::env::temp_dir().join(format!("vgas-failover-{}", rustix::process::getuid().as_raw()));
    if me == maker {
        // The other one is reading by then.
        std::thread::sleep(Duration::from_millis(20));
        std::fs::write(&file, now().to_string())?;
        let victim = getppid().filter(|_| kills_daemon).unwrap_or(getpid());
        kill_process(victim, Signal::KILL)?;
        std::thread::sleep(Duration::from_secs(60));
    }
    if let Some(list) = list {
        let list = list.try_read()?;
        let (mut right, mut used_again) = (0, None);
        let (mut left, began) = (count, Instant::now());
        // Round and round, with few copies kept, until the loss has come and all were read once more.
        for node in list.iter().cycle() {
            if left == 0 {
                break;
            }
            let node = node.try_read()?;
            if objects.lost_nodes().is_empty() {
                continue;
            }
            if used_again.is_none() {
                let killed: u64 = std::fs::read_to_string(&file)?.parse()?;
                used_again = Some(Duration::from_nanos(now().saturating_sub(killed)));
            }
            (right, left) = (right + u64::from(node.is_right()), left - 1);
        }
        std::fs::remove_file(file)?;
        let used_again = used_again.unwrap_or_default();
        say(format_args!(
            "used again {used_again:.1?} after the kill; {right} of {count} objects right ({:.1?} in all)",
            began.elapsed()
        ))?;
        if right != count {
            return Err("some are lost".into());
        }
    }
    Ok(objects.finalize()?)
}
