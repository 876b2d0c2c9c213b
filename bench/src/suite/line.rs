//! The channel between two ranks with nothing of ours on it: what a conduit is held against, in its best form: both ends
//! spin for small messages, and both sleep in the kernel for streams (a reader that spins takes many small pieces).

use super::job::Result;
use crate::raw::endpoint;
use rustix::io::Errno;
use rustix::thread::futex;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use vgas::{Peer, Runtime};
use vgas_rma::RegionId;
use vgas_shm::Mapping;

/// Ranks 0 and 1 use a line; both call each function, with the same numbers.
pub(super) enum Line {
    /// The pinned segments of both, mapped by both.
    Shared([Arc<Mapping>; 2]),
    /// A TCP connection between them.
    Tcp(TcpStream),
}

/// Offset of the word of the shared ping-pong: on a line of its own.
const WORD: usize = 4096;

/// Offset of the word of the sleeping one.
const SLEEPING_WORD: usize = WORD + 256;

fn hand_over(word: &AtomicU32, turn: u32) {
    word.store(turn, Ordering::Release);
    // It cannot fail in a way that matters: a thread that sleeps on another number wakes at once.
    let _ = futex::wake(word, futex::Flags::empty(), 1);
}

fn sleep_until(word: &AtomicU32, turn: u32) -> Result<()> {
    loop {
        let now = word.load(Ordering::Acquire);
        if now == turn {
            return Ok(());
        }
        match futex::wait(word, futex::Flags::empty(), now, None) {
            Ok(()) | Err(Errno::AGAIN | Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

impl Line {
    /// Opens the conduit between the ranks. Collective, in a job of two ranks.
    pub fn between(runtime: &Runtime) -> Result<Self> {
        let me = runtime.rank().0;
        let shared = endpoint(runtime).domain().and_then(|domain| {
            let map = |rank| domain.map(Peer(rank), RegionId::SEGMENT).ok();
            Some([map(0)?, map(1)?])
        });
        if !runtime.shares_machine() {
            return Err("the bare channel is measured between nodes of one machine only".into());
        }
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let ports = runtime.all_gatherv(&listener.local_addr()?.port().to_le_bytes())?;
        if let Some(mappings) = shared {
            return Ok(Self::Shared(mappings));
        }
        let port = ports.get(1).ok_or("two ranks")?.as_slice().try_into().map(u16::from_le_bytes)?;
        let stream = match me {
            0 => TcpStream::connect((Ipv4Addr::LOCALHOST, port))?,
            _ => listener.accept()?.0,
        };
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Self::Tcp(stream))
    }

    /// For people.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Shared(_) => "smp",
            Self::Tcp(_) => "tcp",
        }
    }

    /// Nanoseconds of one round trip of 8 bytes.
    pub fn ping_pong(&mut self, rank: u32, rounds: u64) -> Result<f64> {
        let start = Instant::now();
        match self {
            Self::Shared([mapping, _]) => {
                let word = mapping.word_u64(WORD);
                // Goes on from where the last round ended: even numbers are rank 0's turn.
                let first = word.load(Ordering::Acquire) / 2 * 2;
                for round in 0..rounds {
                    let turn = first + 2 * round;
                    let (wait_for, then) =
                        if rank == 0 { (turn + 2, turn + 1) } else { (turn + 1, turn + 2) };
                    if rank == 0 {
                        word.store(then, Ordering::Release);
                    }
                    while word.load(Ordering::Acquire) != wait_for {
                        std::hint::spin_loop();
                    }
                    if rank == 1 {
                        word.store(then, Ordering::Release);
                    }
                }
            }
            Self::Tcp(stream) => {
                for _ in 0..rounds {
                    if rank == 0 {
                        write_spinning(stream, &[1; 8])?;
                        read_spinning(stream, &mut [0; 8])?;
                    } else {
                        read_spinning(stream, &mut [0; 8])?;
                        write_spinning(stream, &[1; 8])?;
                    }
                }
            }
        }
        Ok(start.elapsed().as_nanos() as f64 / rounds.max(1) as f64)
    }

    /// The same with a waiting side that sleeps in the kernel and is woken directly: it needs no core to
    /// itself.
    pub fn sleeping_ping_pong(&mut self, rank: u32, rounds: u64) -> Result<f64> {
        let start = Instant::now();
        match self {
            Self::Shared([mapping, _]) => {
                let word = mapping.atomic_u32(SLEEPING_WORD);
                // Goes on from where the last round ended: even numbers are rank 0's turn.
                let mut turn = word.load(Ordering::Acquire) / 2 * 2;
                for _ in 0..rounds {
                    if rank == 0 {
                        hand_over(word, turn.wrapping_add(1));
                        sleep_until(word, turn.wrapping_add(2))?;
                    } else {
                        sleep_until(word, turn.wrapping_add(1))?;
                        hand_over(word, turn.wrapping_add(2));
                    }
                    turn = turn.wrapping_add(2);
                }
            }
            Self::Tcp(stream) => {
                stream.set_nonblocking(false)?;
                for _ in 0..rounds {
                    if rank == 0 {
                        stream.write_all(&[1; 8])?;
                        stream.read_exact(&mut [0; 8])?;
                    } else {
                        stream.read_exact(&mut [0; 8])?;
                        stream.write_all(&[1; 8])?;
                    }
                }
                stream.set_nonblocking(true)?;
            }
        }
        Ok(start.elapsed().as_nanos() as f64 / rounds.max(1) as f64)
    }

    /// Moves so many buffers to rank 0 (or, `from_0`, away from it) and waits for the last; the time as rank 0 sees it.
    pub fn stream(&mut self, rank: u32, buffer: &mut [u8], times: u64, from_0: bool) -> Result<Duration> {
        let start = Instant::now();
        match self {
            Self::Shared([mapping, _]) if rank == 0 => {
                for _ in 0..times {
                    match from_0 {
                        true => mapping.write(WORD * 2, std::hint::black_box(buffer)),
                        false => mapping.read(WORD * 2, std::hint::black_box(buffer)),
                    }
                }
            }
            Self::Shared(_) => {}
            Self::Tcp(stream) => {
                let sends = (rank == 0) == from_0;
                stream.set_nonblocking(false)?;
                for _ in 0..times {
                    match sends {
                        true => stream.write_all(buffer)?,
                        false => stream.read_exact(buffer)?,
                    }
                }
                match sends {
                    true => stream.read_exact(&mut [0; 8])?,
                    false => stream.write_all(&[1; 8])?,
                }
                stream.set_nonblocking(true)?;
            }
        }
        Ok(start.elapsed())
    }

    /// Maps this much of the shared memory, so that no access faults while time is taken.
    pub fn prepare(&self, bytes: usize) {
        if let Self::Shared(mappings) = self {
            mappings.iter().for_each(|mapping| mapping.prepare(0, bytes));
        }
    }

    /// At rank 1, writes a piece of what [`Line::take`] moves: in its own segment, or in `own` if nothing is shared.
    pub fn fill(&self, offset: usize, piece: &[u8], own: &mut [u8]) {
        match self {
            Self::Shared([_, from]) => from.write(offset, piece),
            Self::Tcp(_) => own[offset..offset + piece.len()].copy_from_slice(piece),
        }
    }

    /// Moves as many bytes as `own` has, `step` at a time, from rank 1 to rank 0: from segment to segment, by rank 0, or
    /// from `own` to `own`. Both ranks call it.
    pub fn take(&mut self, rank: u32, own: &mut [u8], step: usize) -> Result<()> {
        match self {
            Self::Shared([to, from]) if rank == 0 => {
                for offset in (0..own.len()).step_by(step) {
                    to.span(offset, step).copy_from(&from.span(offset, step));
                }
            }
            Self::Shared(_) => {}
            Self::Tcp(stream) => {
                stream.set_nonblocking(false)?;
                for piece in own.chunks_mut(step) {
                    match rank {
                        0 => stream.read_exact(piece)?,
                        _ => stream.write_all(piece)?,
                    }
                }
                stream.set_nonblocking(true)?;
            }
        }
        Ok(())
    }
}

fn read_spinning(stream: &mut TcpStream, mut to: &mut [u8]) -> Result<()> {
    while !to.is_empty() {
        match stream.read(to) {
            Ok(0) => return Err("the other end of the bare connection is gone".into()),
            Ok(bytes) => to = &mut to[bytes..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn write_spinning(stream: &mut TcpStream, mut from: &[u8]) -> Result<()> {
    while !from.is_empty() {
        match stream.write(from) {
            Ok(bytes) => from = &from[bytes..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
