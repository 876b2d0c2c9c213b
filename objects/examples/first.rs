//! A first program on owned objects: measurements of many sensors, more than memory holds, spread over all ranks; their means, and a
//! correction that one rank makes and all see. `vgas_objects::first_steps` goes through it.
//!
//! Run it: `cargo build --release --examples && target/release/vgas run -n 4 --nodes 2 --cache 64MiB -- target/release/examples/first`.
//! A number says how many measurements each rank makes, in thousands.

use vgas::{Rank, Runtime};
use vgas_objects::sync::DMutex;
use vgas_objects::{
    DBox, DVec, HeapOptions, Objects, Portable, RunOptions, Shareable, scope, spawn_to, task,
};

/// One measurement. The derives say that it may lie in the global heap, and that others may read it through copies.
#[derive(Clone, Copy, Portable, Shareable)]
struct Measurement {
    sensor: u32,
    value: f64,
}

/// So many, made and looked at by one task.
type Chunk = DBox<DVec<Measurement>>;

const SENSORS: u32 = 100;
const CHUNK: u64 = 100_000;

/// The sum of one sensor's values, and how many there are.
#[derive(Clone, Copy, Default, Portable, Shareable)]
struct Sum {
    of: f64,
    count: u64,
}

/// Each rank attaches to the heap, and runs the program or its tasks.
pub fn main() -> Result<(), Box<dyn std::error::Error>> {
    let thousands: u64 = std::env::args().nth(1).map_or(Ok(1_000), |words| words.parse())?;
    let runtime = Runtime::init()?;
    // A part of the heap of each rank, which lies on NVMe: as large as it may become.
    let bytes = (thousands * 1_000 * 32).next_multiple_of(1 << 20) + (16 << 20);
    let objects = Objects::attach(&runtime, &HeapOptions { bytes, ..HeapOptions::default() })?;
    let ranks = objects.ranks();
    // Rank 0 is the program; the others run its tasks.
    let mean = objects.run(&RunOptions::default(), || program(ranks, thousands * 1_000))?;
    if let Some(mean) = mean {
        vgas::print(format_args!("the mean of sensor 7 is {:.3}\n", mean?))?;
    }
    Ok(objects.finalize()?)
}

fn program(ranks: u32, each: u64) -> Result<f64, Box<dyn std::error::Error>> {
    // A task captures nothing: it gets its arguments, and what it makes stays where it was made.
    let make = task!(|(from, count): (u64, u64)| -> Chunk {
        let measure = |at: u64| Measurement { sensor: (at % u64::from(SENSORS)) as u32, value: at as f64 };
        DBox::new((from..from + count).map(measure).collect())
    });
    let mut tasks = Vec::new();
    for rank in 0..ranks {
        for from in (0..each).step_by(CHUNK as usize) {
            tasks.push(spawn_to(Rank(rank), make, (u64::from(rank) * each + from, CHUNK.min(each - from))));
        }
    }
    let mut chunks: Vec<Chunk> = tasks.into_iter().map(|task| task.join()).collect::<Result<_, _>>()?;
    let before = mean_of(&chunks, 7)?;
    // Only this borrow may change the chunk: it moves here, and its earlier readers read it again.
    chunks[0].iter_mut().filter(|one| one.sensor == 7).for_each(|one| one.value += 1_000.0);
    let after = mean_of(&chunks, 7)?;
    if after <= before {
        return Err(format!("{after} after the correction, {before} before").into());
    }
    Ok(after)
}

/// Tasks that are lent a chunk run where it is, unless that rank has too much to do.
fn mean_of(chunks: &[Chunk], sensor: u32) -> Result<f64, Box<dyn std::error::Error>> {
    let all = DMutex::new(Sum::default());
    scope(|scope| {
        let sum_up = |chunk| {
            let sum = task!(|(chunk, all): (&Chunk, &DMutex<Sum>), sensor: u32| -> () {
                let mut here = Sum::default();
                for one in chunk.iter().filter(|one| one.sensor == sensor) {
                    (here.of, here.count) = (here.of + one.value, here.count + 1);
                }
                let mut all = all.lock().unwrap_or_else(|poisoned| panic!("{poisoned}"));
                (all.of, all.count) = (all.of + here.of, all.count + here.count);
            });
            scope.spawn(sum, (chunk, &all), sensor)
        };
        let tasks: Vec<_> = chunks.iter().map(sum_up).collect();
        tasks.into_iter().try_for_each(|task| task.join())
    })?;
    let all = *all.lock()?;
    Ok(all.of / all.count as f64)
}
