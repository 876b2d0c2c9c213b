//! PMIx with a bound: its calls have none, so that a thread of its own makes them, and is left behind when it does not return.

#![forbid(unsafe_code)]

use super::KEY;
use crate::lock::lock;
use crate::pmix::Session;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// A session of the thread.
pub(super) struct Bounded {
    line: Arc<Line>,
    timeout: Duration,
}

/// Identity of this process.
pub(super) struct RankIdentity {
    pub(super) rank: u32,
    pub(super) ranks: u32,
    pub(super) space: String,
}

enum Ask {
    Agree(Option<String>),
    Leave,
}

enum Answer {
    Found(RankIdentity),
    Agreed(String),
    Left,
}

/// Hand-off between the thread and its callers: one question at a time.
#[derive(Default)]
struct Line {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    ask: Option<Ask>,
    answer: Option<Result<Answer, String>>,
}

impl Line {
    fn answer(&self, answer: Result<Answer, String>) {
        lock(&self.state).answer = Some(answer);
        self.changed.notify_all();
    }

    fn next(&self) -> Option<Ask> {
        let waits = |state: &mut State| state.ask.is_none();
        self.changed.wait_while(lock(&self.state), waits).unwrap_or_else(PoisonError::into_inner).ask.take()
    }

    /// Waits for an answer, up to the timeout.
    fn take(&self, what: &str, timeout: Duration) -> Result<Answer, String> {
        let waits = |state: &mut State| state.answer.is_none();
        let state = self.changed.wait_timeout_while(lock(&self.state), timeout, waits);
        let mut state = state.unwrap_or_else(PoisonError::into_inner).0;
        state.answer.take().unwrap_or_else(|| {
            Err(format!(
                "no answer from {what} within {} s: a rank has not come, or the starter hangs (run.start_timeout_ms says how \
                 long to wait)",
                timeout.as_secs_f32()
            ))
        })
    }
}

impl Bounded {
    pub(super) fn open(timeout: Duration) -> Result<(Self, RankIdentity), String> {
        let line = Arc::new(Line::default());
        let served = line.clone();
        std::thread::Builder::new()
            .name("vgas-pmix".into())
            .spawn(move || serve(&served))
            .map_err(|error| format!("cannot start a thread: {error}"))?;
        match line.take("PMIx_Init", timeout)? {
            Answer::Found(found) => Ok((Self { line, timeout }, found)),
            _ => Err("PMIx_Init named no job".into()),
        }
    }

    pub(super) fn agree(&self, text: Option<String>) -> Result<String, String> {
        match self.ask(Ask::Agree(text), "the other ranks")? {
            Answer::Agreed(text) => Ok(text),
            _ => Err("an answer to another question".into()),
        }
    }

    pub(super) fn leave(&self) {
        let _ = self.ask(Ask::Leave, "PMIx_Finalize");
    }

    fn ask(&self, ask: Ask, what: &str) -> Result<Answer, String> {
        lock(&self.line.state).ask = Some(ask);
        self.line.changed.notify_all();
        self.line.take(what, self.timeout)
    }
}

fn serve(line: &Line) {
    let opened = Session::open().and_then(|session| {
        let found = RankIdentity { rank: session.rank(), ranks: session.ranks()?, space: session.space() };
        Ok((session, found))
    });
    let session = match opened {
        Err(what) => return line.answer(Err(what)),
        Ok((session, found)) => {
            line.answer(Ok(Answer::Found(found)));
            session
        }
    };
    while let Some(ask) = line.next() {
        match ask {
            Ask::Agree(text) => line.answer(agree(&session, text).map(Answer::Agreed)),
            Ask::Leave => {
                session.leave();
                return line.answer(Ok(Answer::Left));
            }
        }
    }
}

fn agree(session: &Session, text: Option<String>) -> Result<String, String> {
    if let Some(text) = &text {
        session.put(KEY, text)?;
    }
    session.meet()?;
    text.map_or_else(|| session.fetch(0, KEY), Ok)
}
