//! Segments at one address in all processes: pointers that mean the same everywhere, and pointers that reach nothing here.
//!
//! # Rules for the unsafe code in this file
//!
//! Words are used as atomics, inside of the rank's own segment, which lives as long as the runtime. A child does one load and exits.

use crate::Setting;
use crate::scenarios::{Outcome, small, with};
use std::io::Read;
use std::os::fd::FromRawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use vgas::{Change, GlobalAddress, Rank, Runtime, Segment, SegmentOptions};

pub fn settings() -> Vec<Setting> {
    vec![
        Setting::new(1, 1, &small()),
        Setting::new(4, 2, &with(&[("cache.size", "4MiB")])),
        Setting::new(3, 3, &with(&[("local.mechanism", "sigsegv"), ("conduit", "smp")])),
    ]
}

const BYTES: u64 = 2 << 20;

pub fn rank(runtime: &Runtime, _seed: u64) -> Outcome {
    let (me, ranks) = (runtime.rank().0, runtime.ranks());
    // One has less, and the last one of several has none.
    let bytes = |rank: u32| if rank > 0 && rank == ranks - 1 { 0 } else { BYTES >> (rank % 2) };
    if ranks > 1 {
        let mixed = runtime.attach(&SegmentOptions::tiered(4096).one_address(me == 1));
        if !mixed.is_err_and(|error| error.to_string().contains("one with one_address and one without")) {
            return Err("some ranks attached with one_address".into());
        }
        let mixed = runtime.attach(&SegmentOptions::tiered(4096).home_only(me == 1));
        if !mixed.is_err_and(|error| error.to_string().contains("one with home_only and one without")) {
            return Err("some ranks attached with home_only".into());
        }
    }
    runtime.attach(&SegmentOptions::tiered(bytes(me)).one_address(true))?;
    let pointers: Vec<u64> = (0..ranks)
        .map(|rank| {
            runtime
                .pointer_to(GlobalAddress::tiered(Rank(rank), 0))
                .map_or(0, |pointer| pointer.addr() as u64)
        })
        .collect();
    let packed: Vec<u8> = pointers.iter().flat_map(|pointer| pointer.to_le_bytes()).collect();
    if runtime.all_gatherv(&packed)?.iter().any(|other| *other != packed) {
        return Err(format!("rank {me} has other addresses: {pointers:x?}").into());
    }
    for (rank, &pointer) in (0..).map(Rank).zip(&pointers).filter(|(_, pointer)| **pointer != 0) {
        for offset in [0, 8, bytes(rank.0) - 1] {
            let at = GlobalAddress::tiered(rank, offset);
            let pointer = (pointer + offset) as usize as *const u8;
            if runtime.pointer_to(at).map(|found| found.cast_const()) != Some(pointer)
                || runtime.address_of(pointer) != Some(at)
            {
                return Err(format!("{at:?} is not at {pointer:p}").into());
            }
        }
        let behind = (pointer + bytes(rank.0)) as usize as *const u8;
        if runtime.address_of(behind).is_some()
            || runtime.pointer_to(GlobalAddress::tiered(rank, bytes(rank.0))).is_some()
        {
            return Err(format!("something is behind the segment of {rank}").into());
        }
    }
    if bytes(me) > 0 && crate::scenarios::local(runtime)?.base().addr() as u64 != pointers[me as usize] {
        return Err("the own segment is elsewhere".into());
    }
    runtime.barrier()?;
    // A list of words through all segments: each holds the address of the next, as a number that all understand.
    for rank in (0..ranks).filter(|rank| bytes(*rank) > 0) {
        let next = pointers[((rank + 1) % ranks) as usize] + 64;
        if me == 0 {
            runtime.put_value(GlobalAddress::tiered(Rank(rank), 64), next)?;
        }
        runtime.update(GlobalAddress::tiered(Rank(rank), 128), Change::Add(1u64))?;
    }
    runtime.barrier()?;
    if bytes(me) > 0 {
        let word = |offset: u64| {
            let pointer = (pointers[me as usize] + offset) as usize as *mut u64;
            // SAFETY: the rule of this file.
            unsafe { AtomicU64::from_ptr(pointer) }.load(Ordering::Acquire)
        };
        if (word(64), word(128)) != (pointers[((me + 1) % ranks) as usize] + 64, u64::from(ranks)) {
            return Err(format!("rank {me} finds {:#x} and {}", word(64), word(128)).into());
        }
    }
    further(runtime)?;
    for rank in (0..ranks).filter(|rank| *rank != me) {
        let said = stray(pointers[0] + u64::from(rank) * (BYTES + 4096) + 77)?;
        let expected = format!("rank {me}: ");
        if !said.contains(&expected) || !said.contains(&format!("byte 77 of rank {rank}'s segment")) {
            return Err(format!("a stray pointer to rank {rank} ends with {said:?}").into());
        }
    }
    runtime.barrier()?;
    Ok(())
}

/// Goal: further segments are at one address, too, beside each other and the first, whatever their pages; pointers reach the own part, and
/// that of a rank of the node to read; what is detached leaves its addresses to the next.
fn further(runtime: &Runtime) -> Outcome {
    let (me, ranks) = (runtime.rank(), runtime.ranks());
    let options = |page_bytes| SegmentOptions::tiered(0).page_size(page_bytes).one_address(true);
    if ranks > 1 {
        let mixed = SegmentOptions::tiered(0).one_address(me.0 == 1);
        if !runtime
            .attach(&mixed.sized(4096))
            .is_err_and(|error| error.to_string().contains("different options"))
        {
            return Err("some ranks attached a further segment with one_address".into());
        }
    }
    let own = runtime.attach(&options(0).sized(4096).independent());
    let most = runtime.attach(&options(0).sized(1 << 62));
    for (refused, why) in [(own, "together"), (most, "at most")] {
        if !refused.as_ref().is_err_and(|error| error.to_string().contains(why)) {
            return Err(format!("{why}: {refused:?}").into());
        }
    }
    let mut gone = Vec::new();
    for round in 0..3 {
        let segments = [
            runtime.attach(&(options(4 << 10)).sized(BYTES))?,
            runtime.attach(&(options(16 << 10)).sized(3000))?,
        ];
        let bases: Vec<u64> = segments
            .iter()
            .flat_map(|segment| (0..ranks).map(|rank| segment.address(Rank(rank), 0)))
            .map(|at| runtime.pointer_to(at).map_or(0, |pointer| pointer.addr() as u64))
            .collect();
        let packed: Vec<u8> = bases.iter().flat_map(|base| base.to_le_bytes()).collect();
        let all = runtime.all_gatherv(&packed)?;
        if bases.contains(&0) || all.iter().any(|other| *other != packed) || (round > 0 && gone != bases) {
            return Err(format!("round {round}: {me} has {bases:x?}, {gone:x?} before, of {all:x?}").into());
        }
        for (segment, bases) in segments.iter().zip(bases.chunks(ranks as usize)) {
            let part = segment.local_pages(8)?;
            if part.base().addr() as u64 != bases[me.0 as usize] {
                return Err(format!("{me} has its part of {segment:?} at {:p}", part.base()).into());
            }
            let place = |rank: Rank| {
                // SAFETY: the rule of this file.
                unsafe { AtomicU64::from_ptr((bases[rank.0 as usize] + 2048) as usize as *mut u64) }
            };
            // Told by its address, the rank that has it adds to it through its pointer, others by messages.
            let told = GlobalAddress { offset: 2048, ..segment.address(Rank((me.0 + 1) % ranks), 0) };
            let told = runtime.pointer_to(told).ok_or("no address")?;
            let found = runtime.address_of(told).ok_or("no place")?;
            if runtime
                .address_of((told.addr() + BYTES as usize) as *const u8)
                .is_some_and(|at| at.segment == segment.id())
            {
                return Err("an address behind a part is one of it".into());
            }
            runtime.update(found, Change::Add(1000u64))?;
            place(me).fetch_add(7, Ordering::SeqCst);
            runtime.barrier()?;
            let mates = runtime.layout().ranks_of(runtime.node()).map(Rank).filter(|mate| *mate != me);
            for mate in mates {
                let open = segment.local_of_peer(mate, 8)?;
                let read = place(mate).load(Ordering::SeqCst);
                if (open.base().addr() as u64, read) != (bases[mate.0 as usize], 1007) {
                    return Err(format!("{me} reads {read} of {mate} at {:p}", open.base()).into());
                }
            }
            if place(me).load(Ordering::SeqCst) != 1007 {
                return Err(format!("{me} has {}", place(me).load(Ordering::SeqCst)).into());
            }
            runtime.barrier()?;
        }
        gone = bases;
        segments.iter().try_for_each(Segment::detach)?;
        let was = gone[0] as usize as *const u8;
        if runtime.address_of(was).is_some() || runtime.pointer_to(segments[0].address(me, 0)).is_some() {
            return Err("what is detached still has an address".into());
        }
    }
    Ok(())
}

/// What a process says that loads from there, and is ended by it.
fn stray(address: u64) -> Result<String, Box<dyn std::error::Error>> {
    let mut ends = [0; 2];
    // SAFETY: the rule of this file; the ends of a pipe belong to whom they are given.
    unsafe {
        if libc::pipe(ends.as_mut_ptr()) != 0 {
            return Err(std::io::Error::last_os_error().into());
        }
        match libc::fork() {
            -1 => Err(std::io::Error::last_os_error().into()),
            0 => {
                libc::dup2(ends[1], libc::STDERR_FILENO);
                (address as usize as *const u8).read_volatile();
                libc::_exit(0)
            }
            child => {
                libc::close(ends[1]);
                let mut said = String::new();
                std::fs::File::from_raw_fd(ends[0]).read_to_string(&mut said)?;
                let mut status = 0;
                libc::waitpid(child, &mut status, 0);
                match libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGSEGV {
                    true => Ok(said),
                    false => Err(format!("a load from {address:#x} ended with {status:#x}: {said}").into()),
                }
            }
        }
    }
}
