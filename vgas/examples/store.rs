//! A key/value store that outlives its jobs: a hash table over the named segments of all ranks, made durable by a
//! checkpoint. Each run adds the pairs it is given and looks up the keys it is given.
//!
//! Run it: `cargo build --release --examples && S="target/release/vgas run -n 2 -- target/release/examples/store" && $S Anna=3 Ben=5 && $S Ben`

use vgas::{Error, Rank, Runtime, Segment, SegmentOptions};

/// Slots of each rank.
const SLOTS: u64 = 1024;

/// Longest key and longest value, in bytes.
const TEXT_BYTES: usize = 30;

/// A slot: length and bytes of the key, then of the value. A key of length 0 is none.
type Slot = [u8; 64];

fn main() -> vgas::Result<()> {
    let runtime = Runtime::init()?;
    let options = SegmentOptions::tiered(SLOTS * size_of::<Slot>() as u64).name("example-store");
    let store = runtime.attach(&options)?;
    // One rank is the store's only user here; the slots are everywhere.
    if runtime.rank().0 == 0 {
        for argument in std::env::args().skip(1) {
            match argument.split_once('=') {
                Some((key, value)) => put(&store, key, value)?,
                None => match get(&store, &argument)? {
                    Some(value) => vgas::print(format_args!("{argument}={value}\n"))?,
                    None => vgas::print(format_args!("{argument} is not there\n"))?,
                },
            }
        }
    }
    store.checkpoint()?;
    runtime.finalize()
}

/// Returns the slots in which a key may be, in the order in which they are tried.
fn slots(store: &Segment, key: &str) -> impl Iterator<Item = (Rank, u64)> + use<> {
    let ranks = u64::from(store.runtime().ranks());
    let hash = key
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    (0..SLOTS * ranks).map(move |probe| {
        let slot = hash.wrapping_add(probe) % (SLOTS * ranks);
        (Rank((slot / SLOTS) as u32), slot % SLOTS * size_of::<Slot>() as u64)
    })
}

fn text(slot: &Slot, start: usize) -> String {
    let length = usize::from(slot[start]).min(TEXT_BYTES);
    String::from_utf8_lossy(&slot[start + 1..start + 1 + length]).into_owned()
}

fn put(store: &Segment, key: &str, value: &str) -> vgas::Result<()> {
    if key.is_empty() || key.len() > TEXT_BYTES || value.len() > TEXT_BYTES {
        return Err(Error::Usage(format!("{key}={value}: at most {TEXT_BYTES} bytes each")));
    }
    let mut slot: Slot = [0; 64];
    for (start, text) in [(0, key), (32, value)] {
        slot[start] = text.len() as u8;
        slot[start + 1..][..text.len()].copy_from_slice(text.as_bytes());
    }
    for (rank, offset) in slots(store, key) {
        let found: Slot = store.get_value(rank, offset)?;
        if found[0] == 0 || text(&found, 0) == key {
            return store.put_value(rank, offset, slot);
        }
    }
    Err(Error::Usage("the store is full".into()))
}

fn get(store: &Segment, key: &str) -> vgas::Result<Option<String>> {
    for (rank, offset) in slots(store, key) {
        let found: Slot = store.get_value(rank, offset)?;
        if found[0] == 0 {
            return Ok(None);
        }
        if text(&found, 0) == key {
            return Ok(Some(text(&found, 32)));
        }
    }
    Ok(None)
}
