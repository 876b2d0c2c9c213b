//! PMIx with a bound: its calls have none, so that a thread of its own makes them, and is left behind when it does not return.

#![forbid(unsafe_code)]

use super::KEY;
use crate::membership::lock;
use crate::pmix::Session;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// A session of the thread.
pub(super) struct Bounded {
    to: Mutex<Sender<Ask>>,
    from: Mutex<Receiver<Result<String, String>>>,
    patience: Duration,
}

/// Who this is.
pub(super) struct Found {
    pub(super) rank: u32,
    pub(super) ranks: u32,
    pub(super) space: String,
}

enum Ask {
    Agree(Option<String>),
    Leave,
}

impl Bounded {
    pub(super) fn open(patience: Duration) -> Result<(Self, Found), String> {
        let (to, asks) = channel();
        let (answers, from) = channel();
        let (first, found) = channel();
        std::thread::Builder::new()
            .name("vgas-pmix".into())
            .spawn(move || {
                let opened = Session::open().and_then(|session| {
                    let found =
                        Found { rank: session.rank(), ranks: session.ranks()?, space: session.space() };
                    Ok((session, found))
                });
                match opened {
                    Err(what) => drop(first.send(Err(what))),
                    Ok((session, found)) => {
                        let _ = first.send(Ok(found));
                        serve(&session, &asks, &answers);
                    }
                }
            })
            .map_err(|error| format!("cannot start a thread: {error}"))?;
        let found = found.recv_timeout(patience).map_err(|_| late("PMIx_Init", patience))??;
        Ok((Self { to: Mutex::new(to), from: Mutex::new(from), patience }, found))
    }

    pub(super) fn agree(&self, text: Option<String>) -> Result<String, String> {
        self.ask(Ask::Agree(text), "the other ranks")
    }

    pub(super) fn leave(&self) {
        let _ = self.ask(Ask::Leave, "PMIx_Finalize");
    }

    fn ask(&self, ask: Ask, what: &str) -> Result<String, String> {
        let from = lock(&self.from);
        lock(&self.to).send(ask).map_err(|_| "its thread has ended".to_owned())?;
        from.recv_timeout(self.patience).map_err(|_| late(what, self.patience))?
    }
}

fn serve(session: &Session, asks: &Receiver<Ask>, answers: &Sender<Result<String, String>>) {
    while let Ok(ask) = asks.recv() {
        let answer = match ask {
            Ask::Agree(text) => agree(session, text),
            Ask::Leave => {
                session.leave();
                Ok(String::new())
            }
        };
        if answers.send(answer).is_err() {
            return;
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

fn late(what: &str, patience: Duration) -> String {
    format!(
        "no answer from {what} within {} s: a rank has not come, or the starter hangs (run.start_timeout_ms says how long to \
         wait)",
        patience.as_secs_f32()
    )
}
