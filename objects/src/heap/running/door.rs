//! A rank's socket for observers, and the thread that sleeps on it.

use super::super::Heap;
use super::super::report::node_report_awaited;
use super::{CopiesRunning, PROTOCOL, PartitionRunning, ROWS, RankAnswer, SizeRunning, name_of};
use crate::slab::SLAB_BYTES;
use rustc_hash::FxHashMap;
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{SendFlags, Shutdown, send, shutdown};
use rustix::process::geteuid;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};
use vgas::Rank;

/// Enough for the answer: handlers of programs do not run here.
const STACK_BYTES: usize = 256 << 10;

/// Longest time that an observer which does not read delays others, and the end of the heap.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Delay before a retry if the process has no file descriptor left for a connection.
const RETRY: Duration = Duration::from_millis(100);

/// Closed until it is opened.
#[derive(Debug, Default)]
pub(in crate::heap) struct Door(Mutex<Option<Open>>);

#[derive(Debug)]
struct Open {
    socket: Arc<UnixListener>,
    is_closed: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Door {
    /// Admits observers of this rank of the job with this number. A system that lacks the means does not
    /// prevent the heap: it then has no observers.
    pub fn open(&self, heap: &'static Heap, job: u64) {
        let name = name_of(job, heap.runtime.rank().0);
        let bound = SocketAddr::from_abstract_name(name).and_then(|name| UnixListener::bind_addr(&name));
        let Ok(socket) = bound.map(Arc::new) else { return };
        let is_closed = Arc::new(AtomicBool::new(false));
        let serve = {
            let (socket, is_closed) = (socket.clone(), is_closed.clone());
            move || serve(heap, &socket, &is_closed)
        };
        let thread = std::thread::Builder::new().name("objects-door".into()).stack_size(STACK_BYTES);
        if let Ok(thread) = thread.spawn(serve) {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Open { socket, is_closed, thread });
        }
    }

    /// Admits no more observers, and disconnects those that are connected.
    pub fn close(&self) {
        let open = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(Open { socket, is_closed, thread }) = open else { return };
        is_closed.store(true, Ordering::SeqCst);
        // Wakes the thread, also one that has not begun to wait.
        let _ = shutdown(&socket, Shutdown::Both);
        thread.thread().unpark();
        // A panic there was reported, and is no error of this thread.
        let _ = thread.join();
    }
}

fn serve(heap: &'static Heap, socket: &UnixListener, is_closed: &AtomicBool) {
    while !is_closed.load(Ordering::SeqCst) {
        match socket.accept() {
            // An observer that disconnects in the middle has seen enough.
            Ok((visitor, _)) => drop(answer(heap, &visitor)),
            Err(why) if why.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) if is_closed.load(Ordering::SeqCst) => {}
            Err(_) => std::thread::park_timeout(RETRY),
        }
    }
}

fn answer(heap: &'static Heap, visitor: &UnixStream) -> std::io::Result<()> {
    let who = socket_peercred(visitor)?.uid;
    if who != geteuid() && !who.is_root() {
        return Ok(());
    }
    visitor.set_write_timeout(Some(TIMEOUT))?;
    let Ok(words) = postcard::to_extend(&said(heap), PROTOCOL.to_vec()) else { return Ok(()) };
    let mut rest = &words[..];
    while !rest.is_empty() {
        // A closed connection must not end a process that keeps the default action of SIGPIPE.
        match send(visitor, rest, SendFlags::NOSIGNAL) {
            Ok(sent) => rest = &rest[sent..],
            Err(Errno::INTR) => {}
            Err(why) => return Err(why.into()),
        }
    }
    Ok(())
}

/// Returns the future's result if it arrives within [`TIMEOUT`].
fn awaited<T>(coming: impl Future<Output = T>) -> Option<T> {
    let (mut coming, until) = (pin!(coming), Instant::now() + TIMEOUT);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    loop {
        if let Poll::Ready(come) = coming.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Some(come);
        }
        std::thread::park_timeout(until.checked_duration_since(Instant::now())?);
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn said(heap: &'static Heap) -> RankAnswer {
    let runtime = &heap.runtime;
    let (me, node) = (runtime.rank(), runtime.node());
    let program = std::env::args_os().next().unwrap_or_default();
    let program = Path::new(&program).file_name().map(|name| name.to_string_lossy().into_owned());
    let is_first = runtime.layout().ranks_of(node).start == me.0;
    let home = is_first.then(|| awaited(node_report_awaited(runtime, node)));
    let home = home.flatten().and_then(Result::ok);
    let (sizes, free, live) = {
        let slabs = heap.slabs();
        (slabs.sizes(), slabs.free_slabs(), slabs.live())
    };
    let report = heap.report();
    let seen = sizes.iter().map(|size| size.objects).sum::<u64>() + report.copies;
    let mut sizes: Vec<SizeRunning> = sizes
        .into_iter()
        .map(|size| SizeRunning { bytes: size.bytes, objects: size.objects, is_large: size.is_large })
        .collect();
    sizes.sort_by_key(|size| std::cmp::Reverse(size.bytes.saturating_mul(size.objects)));
    sizes.truncate(ROWS);
    sizes.sort_by_key(|size| (size.is_large, size.bytes));
    let partition = PartitionRunning {
        rank: me.0,
        node: node.0,
        process: std::process::id(),
        room_bytes: u64::from(free) * SLAB_BYTES,
        report,
        sizes,
        // Both are of moments that follow each other.
        unseen: if heap.jobs == 0 { 0 } else { live.saturating_sub(seen) },
        copies_of: copies_of(heap),
    };
    RankAnswer {
        program: program.unwrap_or_default(),
        ranks: runtime.ranks(),
        nodes: runtime.nodes(),
        partition,
        home,
    }
}

fn copies_of(heap: &Heap) -> Vec<CopiesRunning> {
    let mut of: FxHashMap<Rank, CopiesRunning> = FxHashMap::default();
    heap.copies.each(|word, copy, uses| {
        let rank = heap.locate(word.address()).rank;
        let row = of.entry(rank).or_insert(CopiesRunning { of: rank.0, copies: 0, bytes: 0, uses: 0 });
        row.uses = row.uses.saturating_add(uses);
        if copy.entry.is_none() {
            row.copies += 1;
            row.bytes += copy.class.bytes();
        }
    });
    let mut rows: Vec<CopiesRunning> = of.into_values().collect();
    rows.sort_by_key(|row| (std::cmp::Reverse(row.bytes), row.of));
    rows.truncate(ROWS);
    rows.sort_by_key(|row| row.of);
    rows
}
