//! Small operations done where the page is: this node's at another home, and others' here.

use super::*;
use crate::agent::context::Outgoing;
use crate::agent::controller::CacheController;
use crate::agent::items::{InPlaceWork, PostedPut, Waiter};
use crate::error::CacheError;
use crate::page::PageIndex;
use crate::pool::{Counter, FrameId, PageState};
use crate::request::{InPlace, InPlaceAnswer, Pieces};

impl CacheController {
    /// The home serves the page in place: readers go there by themselves, posted puts are sent there.
    pub fn go_in_place(&mut self, page: PageIndex) -> Result<(), CacheError> {
        self.ctx.mark_in_place(page, true)?;
        let control = self.control(page)?;
        control.prefetch = false;
        let waiters: Vec<Waiter> = control.readers.drain(..).chain(control.writers.drain(..)).collect();
        let mut puts = std::mem::take(&mut control.puts);
        // The frame of a whole put may have become the page's own: it holds the put's data.
        if let Some(PostedPut::Whole { frame: frame @ None, .. }) = puts.front_mut() {
            *frame = control.frame.take();
        }
        for waiter in waiters {
            self.ctx.complete(waiter, Ok(()))?;
        }
        for put in puts {
            self.put_remotely(page, put)?;
        }
        Ok(())
    }

    fn put_remotely(&mut self, page: PageIndex, put: PostedPut) -> Result<(), CacheError> {
        let home = self
            .ctx
            .home_of(page)
            .ok_or_else(|| self.ctx.violation(self.ctx.node, "a page without a home"))?;
        // Whole pages travel in pieces that fit a message.
        const PIECE: usize = 8 << 10;
        let put = match put {
            PostedPut::Whole { frame: Some(frame), waiter } => {
                let span = self.ctx.frame_span(frame)?;
                let mut all = vec![0; span.bytes()];
                span.read(&mut all);
                self.ctx.release(frame)?;
                // The pieces may end in any order: the home may decline some of them, which then go the normal way.
                let pieces = all.len().div_ceil(PIECE) as u32;
                self.ctx.split(waiter, pieces)?;
                for (index, piece) in all.chunks(PIECE).enumerate() {
                    let waiter = Some(waiter);
                    let offset = (index * PIECE) as u32;
                    self.put_remotely(page, PostedPut::Part { offset, data: piece.into(), waiter })?;
                }
                return Ok(());
            }
            put => put,
        };
        let PostedPut::Part { offset, data, .. } = &put else {
            return Err(self.ctx.violation(self.ctx.node, "sent an update to its own home"));
        };
        // So that an answer's number names the shard.
        self.lines.next_remote =
            self.lines.next_remote.wrapping_add(1) % (u32::MAX / self.ctx.shards.count());
        let number = self.lines.next_remote * self.ctx.shards.count() + self.ctx.shard;
        let operation = InPlace::Put { page, offset: *offset, number };
        let data = data.clone();
        self.lines.remote_puts.insert(number, RemotePut { page, put });
        self.ctx
            .outbox
            .push(self.ctx.layout.agent_of(home), Outgoing::InPlace { words: operation.encode(), data });
        Ok(())
    }

    pub fn remote_put_ended(&mut self, number: u32, answer: InPlaceAnswer) -> Result<(), CacheError> {
        let Some(RemotePut { page, put }) = self.lines.remote_puts.remove(&number) else {
            return Err(self
                .ctx
                .violation(self.ctx.node, "was answered an in-place put that is not in flight"));
        };
        match answer {
            InPlaceAnswer::Done => match put {
                PostedPut::Part { waiter: Some(waiter), .. } => self.ctx.complete(waiter, Ok(())),
                _ => Ok(()),
            },
            InPlaceAnswer::Failed => {
                Err(self.ctx.violation(self.ctx.node, "was told of a put that it failed"))
            }
            InPlaceAnswer::NotInPlace => {
                if self.ctx.entry(page)?.state() == PageState::InPlace {
                    self.ctx.mark_in_place(page, false)?;
                }
                self.control(page)?.puts.push_back(put);
                self.pump(page)
            }
        }
    }

    /// Does a small operation on the home's copy, and answers.
    pub fn apply_in_place(
        &mut self,
        frame: FrameId,
        write: bool,
        work: &InPlaceWork,
    ) -> Result<(), CacheError> {
        let span = self.ctx.frame_span(frame)?;
        let answer = match work.operation {
            InPlace::Get { offset, bytes, number, .. } if !write => {
                let mut data = vec![0; bytes as usize];
                span.mapping().read(span.offset() + offset as usize, &mut data);
                Outgoing::Answer { words: InPlaceAnswer::Done.encode(number), bytes: data }
            }
            InPlace::Put { offset, number, .. } if write => {
                span.mapping().write(span.offset() + offset as usize, &work.data);
                Outgoing::Answer { words: InPlaceAnswer::Done.encode(number), bytes: Vec::new() }
            }
            InPlace::PutPieces { count, number, .. } if write => {
                let page_bytes = span.bytes() as u64;
                // It was found to be well-formed when it came.
                let pieces = Pieces::read(&work.data, count, page_bytes).into_iter().flat_map(Pieces::each);
                for (offset, bytes) in pieces {
                    span.mapping().write(span.offset() + offset as usize, bytes);
                }
                Outgoing::Answer { words: InPlaceAnswer::Done.encode(number), bytes: Vec::new() }
            }
            _ => return Err(self.ctx.violation(self.ctx.node, "mixed an in-place get with a put")),
        };
        self.ctx.count(Counter::InPlaceServed, 1);
        self.ctx.outbox.push(work.from, answer);
        Ok(())
    }
}
