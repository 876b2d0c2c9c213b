//! Hooks that people put around a job's conduit, as one line of text: `delay=50us,loss=0.1%,count`.

use super::unit::{RATES, TIMES, with_unit, write_with_unit};
use super::{Count, Delay, Hooked, Link, Loss, Trace};
use crate::address::{Layout, Peer};
use crate::conduit::Conduit;
use crate::error::Result;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

/// Most hooks around one conduit: each is a call for every message.
const HOOKS_MAX: usize = 8;

/// The longest delay: peers take longer ones for a loss.
const DELAY_MAX: Duration = Duration::from_secs(1);

/// The slowest link, in bytes a second.
const RATE_MIN: u64 = 64 << 10;

/// The largest part of attempts that is lost, in millionths.
const LOSS_MAX: u32 = 500_000;

/// One hook, and its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    /// [`Delay`] by this many microseconds.
    Delay(u64),
    /// [`Delay`] by the time of the bytes, at this rate a second.
    Rate(u64),
    /// [`Delay`] by up to this many microseconds, drawn from this seed.
    Jitter(u64, u64),
    /// [`Loss`] of this many attempts in a million.
    Loss(u32),
    Count,
    Trace,
}

/// Hooks in their order: the first is next to the endpoint, the last next to the conduit. The text `none` is no hook.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stack(Vec<Choice>);

/// A conduit with the hooks of a [`Stack`] around it.
pub struct Stacked {
    /// The outermost.
    pub conduit: Arc<dyn Conduit>,
    /// The hooks that count, in their order.
    pub counts: Vec<Arc<Count>>,
}

/// Why a text is no [`Stack`]. Each completes the sentence "it …".
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StackError {
    /// A word that is no hook.
    #[error("has the hook `{0}`; there are delay, rate, jitter, loss, count and trace")]
    Unknown(String),
    /// A hook without the value that it needs, or with one that it does not take.
    #[error("has the hook `{word}`; write {wanted}")]
    Value {
        /// The hook as it was written.
        word: String,
        /// The valid forms.
        wanted: &'static str,
    },
    /// More hooks than [`Stack`] takes.
    #[error("has {0} hooks; there may be 8")]
    TooMany(usize),
}

/// Millionths from a text in percent, with at most four digits after the point.
fn millionths(text: &str) -> Option<u32> {
    let (whole, part) = text.strip_suffix('%')?.split_once('.').unwrap_or((text.strip_suffix('%')?, "0"));
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    if !is_number(whole) || !is_number(part) || part.len() > 4 {
        return None;
    }
    format!("{whole}{part:0<4}").parse().ok()
}

fn is_delay(micros: u64) -> bool {
    micros > 0 && micros <= DELAY_MAX.as_micros() as u64
}

/// A time, and a seed, if one is named.
fn jitter(text: &str) -> Option<(u64, u64)> {
    let (time, seed) = text.split_once('@').unwrap_or((text, "0"));
    Some((with_unit(time, TIMES)?, with_unit(seed, &[("", 1)])?))
}

impl FromStr for Choice {
    type Err = StackError;

    fn from_str(word: &str) -> std::result::Result<Self, StackError> {
        let (name, value) = word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
        let (choice, wanted) = match name {
            "delay" => (
                value
                    .and_then(|text| with_unit(text, TIMES))
                    .filter(|&micros| is_delay(micros))
                    .map(Self::Delay),
                "a time of at most one second, such as `delay=50us` or `delay=2ms`",
            ),
            "rate" => (
                value
                    .and_then(|text| with_unit(text, RATES))
                    .filter(|&rate| rate >= RATE_MIN)
                    .map(Self::Rate),
                "at least 64KiB, in bytes a second, such as `rate=100MiB`",
            ),
            "jitter" => (
                value
                    .and_then(jitter)
                    .filter(|&(micros, _)| is_delay(micros))
                    .map(|(micros, seed)| Self::Jitter(micros, seed)),
                "a time of at most one second, and perhaps a seed, such as `jitter=300us` or `jitter=300us@7`",
            ),
            "loss" => (
                value.and_then(millionths).filter(|&share| share > 0 && share <= LOSS_MAX).map(Self::Loss),
                "a part of at most 50%, with four digits after the point, such as `loss=0.1%`",
            ),
            "count" => (value.is_none().then_some(Self::Count), "`count`, without a value"),
            "trace" => (value.is_none().then_some(Self::Trace), "`trace`, without a value"),
            _ => return Err(StackError::Unknown(word.into())),
        };
        choice.ok_or_else(|| StackError::Value { word: word.into(), wanted })
    }
}

impl FromStr for Stack {
    type Err = StackError;

    fn from_str(text: &str) -> std::result::Result<Self, StackError> {
        if text == "none" {
            return Ok(Self::default());
        }
        let choices: Vec<_> =
            text.split(',').map(|word| word.trim().parse()).collect::<std::result::Result<_, _>>()?;
        if choices.len() > HOOKS_MAX { Err(StackError::TooMany(choices.len())) } else { Ok(Self(choices)) }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Delay(micros) => {
                f.write_str("delay=")?;
                write_with_unit(f, micros, TIMES)
            }
            Self::Rate(rate) => {
                f.write_str("rate=")?;
                write_with_unit(f, rate, RATES)
            }
            Self::Jitter(micros, seed) => {
                f.write_str("jitter=")?;
                write_with_unit(f, micros, TIMES)?;
                if seed == 0 { Ok(()) } else { write!(f, "@{seed}") }
            }
            Self::Loss(share) => {
                let percent = format!("{}.{:04}", share / 10_000, share % 10_000);
                write!(f, "loss={}%", percent.trim_end_matches('0').trim_end_matches('.'))
            }
            Self::Count => f.write_str("count"),
            Self::Trace => f.write_str("trace"),
        }
    }
}

impl fmt::Display for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("none");
        }
        for (index, choice) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            choice.fmt(f)?;
        }
        Ok(())
    }
}

impl Stack {
    /// Returns true if there is no hook.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The conduit of `me` with the hooks around it. Without hooks it is the conduit itself.
    ///
    /// # Errors
    /// If the system refuses descriptors.
    pub fn around(&self, conduit: Arc<dyn Conduit>, layout: &Layout, me: Peer) -> Result<Stacked> {
        let (mut conduit, mut counts) = (conduit, Vec::new());
        for choice in self.0.iter().rev() {
            conduit = match *choice {
                Choice::Delay(micros) => {
                    let link = Link { latency: Duration::from_micros(micros), bytes_per_second: None };
                    Arc::new(Delay::new(conduit, link)?)
                }
                Choice::Rate(rate) => {
                    let link = Link { latency: Duration::ZERO, bytes_per_second: Some(rate) };
                    Arc::new(Delay::new(conduit, link)?)
                }
                Choice::Jitter(micros, seed) => {
                    // Peers draw others.
                    let seed = seed ^ u64::from(me.0) << 32;
                    Arc::new(Delay::drawn(conduit, Duration::from_micros(micros), seed)?)
                }
                Choice::Loss(share) => {
                    Arc::new(Hooked::new(conduit, Arc::new(Loss::of_share(share, u64::from(me.0))?))?)
                }
                Choice::Count => {
                    let count = Arc::new(Count::new(layout.peers()));
                    counts.insert(0, count.clone());
                    Arc::new(Hooked::new(conduit, count)?)
                }
                Choice::Trace => Arc::new(Hooked::new(conduit, Arc::new(Trace::new(me)))?),
            };
        }
        Ok(Stacked { conduit, counts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the output is read back as the same, since the processes of a job get it so.
    #[test]
    fn stacks_are_written_as_they_are_read() {
        for (text, printed) in [
            ("none", "none"),
            ("count", "count"),
            ("delay=50us, loss=0.1% ,count", "delay=50us,loss=0.1%,count"),
            ("delay=2000us,rate=1024KiB,trace", "delay=2ms,rate=1MiB,trace"),
            ("loss=50%,loss=0.0001%,loss=12.50%", "loss=50%,loss=0.0001%,loss=12.5%"),
            ("delay=1s,delay=1us", "delay=1s,delay=1us"),
            ("jitter=300us,jitter=2000us@7,jitter=1s@0", "jitter=300us,jitter=2ms@7,jitter=1s"),
        ] {
            let stack: Stack = text.parse().unwrap();
            assert_eq!(stack.to_string(), printed);
            assert_eq!(printed.parse(), Ok(stack));
        }
    }

    /// Goal: an invalid stack is refused with the valid forms.
    #[test]
    fn errors_say_what_may_be_written() {
        let said = |text: &str| text.parse::<Stack>().unwrap_err().to_string();
        for text in ["", "none,count", "count,,trace", "lose=1%", "Delay=1us"] {
            assert!(said(text).contains("there are delay, rate, jitter, loss, count and trace"), "{text}");
        }
        for text in ["delay", "delay=", "delay=50", "delay=0us", "delay=1001ms", "delay=1.5ms", "delay=-1us"]
        {
            assert!(said(text).contains("`delay=50us`"), "{text}");
        }
        for text in
            ["jitter", "jitter=3", "jitter=0us", "jitter=2s", "jitter=1us@", "jitter=1us@x", "jitter=1us@-1"]
        {
            assert!(said(text).contains("`jitter=300us@7`"), "{text}");
        }
        for text in ["rate", "rate=100", "rate=63KiB", "rate=99999999999999GiB"] {
            assert!(said(text).contains("`rate=100MiB`"), "{text}");
        }
        for text in [
            "loss",
            "loss=0%",
            "loss=50.0001%",
            "loss=.1%",
            "loss=1.%",
            "loss=0.00001%",
            "loss=1",
            "loss=+1%",
        ] {
            assert!(said(text).contains("`loss=0.1%`"), "{text}");
        }
        assert!(said("count=1").contains("without a value") && said("trace=").contains("without a value"));
        assert!(["count"; 8].join(",").parse::<Stack>().is_ok());
        assert_eq!(said(&["count"; 9].join(",")), "has 9 hooks; there may be 8");
    }
}
