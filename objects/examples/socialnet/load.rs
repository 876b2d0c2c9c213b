//! The load: the requests of each client, and the graph of followers. The requests are those of
//! DeathStarBench's social network (Gan et al., *An open-source benchmark suite for microservices*), in its
//! mix.

use super::common::Outcome;
use super::common::random::{Random, Zipf, mix};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use vgas_objects::{Portable, Shareable};

/// Bytes of a post's text, at most.
pub const TEXT: usize = 128;

/// Bytes of a picture.
pub const MEDIA: usize = 4096;

/// Posts that an answer has at most.
pub const SHOWN: usize = 10;

/// One picture in this number of posts shown first is opened.
pub const OPENED: u64 = 256;

/// Longest line of a file of edges.
const LINE_MAX: u64 = 1024;

/// Kind of a request to a user's shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Portable, Shareable)]
pub enum Kind {
    /// Reads the posts of the users that this user follows.
    ReadHome,
    /// Reads the user's own posts.
    ReadUser,
    /// A post, whose text travels beside it, and perhaps a new picture, or the one that was posted last there.
    Compose { picture: Picture },
    /// Adds or removes a follower of the user.
    Follow { by: u32 },
}

/// Content of a post's picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Portable, Shareable)]
pub enum Picture {
    None,
    /// Uploaded with it, made of a seed.
    New(u64),
    /// That of another post.
    Shared,
}

#[derive(Clone, Copy, Debug, Portable, Shareable)]
pub struct Request {
    pub user: u32,
    pub kind: Kind,
}

/// Text of a post, followed by zeros.
pub type Text = [u8; TEXT];

/// Size of a run.
#[derive(Clone, Copy, Debug, Portable, Shareable)]
pub struct Plan {
    pub users: u32,
    pub operations: u64,
    /// Requests that a client has in flight at a time, at most.
    pub batch: u64,
    /// As many as clients.
    pub shards: u32,
    /// Requests a second, of all clients, whether they are answered or not; 0: as soon as those before are answered.
    pub rate: u64,
    pub seed: u64,
}

impl Plan {
    /// As many batches of each client as there are.
    pub fn rounds(&self) -> u64 {
        self.operations.div_ceil(self.batch * u64::from(self.shards))
    }

    /// Returns the shard of a user.
    pub fn shard_of(&self, user: u32) -> usize {
        (user % self.shards) as usize
    }

    /// Returns the user's index in its shard.
    pub fn place_of(&self, user: u32) -> usize {
        (user / self.shards) as usize
    }

    /// The users of a shard, in the order of their places.
    pub fn users_of(&self, shard: usize) -> impl Iterator<Item = u32> + use<> {
        (shard as u32..self.users).step_by(self.shards as usize)
    }
}

/// Histogram of request latencies: counts, in eight steps to each power of two of microseconds.
#[derive(Clone, Copy, Debug, Portable, Shareable)]
pub struct Waits([u32; 256]);

impl Waits {
    pub const NONE: Self = Self([0; 256]);

    fn add(&mut self, micros: u64, count: u64) {
        let micros = micros.max(8);
        let power = micros.ilog2();
        let step = ((power - 3) * 8) as usize + (micros >> (power - 3)) as usize - 8;
        self.0[step.min(255)] += count as u32;
    }

    pub fn and(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(count, other)| *count += other);
    }

    /// The milliseconds within which such a part of all were answered.
    pub fn within(&self, part: f64) -> f64 {
        let all: u64 = self.0.iter().map(|count| u64::from(*count)).sum();
        let mut left = (all as f64 * part).ceil() as u64;
        let found = self.0.iter().position(|count| {
            left = left.saturating_sub(u64::from(*count));
            left == 0
        });
        let step = found.unwrap_or(255) as u64 + 1;
        ((8 + step % 8) << (step / 8)) as f64 / 1e3
    }
}

/// A client, which asks for any user.
#[derive(Clone, Copy, Debug, Portable, Shareable)]
pub struct Client {
    random: Random,
    zipf: Zipf,
    share: u64,
    asked: u64,
    /// When the requests in flight were asked, or were to be asked: the first, and how far apart, in microseconds.
    since: [f64; 2],
    in_flight: u64,
    pub answered: u64,
    /// Answers with posts that are none.
    pub wrong: u64,
    /// Digest of all posts shown, in their order.
    pub read: u64,
    shown: u64,
    pub waits: Waits,
}

impl Client {
    pub fn new(plan: &Plan, number: u32, zipf: Zipf) -> Self {
        let clients = u64::from(plan.shards);
        let share = plan.operations / clients + u64::from(u64::from(number) < plan.operations % clients);
        Self {
            random: Random::new(plan.seed, u64::from(number)),
            zipf,
            share,
            asked: 0,
            since: [0.0; 2],
            in_flight: 0,
            answered: 0,
            wrong: 0,
            read: 0,
            shown: 0,
            waits: Waits::NONE,
        }
    }

    /// Everything that was in flight is answered, so many microseconds after the beginning.
    pub fn hear(&mut self, now: u64) {
        let [first, apart] = self.since;
        for number in 0..self.in_flight {
            self.waits.add((now as f64 - first - apart * number as f64).max(0.0) as u64, 1);
        }
        self.answered += self.in_flight;
        self.in_flight = 0;
    }

    /// Asks what it may: the shard, the request, and the text of a post. Yields whether there is nothing
    /// more to ask.
    pub fn ask(&mut self, plan: &Plan, now: u64, mut ask: impl FnMut(usize, Request, Option<Text>)) -> bool {
        let apart = match plan.rate {
            0 => 0.0,
            rate => 1e6 * f64::from(plan.shards) / rate as f64,
        };
        let due = if apart > 0.0 { (now as f64 / apart) as u64 + 1 } else { self.share };
        let count = due.min(self.share).saturating_sub(self.asked).min(plan.batch);
        self.since = [if apart > 0.0 { self.asked as f64 * apart } else { now as f64 }, apart];
        for _ in 0..count {
            let user = mix(self.zipf.draw(&mut self.random)) % u64::from(plan.users);
            let user = user as u32;
            let (kind, text) = match self.random.below(1000) {
                0..600 => (Kind::ReadHome, None),
                600..900 => (Kind::ReadUser, None),
                // Of the changing requests, one in twenty follows.
                900..995 => (Kind::Compose { picture: self.picture() }, Some(self.text(plan))),
                _ => (Kind::Follow { by: self.random.below(u64::from(plan.users)) as u32 }, None),
            };
            ask(plan.shard_of(user), Request { user, kind }, text);
        }
        self.asked += count;
        self.in_flight = count;
        count == 0 && self.asked == self.share
    }

    fn picture(&mut self) -> Picture {
        match self.random.below(4) {
            0 => Picture::New(self.random.bits()),
            1 => Picture::Shared,
            _ => Picture::None,
        }
    }

    /// Words, some of which name users or pages elsewhere.
    fn text(&mut self, plan: &Plan) -> Text {
        const WORDS: [&str; 8] = ["the", "sea", "is", "calm", "tonight", "moon", "lies", "fair"];
        let mut text = Vec::with_capacity(TEXT);
        loop {
            let random = self.random.bits();
            let before = text.len();
            if before > 0 {
                text.push(b' ');
            }
            match random % 16 {
                0 => text.extend(format!("@user{}", (random >> 8) % u64::from(plan.users)).bytes()),
                1 => text.extend(format!("https://example.org/{:08x}", random >> 32).bytes()),
                _ => text.extend(WORDS[(random >> 8) as usize % 8].bytes()),
            }
            if text.len() > TEXT {
                text.truncate(before);
                text.resize(TEXT, 0);
                return text.try_into().unwrap_or([0; TEXT]);
            }
        }
    }

    /// Sees a post: whether it wants to see its picture, too.
    pub fn see(&mut self, author: u32, text: &Text, mentions: &[u32], plan: &Plan) -> bool {
        let words = text.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
        let seen =
            words.fold(u64::from(author), |sum, word| (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let seen = mentions.iter().fold(seen, |sum, user| sum.rotate_left(9) ^ u64::from(*user));
        self.wrong += u64::from(author >= plan.users || text[0] == 0);
        self.read = mix(self.read ^ seen);
        self.shown += 1;
        self.shown.is_multiple_of(OPENED)
    }

    /// Draws the number of posts shown before the next picture is opened.
    pub fn unopened(&self) -> usize {
        (OPENED - 1 - self.shown % OPENED) as usize
    }

    /// Sees a picture.
    pub fn open(&mut self, picture: &[u8]) {
        let words = picture.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
        self.read = mix(self.read ^ words.fold(0, |sum, word| sum ^ word));
    }
}

/// The bytes of a picture.
pub fn picture_of(seed: u64) -> [u8; MEDIA] {
    let mut random = Random::new(seed, 7);
    let mut bytes = [0; MEDIA];
    bytes.as_chunks_mut::<8>().0.iter_mut().for_each(|word| *word = random.bits().to_le_bytes());
    bytes
}

/// The users that a text names, at most four.
pub fn mentions_in(text: &Text) -> [Option<u32>; 4] {
    let mut found = [None; 4];
    let names = words_of(text).filter_map(|word| word.strip_prefix("@user")?.parse().ok());
    found.iter_mut().zip(names).for_each(|(place, user)| *place = Some(user));
    found
}

/// The text with each address replaced by a short one, and what these stand for.
pub fn shortened(text: &Text, mut keep: impl FnMut(u64, &str)) -> Text {
    let mut short = Vec::with_capacity(TEXT);
    for word in words_of(text) {
        if !short.is_empty() {
            short.push(b' ');
        }
        if word.starts_with("https://") {
            let number = word.bytes().fold(7, |hash, byte| mix(hash ^ u64::from(byte)));
            keep(number, word);
            short.extend(format!("s/{:010x}", number >> 24).bytes());
        } else {
            short.extend(word.bytes());
        }
    }
    short.resize(TEXT, 0);
    short.try_into().unwrap_or([0; TEXT])
}

fn words_of(text: &Text) -> impl Iterator<Item = &str> {
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(TEXT);
    std::str::from_utf8(&text[..end]).unwrap_or_default().split(' ')
}

/// Friends: each follows the other.
pub type Edge = (u32, u32);

/// A graph of so many users and pairs of friends, in which some have far more friends than others.
pub fn generate(seed: u64, users: u32, edges: u64) -> Vec<Edge> {
    let zipf = Zipf::new(u64::from(users), 0.6);
    let mut random = Random::new(seed, u64::MAX);
    (0..edges)
        .map(|_| {
            let popular = mix(zipf.draw(&mut random)) % u64::from(users);
            (random.below(u64::from(users)) as u32, popular as u32)
        })
        .filter(|(a, b)| a != b)
        .collect()
}

/// A graph from a file: two numbers of users in a line, with a comma, spaces or tabs between; lines that
/// begin with `#` or `%` are remarks. Returns the number of users, and the pairs.
pub fn read(path: &Path) -> Outcome<(u32, Vec<Edge>)> {
    let name = path.display();
    let cannot = |why| format!("cannot read {name}: {why}");
    let mut file = BufReader::new(File::open(path).map_err(cannot)?);
    let (mut edges, mut users, mut line) = (Vec::new(), 0, Vec::new());
    for number in 1.. {
        line.clear();
        if std::io::Read::take(&mut file, LINE_MAX).read_until(b'\n', &mut line).map_err(cannot)? == 0 {
            break;
        }
        let text = String::from_utf8_lossy(&line);
        let text = text.trim();
        if text.is_empty() || text.starts_with(['#', '%']) {
            continue;
        }
        let ids = text.split(|c: char| c == ',' || c.is_whitespace()).filter(|word| !word.is_empty());
        let ids: Vec<Option<u32>> = ids.map(|word| word.parse().ok().filter(|id| *id < 1 << 28)).collect();
        let [Some(a), Some(b)] = ids[..] else {
            let quoted = vgas::say::Quoted(text);
            return Err(format!("{name}:{number}: `{quoted}` is not two numbers of users below 2^28").into());
        };
        users = users.max(a + 1).max(b + 1);
        if a != b {
            edges.push((a, b));
        }
    }
    match edges.is_empty() {
        true => Err(format!("{name}:1: the file has no pairs of users").into()),
        false => Ok((users, edges)),
    }
}

/// Result of a run.
#[derive(Debug)]
pub struct Report {
    pub seconds: f64,
    pub answered: u64,
    pub wrong: u64,
    /// Digest of all posts shown to clients, in their order.
    pub read: u64,
    /// Digest of the final data of all users.
    pub contents: u64,
    pub posts: u64,
    pub waits: Waits,
}

impl Report {
    /// Combines the clients' observations and the shards' digests.
    pub fn new(seconds: f64, clients: &[Client], digests: impl Iterator<Item = u64>, posts: u64) -> Self {
        let contents = digests.fold(0, |sum, digest| mix(sum) ^ digest);
        let mut all = Self { seconds, answered: 0, wrong: 0, read: 0, contents, posts, waits: Waits::NONE };
        for client in clients {
            all.answered += client.answered;
            all.wrong += client.wrong;
            all.read = mix(all.read) ^ client.read;
            all.waits.and(&client.waits);
        }
        all
    }
}
