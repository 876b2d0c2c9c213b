//! The framed protocol between launcher, node daemons and ranks: frames, files that travel with them, bounds.
//! Their content is in [`super::message`]; the order of messages in [`super`].
//!
//! A stream begins, in each direction, with eight bytes: `vgas` and the version of the protocol (little-endian). Then
//! come frames:
//!
//! | bytes | meaning |
//! |---|---|
//! | 4 | length of the body, at most [`FRAME_BYTES_MAX`] |
//! | 2 | open files that travel with the frame's first byte (`SCM_RIGHTS`), at most [`FILES_PER_FRAME`] |
//! | 2 | zero |
//! | length | the message in postcard's encoding; no body: the files belong to the next frame with a body |
//!
//! The other side is another process of the same user, or an ssh channel to one, so what comes is trusted to be meant
//! well, but not to be right: a login script that prints, an older `vgas` on the other host.

#![forbid(unsafe_code)]

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recv, recvmsg, sendmsg, socketpair,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;
use vgas_rma::error::{Result, RmaError};

/// A timeout for `poll`.
pub(crate) fn timespec(time: Duration) -> Timespec {
    // Rounded up: waking before the time would spin until it.
    let time = time + Duration::from_micros(100);
    Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) }
}

/// The protocol's version. 1: the first. 2: announced exits. 3: ranks that are stopped, or cannot be ended.
/// 4: memory that nodes have in common, and jobs that outlive a node. 5: externally started ranks. 6: PMI-1
/// for ranks, and nodes that srun starts. 7: builds are told.
pub(crate) const VERSION: u32 = 8;

/// The build of this vgas: the meaning of messages and shared memory may change without a new version. Tests
/// keep streams in files.
#[cfg(not(any(test, fuzzing)))]
pub(crate) const BUILD: u64 = number(env!("VGAS_SOURCES"));
#[cfg(any(test, fuzzing))]
pub(crate) const BUILD: u64 = 0x1234_5678_9abc_def0;

/// The number that the build script has found.
#[cfg_attr(any(test, fuzzing), expect(dead_code, reason = "tests have a build of their own"))]
const fn number(text: &str) -> u64 {
    match u64::from_str_radix(text, 10) {
        Ok(number) => number,
        Err(_) => panic!("the build script writes numbers"),
    }
}

/// Prefix of a stream: our name, the version and the build.
const PREAMBLE: [u8; 16] = {
    let ([v0, v1, v2, v3], [b0, b1, b2, b3, b4, b5, b6, b7]) = (VERSION.to_le_bytes(), BUILD.to_le_bytes());
    [b'v', b'g', b'a', b's', v0, v1, v2, v3, b0, b1, b2, b3, b4, b5, b6, b7]
};

/// Bytes of the preamble that all versions have.
const VERSIONED_BYTES: usize = 8;

const HEADER_BYTES: usize = 8;

/// Longest body. The largest are the results of an allgather, which [`super::Bootstrap::all_gather`] keeps below it.
pub(crate) const FRAME_BYTES_MAX: usize = 32 << 20;

/// Files of one `sendmsg`: the kernel's limit is 253 (SCM_MAX_FD).
const FILES_PER_FRAME: usize = 250;

/// Read at once. Output of ranks comes in pieces of at most this size.
const READ_BYTES: usize = 64 << 10;

/// Both directions of a channel.
pub(crate) struct Channel {
    pub(crate) sender: Sender,
    pub(crate) receiver: Receiver,
}

/// The outgoing direction: never blocks, keeps what the other side has no room for.
pub(crate) struct Sender {
    file: Arc<OwnedFd>,
    is_socket: bool,
    carries_files: bool,
    queue: VecDeque<Chunk>,
    queued_bytes: usize,
}

/// Bytes to send, with the files that go with the first of them.
struct Chunk {
    bytes: Vec<u8>,
    sent: usize,
    files: Vec<OwnedFd>,
}

/// The incoming direction.
pub(crate) struct Receiver {
    file: Arc<OwnedFd>,
    is_socket: bool,
    buffer: Vec<u8>,
    consumed: usize,
    greeted: bool,
    arrived_files: VecDeque<OwnedFd>,
    /// Files of the frame whose body has not come yet.
    frame_files: Vec<OwnedFd>,
}

/// Result of an attempt to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// Some bytes.
    Bytes,
    /// None now.
    Nothing,
    /// The other side has closed, or died.
    End,
}

impl Channel {
    /// A channel over one connected stream socket. `carries_files`: the other end is in a process of this machine.
    pub(crate) fn over_socket(socket: OwnedFd, carries_files: bool) -> Result<Self> {
        let file = Arc::new(socket);
        Ok(Self { sender: Sender::new(file.clone(), carries_files)?, receiver: Receiver::new(file)? })
    }
}

impl Sender {
    /// Sends into `file`, which becomes non-blocking.
    pub(crate) fn new(file: Arc<OwnedFd>, carries_files: bool) -> Result<Self> {
        let is_socket = prepare(&file)?;
        let greeting = Chunk { bytes: PREAMBLE.to_vec(), sent: 0, files: Vec::new() };
        let queue = VecDeque::from([greeting]);
        Ok(Self { file, is_socket, carries_files, queue, queued_bytes: PREAMBLE.len() })
    }

    /// Returns true if files can travel over it: the other side is a process of this machine.
    pub(crate) fn carries_files(&self) -> bool {
        self.carries_files
    }

    /// Queues a message and sends what there is room for.
    pub(crate) fn send<T: Serialize>(&mut self, message: &T) -> Result<()> {
        self.send_with_files(message, Vec::new())
    }

    /// As [`Sender::send`], with open files; the receiver gets duplicates.
    pub(crate) fn send_with_files<T: Serialize>(
        &mut self,
        message: &T,
        mut files: Vec<OwnedFd>,
    ) -> Result<()> {
        if !files.is_empty() && !self.carries_files {
            return Err(RmaError::Usage("open files do not travel to another machine".into()));
        }
        while files.len() > FILES_PER_FRAME {
            let rest = files.split_off(FILES_PER_FRAME);
            self.queue_frame(vec![0; HEADER_BYTES], std::mem::replace(&mut files, rest));
        }
        let frame = postcard::to_extend(message, vec![0; HEADER_BYTES]).map_err(|e| RmaError::Protocol {
            peer: None,
            what: format!("a control message cannot be encoded: {e}"),
        })?;
        if frame.len() - HEADER_BYTES > FRAME_BYTES_MAX {
            let what = format!("a control message of {} bytes; {FRAME_BYTES_MAX} are allowed", frame.len());
            return Err(RmaError::Usage(what));
        }
        self.queue_frame(frame, files);
        self.flush()
    }

    /// Writes the header into the frame's first bytes and queues it.
    fn queue_frame(&mut self, mut frame: Vec<u8>, files: Vec<OwnedFd>) {
        let body_bytes = (frame.len() - HEADER_BYTES) as u32;
        frame[0..4].copy_from_slice(&body_bytes.to_le_bytes());
        frame[4..6].copy_from_slice(&(files.len() as u16).to_le_bytes());
        self.queued_bytes += frame.len();
        self.queue.push_back(Chunk { bytes: frame, sent: 0, files });
    }

    /// Sends what there is room for.
    pub(crate) fn flush(&mut self) -> Result<()> {
        while let Some(chunk) = self.queue.front_mut() {
            match chunk.send_some(&self.file, self.is_socket) {
                Ok(bytes) => {
                    chunk.sent += bytes;
                    self.queued_bytes -= bytes;
                    if chunk.sent == chunk.bytes.len() {
                        self.queue.pop_front();
                    }
                }
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(e) => return Err(RmaError::system("write to the control channel", e)),
            }
        }
        Ok(())
    }

    /// Sends everything, waiting for room. For processes that have nothing else to do.
    pub(crate) fn flush_blocking(&mut self) -> Result<()> {
        loop {
            self.flush()?;
            if self.queue.is_empty() {
                return Ok(());
            }
            wait_for(self.file.as_fd(), PollFlags::OUT, None)?;
        }
    }

    /// Bytes that wait for room.
    pub(crate) fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    /// The file to wait for (writable), when there is something queued.
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Chunk {
    fn send_some(&mut self, to: &OwnedFd, is_socket: bool) -> rustix::io::Result<usize> {
        let rest = &self.bytes[self.sent..];
        if !is_socket {
            return rustix::io::write(to, rest);
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_PER_FRAME))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let files: Vec<BorrowedFd<'_>> = self.files.iter().map(AsFd::as_fd).collect();
        if !files.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(&files));
        }
        let sent = sendmsg(to, &[IoSlice::new(rest)], &mut ancillary, SendFlags::NOSIGNAL)?;
        // They travelled with the first byte.
        self.files.clear();
        Ok(sent)
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        wipe(&mut self.bytes);
    }
}

/// Messages carry the job's key; it does not stay behind in freed memory.
fn wipe(bytes: &mut [u8]) {
    bytes.fill(0);
    // The compiler must assume that the zeros are looked at.
    std::hint::black_box(bytes);
}

/// Makes the file non-blocking; tells whether it is a socket.
fn prepare(file: &OwnedFd) -> Result<bool> {
    rustix::io::ioctl_fionbio(file, true).map_err(|e| RmaError::system("use the control channel", e))?;
    Ok(rustix::net::sockopt::socket_type(file).is_ok())
}

impl Receiver {
    /// Receives from `file`, which becomes non-blocking.
    pub(crate) fn new(file: Arc<OwnedFd>) -> Result<Self> {
        let is_socket = prepare(&file)?;
        Ok(Self {
            file,
            is_socket,
            buffer: Vec::new(),
            consumed: 0,
            greeted: false,
            arrived_files: VecDeque::new(),
            frame_files: Vec::new(),
        })
    }

    /// Reads once, without waiting.
    pub(crate) fn read(&mut self) -> Result<Arrival> {
        if self.consumed > 0 {
            wipe(&mut self.buffer[..self.consumed]);
            self.buffer.drain(..self.consumed);
            self.consumed = 0;
        }
        let before = self.buffer.len();
        self.buffer.resize(before + READ_BYTES, 0);
        let result = self.read_into(before);
        self.buffer.truncate(before + *result.as_ref().unwrap_or(&0));
        match result {
            Ok(0) => Ok(Arrival::End),
            Ok(_) => Ok(Arrival::Bytes),
            Err(Errno::AGAIN | Errno::INTR) => Ok(Arrival::Nothing),
            Err(Errno::CONNRESET | Errno::PIPE) => Ok(Arrival::End),
            Err(Errno::MFILE) => Err(RmaError::system("receive open files", Errno::MFILE)),
            Err(e) => Err(RmaError::system("read from the control channel", e)),
        }
    }

    fn read_into(&mut self, start: usize) -> rustix::io::Result<usize> {
        let room = &mut self.buffer[start..];
        if !self.is_socket {
            return rustix::io::read(&self.file, room);
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_PER_FRAME))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let received =
            recvmsg(&self.file, &mut [IoSliceMut::new(room)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(files) = message {
                self.arrived_files.extend(files);
            }
        }
        if received.flags.contains(ReturnFlags::CTRUNC) {
            return Err(Errno::MFILE);
        }
        Ok(received.bytes)
    }

    /// The next whole message among what was read, with its files.
    pub(crate) fn next<T: DeserializeOwned>(&mut self) -> Result<Option<(T, Vec<OwnedFd>)>> {
        if !self.greeted {
            let start = self.buffer.len().min(PREAMBLE.len());
            let is_whole = start == PREAMBLE.len();
            // The build is compared when all of it has come.
            let checked = if is_whole { start } else { start.min(VERSIONED_BYTES) };
            if self.buffer[..checked] != PREAMBLE[..checked] {
                return Err(greeting_error(&self.buffer));
            }
            if !is_whole {
                return Ok(None);
            }
            self.consumed = PREAMBLE.len();
            self.greeted = true;
        }
        loop {
            let rest = &self.buffer[self.consumed..];
            let Some((header, rest)) = rest.split_first_chunk::<HEADER_BYTES>() else { return Ok(None) };
            if PREAMBLE.starts_with(header) {
                return Err(protocol(
                    "two programs use the same line: only one program of a rank may join".into(),
                ));
            }
            let [l0, l1, l2, l3, f0, f1, z0, z1] = *header;
            let body_bytes = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
            let files = usize::from(u16::from_le_bytes([f0, f1]));
            if body_bytes > FRAME_BYTES_MAX || files > FILES_PER_FRAME || (z0, z1) != (0, 0) {
                return Err(protocol(format!("a frame header {header:?} came over the control channel")));
            }
            if rest.len() < body_bytes {
                return Ok(None);
            }
            if files > self.arrived_files.len() {
                return Err(protocol(format!("a frame announced {files} files, fewer came")));
            }
            self.frame_files.extend(self.arrived_files.drain(..files));
            self.consumed += HEADER_BYTES + body_bytes;
            if body_bytes > 0 {
                let message = postcard::from_bytes(&rest[..body_bytes])
                    .map_err(|e| protocol(format!("a control message cannot be decoded: {e}")))?;
                return Ok(Some((message, std::mem::take(&mut self.frame_files))));
            }
        }
    }

    /// Waits for the next message; `None` when the other side has closed.
    pub(crate) fn next_blocking<T: DeserializeOwned>(&mut self) -> Result<Option<(T, Vec<OwnedFd>)>> {
        loop {
            if let Some(message) = self.next()? {
                return Ok(Some(message));
            }
            match self.read()? {
                Arrival::Bytes => {}
                Arrival::Nothing => wait_for(self.file.as_fd(), PollFlags::IN, None)?,
                Arrival::End => return Ok(None),
            }
        }
    }

    /// The file to wait for (readable).
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        wipe(&mut self.buffer);
    }
}

fn protocol(what: String) -> RmaError {
    RmaError::Protocol { peer: None, what }
}

/// Returns the remedy for different builds in a job.
pub(crate) fn other_build(theirs: u64) -> String {
    format!(
        "vgas of other sources ({theirs:016x} instead of {BUILD:016x}): build vgas and all programs of the job from the same"
    )
}

/// Returns the error of a stream with a wrong preamble.
fn greeting_error(begin: &[u8]) -> RmaError {
    if let Some(([b'v', b'g', b'a', b's', version @ ..], rest)) = begin.split_first_chunk::<VERSIONED_BYTES>()
    {
        let version = u32::from_le_bytes(*version);
        if version != VERSION {
            return RmaError::Refused(format!(
                "start-up protocol {version} instead of {VERSION}: install the same vgas everywhere"
            ));
        }
        if let Some((build, _)) = rest.split_first_chunk() {
            return RmaError::Refused(other_build(u64::from_le_bytes(*build)));
        }
    }
    let shown = String::from_utf8_lossy(&begin[..begin.len().min(60)]).into_owned();
    protocol(format!("{shown:?} came where the start-up protocol should begin (does a login script print?)"))
}

/// Checks that sockets can be read. If a filter of system calls refuses recvfrom, the standard library, which
/// uses it when it starts a program with a hook, would wait for the end of that program, and signals would
/// never be taken.
pub(crate) fn check_sockets() -> Result<()> {
    let refused = |errno| {
        RmaError::system("receive from a socket: a filter of system calls must allow recvfrom", errno)
    };
    let (socket, _other) =
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).map_err(refused)?;
    match recv(&socket, &mut [0u8; 1], RecvFlags::DONTWAIT) {
        Ok(_) | Err(Errno::AGAIN | Errno::INTR) => Ok(()),
        Err(errno) => Err(refused(errno)),
    }
}

/// Waits until `file` is ready or the time is over.
pub(crate) fn wait_for(file: BorrowedFd<'_>, flags: PollFlags, timeout: Option<&Timespec>) -> Result<()> {
    match poll(&mut [PollFd::new(&file, flags)], timeout) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(e) => Err(RmaError::io("wait for the control channel", io::Error::from(e))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Seek as _, Write as _};

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap()
    }

    #[test]
    fn messages_and_files_arrive_together_and_in_order() {
        let (a, b) = pair();
        let (mut a, mut b) = (Channel::over_socket(a, true).unwrap(), Channel::over_socket(b, true).unwrap());
        // More files than fit in one frame, each with its own number in it.
        let count = 2 * FILES_PER_FRAME as u32 + 7;
        let numbered = |number: u32| {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&number.to_le_bytes()).unwrap();
            file.into()
        };
        a.sender.send(&1u32).unwrap();
        a.sender.send_with_files(&2u32, (0..count).map(numbered).collect()).unwrap();
        a.sender.send(&3u32).unwrap();
        let (one, files) = b.receiver.next_blocking::<u32>().unwrap().unwrap();
        assert_eq!((one, files.len()), (1, 0));
        let (two, files) = b.receiver.next_blocking::<u32>().unwrap().unwrap();
        assert_eq!((two, files.len()), (2, count as usize));
        for (number, file) in files.into_iter().enumerate() {
            let mut file = std::fs::File::from(file);
            let mut bytes = [0; 4];
            file.rewind().unwrap();
            file.read_exact(&mut bytes).unwrap();
            assert_eq!(u32::from_le_bytes(bytes) as usize, number);
        }
        let (three, files) = b.receiver.next_blocking::<u32>().unwrap().unwrap();
        assert_eq!((three, files.len()), (3, 0));
        drop(a);
        assert!(b.receiver.next_blocking::<u32>().unwrap().is_none());
    }

    #[test]
    fn what_the_other_side_has_no_room_for_is_kept() {
        let (a, b) = pair();
        let (mut a, mut b) = (Channel::over_socket(a, true).unwrap(), Channel::over_socket(b, true).unwrap());
        let big: Vec<u8> = (0..4 << 20).map(|i| (i % 251) as u8).collect();
        a.sender.send(&big).unwrap();
        assert!(a.sender.queued_bytes() > 0, "4 MiB should not fit into a socket buffer");
        let reader = std::thread::spawn(move || b.receiver.next_blocking::<Vec<u8>>().unwrap().unwrap().0);
        a.sender.flush_blocking().unwrap();
        assert_eq!(a.sender.queued_bytes(), 0);
        assert_eq!(reader.join().unwrap(), big);
    }

    #[test]
    fn a_stream_that_is_not_ours_is_refused_with_its_text() {
        let (a, b) = pair();
        rustix::io::write(&a, b"Welcome to host7!\n").unwrap();
        let mut b = Channel::over_socket(b, true).unwrap();
        let error = b.receiver.next_blocking::<u32>().unwrap_err().to_string();
        assert!(error.contains("Welcome to host7!"), "{error}");

        let (a, b) = pair();
        rustix::io::write(&a, b"vgas\x09\0\0\0").unwrap();
        let mut b = Channel::over_socket(b, true).unwrap();
        let error = b.receiver.next_blocking::<u32>().unwrap_err().to_string();
        assert!(error.contains("protocol 9 instead of 8"), "{error}");

        let (a, b) = pair();
        rustix::io::write(&a, b"vgas\x08\0\0\0\x01\0\0\0\0\0\0\0").unwrap();
        let mut b = Channel::over_socket(b, true).unwrap();
        let error = b.receiver.next_blocking::<u32>().unwrap_err().to_string();
        assert!(error.contains("other sources (0000000000000001 instead of 1234"), "{error}");
    }

    #[test]
    fn a_length_beyond_the_bound_is_refused_before_anything_is_stored() {
        for (length, refused) in [(FRAME_BYTES_MAX, false), (FRAME_BYTES_MAX + 1, true)] {
            let (a, b) = pair();
            let mut bytes = PREAMBLE.to_vec();
            bytes.extend((length as u32).to_le_bytes());
            bytes.extend([0; 4]);
            rustix::io::write(&a, &bytes).unwrap();
            drop(a);
            let mut b = Channel::over_socket(b, true).unwrap();
            assert_eq!(b.receiver.next_blocking::<u32>().is_err(), refused);
        }
    }
}
