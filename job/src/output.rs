//! The ranks' output, on its way to the launcher's standard output and error: whole lines, with or without a
//! label, so that ranks that fail together do not write into each other's. Standard output without labels is
//! passed on as it is, since it may be no text.

#![forbid(unsafe_code)]

use super::message::Stream;
use rustix::io::Errno;
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::BorrowedFd;
use vgas_rma::address::Rank;

/// Written at once. A pipe that is writable takes this much (PIPE_BUF) without blocking.
const WRITE_BYTES: usize = 4096;

/// A longer line is cut into several labelled ones: bounds the memory of a line.
const LINE_BYTES_MAX: usize = 64 << 10;

/// Output that has been received and not yet written.
#[derive(Debug)]
pub(crate) struct Outputs {
    label: bool,
    /// The beginnings of lines.
    partial: BTreeMap<(Rank, Stream), Vec<u8>>,
    /// By stream.
    waiting: [VecDeque<u8>; 2],
    /// By stream: its reader is gone.
    closed: [bool; 2],
    /// By stream: the last byte was no newline.
    mid_line: [bool; 2],
}

impl Outputs {
    pub(crate) fn new(label: bool) -> Self {
        Self {
            label,
            partial: BTreeMap::new(),
            waiting: [VecDeque::new(), VecDeque::new()],
            closed: [false; 2],
            mid_line: [false; 2],
        }
    }

    /// Takes a rank's output; an empty one is its end.
    pub(crate) fn push(&mut self, rank: Rank, stream: Stream, bytes: &[u8]) {
        let waiting = &mut self.waiting[stream as usize];
        if self.closed[stream as usize] {
            return;
        }
        if !self.label && stream == Stream::Output {
            waiting.extend(bytes);
            self.note_end(stream, bytes);
            return;
        }
        let (label, mid_line) = (self.label, &mut self.mid_line[stream as usize]);
        let partial = self.partial.entry((rank, stream)).or_default();
        let mut line = |text: &[u8]| {
            if label {
                waiting.extend(format!("[{rank}] ").as_bytes());
            }
            waiting.extend(text);
            *mid_line = text.last() != Some(&b'\n');
            if label && *mid_line {
                waiting.push_back(b'\n');
                *mid_line = false;
            }
        };
        for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
            for piece in piece.chunks(LINE_BYTES_MAX) {
                partial.extend(piece);
                if piece.ends_with(b"\n") || partial.len() >= LINE_BYTES_MAX {
                    line(partial);
                    partial.clear();
                }
            }
        }
        if bytes.is_empty() && !partial.is_empty() {
            line(partial);
            partial.clear();
        }
    }

    /// Takes output of a daemon or of ssh itself.
    pub(crate) fn push_plain(&mut self, bytes: &[u8]) {
        if !self.closed[Stream::Error as usize] {
            self.waiting[Stream::Error as usize].extend(bytes);
            self.note_end(Stream::Error, bytes);
        }
    }

    fn note_end(&mut self, stream: Stream, bytes: &[u8]) {
        if let Some(last) = bytes.last() {
            self.mid_line[stream as usize] = *last != b'\n';
        }
    }

    /// Ends the line that standard error is in, if it is: the launcher's own words follow.
    pub(crate) fn end_line(&mut self) {
        if self.mid_line[Stream::Error as usize] {
            self.push_plain(b"\n");
        }
    }

    /// The last lines of ranks that ended without saying so (their node is lost).
    pub(crate) fn finish(&mut self) {
        for (rank, stream) in self.partial.keys().copied().collect::<Vec<_>>() {
            self.push(rank, stream, &[]);
        }
    }

    /// Bytes that wait to be written.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.waiting.iter().map(VecDeque::len).sum()
    }

    /// Returns true if output waits for this stream.
    pub(crate) fn waits(&self, stream: Stream) -> bool {
        !self.waiting[stream as usize].is_empty()
    }

    /// Writes once to `to`, which a poll has found writable. A reader that has gone away takes nothing more.
    pub(crate) fn write(&mut self, stream: Stream, to: BorrowedFd<'_>) {
        let waiting = &mut self.waiting[stream as usize];
        let piece = waiting.as_slices().0;
        let piece = &piece[..piece.len().min(WRITE_BYTES)];
        match rustix::io::write(to, piece) {
            Ok(count) => drop(waiting.drain(..count)),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => {
                waiting.clear();
                self.closed[stream as usize] = true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(outputs: &Outputs) -> String {
        String::from_utf8(outputs.waiting[0].iter().copied().collect()).unwrap()
    }

    #[test]
    fn labelled_lines_stay_whole_however_they_arrive() {
        let mut outputs = Outputs::new(true);
        outputs.push(Rank(0), Stream::Output, b"hel");
        outputs.push(Rank(1), Stream::Output, b"one\ntwo\nthr");
        outputs.push(Rank(0), Stream::Output, b"lo\n");
        outputs.push(Rank(1), Stream::Output, b"");
        outputs.push(Rank(2), Stream::Output, b"lost");
        outputs.finish();
        assert_eq!(
            written(&outputs),
            "[rank 1] one\n[rank 1] two\n[rank 0] hello\n[rank 1] thr\n[rank 2] lost\n"
        );
    }

    #[test]
    fn without_labels_bytes_pass_unchanged() {
        let mut outputs = Outputs::new(false);
        outputs.push(Rank(0), Stream::Output, b"a\0b");
        outputs.push(Rank(1), Stream::Output, b"c");
        assert_eq!(written(&outputs), "a\0bc");
    }

    #[test]
    fn ranks_do_not_write_into_the_lines_of_others() {
        let mut outputs = Outputs::new(false);
        outputs.push(Rank(0), Stream::Error, b"Error: ");
        outputs.push(Rank(1), Stream::Error, b"Error: full\nhint");
        outputs.push(Rank(0), Stream::Error, b"lost\n");
        outputs.finish();
        let written: Vec<u8> = outputs.waiting[Stream::Error as usize].iter().copied().collect();
        assert_eq!(String::from_utf8(written).unwrap(), "Error: full\nError: lost\nhint");
    }

    #[test]
    fn a_line_is_ended_once_and_only_where_there_is_one() {
        let mut outputs = Outputs::new(false);
        outputs.push(Rank(0), Stream::Output, b"of no account");
        outputs.end_line();
        assert!(!outputs.waits(Stream::Error));
        outputs.push(Rank(0), Stream::Error, b"one\nCache");
        outputs.push(Rank(0), Stream::Error, b"");
        outputs.end_line();
        outputs.end_line();
        let written: Vec<u8> = outputs.waiting[Stream::Error as usize].iter().copied().collect();
        assert_eq!(written, b"one\nCache\n");
    }

    #[test]
    fn an_endless_line_is_cut() {
        let mut outputs = Outputs::new(true);
        outputs.push(Rank(0), Stream::Output, &vec![b'x'; LINE_BYTES_MAX + 1]);
        assert_eq!(written(&outputs).matches("[rank 0]").count(), 1);
        outputs.push(Rank(0), Stream::Output, b"");
        assert_eq!(written(&outputs).matches("[rank 0]").count(), 2);
    }
}
