//! The services without ownership, for comparison: on a tiered segment whose pages are kept coherent, under a lock for each user; and with
//! a message for each access of another rank's user or post. Clients and requests are the same; pictures are not opened.

use super::common::Outcome;
use super::common::random::Zipf;
use super::load::{self, Client, Edge, Kind, Plan, Report, Request, SHOWN, TEXT, Text};
use std::cell::RefCell;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use vgas::{Arrived, GlobalAddress, Rank, Runtime, SegmentOptions};

/// Posts of a timeline that are kept.
const KEPT: usize = 16;

/// Words of a timeline: how many posts there were, and where the newest are.
const LINE: usize = 1 + KEPT;

/// Words of a user: a lock, the home timeline, the user's, where followers are, how many, and for how many there is room.
const USER: usize = 4 + 2 * LINE;

/// Words of a post: author, text, and users that it names.
const POST: usize = 1 + TEXT / 8 + 2;

/// Posts of a rank that are kept; more overwrite the oldest.
const POSTS: usize = 1 << 16;

/// Room for further followers.
const SLACK: usize = 8;

/// Requests to a rank that has users and posts, by message or local.
const HOME_OF: u32 = 0;
const POSTS_OF: u32 = 1;
const POST_AT: u32 = 2;
const POSTED: u32 = 3;
const DELIVER: u32 = 4;
const FOLLOWERS: u32 = 5;
const FOLLOW: u32 = 6;

/// Handlers; programs have the indices from 128 on.
const ASK: u8 = 128;
const ANSWER: u8 = 129;

/// Requests that a client has in flight at a time, and followers that one message brings.
const WINDOW: usize = 256;
const BROUGHT: usize = 128;

/// Place of a post: its rank and slot, in a word that is not 0.
fn place_of(rank: u32, slot: usize) -> u64 {
    (u64::from(rank) + 1) << 32 | slot as u64
}

fn rank_of(place: u64) -> u32 {
    (place >> 32) as u32 - 1
}

/// The newest of a timeline.
fn newest(line: &[u64]) -> impl Iterator<Item = u64> + '_ {
    (0..line[0]).rev().take(SHOWN).map(|at| line[1 + at as usize % KEPT])
}

fn push(line: &mut [u64], place: u64) {
    line[1 + line[0] as usize % KEPT] = place;
    line[0] += 1;
}

/// A post, composed by the services of text, addresses, and users that it names.
fn compose(author: u32, text: &Text) -> [u64; POST] {
    let text = load::shortened(text, |_, _| {});
    let mut post = [0; POST];
    post[0] = u64::from(author);
    post[1..]
        .iter_mut()
        .zip(text.as_chunks::<8>().0)
        .for_each(|(word, bytes)| *word = u64::from_le_bytes(*bytes));
    let mentions = load::mentions_in(&text).map(|user| user.map_or(0, |user| u64::from(user) + 1));
    post[POST - 2] = mentions[0] | mentions[1] << 32;
    post[POST - 1] = mentions[2] | mentions[3] << 32;
    post
}

/// Shows a post to a client.
fn show(client: &mut Client, post: &[u64], plan: &Plan) {
    let mut text = [0; TEXT];
    text.as_chunks_mut::<8>()
        .0
        .iter_mut()
        .zip(&post[1..])
        .for_each(|(bytes, word)| *bytes = word.to_le_bytes());
    let words = post[POST - 2..].iter().flat_map(|word| [*word as u32, (*word >> 32) as u32]);
    let mentions: Vec<u32> = words.filter_map(|user| user.checked_sub(1)).collect();
    client.see(post[0] as u32, &text, &mentions, plan);
}

/// The users of a rank, and their followers, as words.
fn table(edges: &[Edge], plan: &Plan, me: usize) -> Vec<u64> {
    let mut followers: Vec<Vec<u32>> = plan.users_of(me).map(|_| Vec::new()).collect();
    for (user, follower) in edges.iter().flat_map(|(a, b)| [(*a, *b), (*b, *a)]) {
        if plan.shard_of(user) == me {
            followers[plan.place_of(user)].push(follower);
        }
    }
    let mut words = vec![0; followers.len() * USER];
    for (at, mut followers) in followers.into_iter().enumerate() {
        followers.sort_unstable();
        followers.dedup();
        let begins = words.len() as u64;
        words[(at + 1) * USER - 3..(at + 1) * USER].copy_from_slice(&[
            begins,
            followers.len() as u64,
            (followers.len() + SLACK) as u64,
        ]);
        words.extend(followers.iter().map(|follower| u64::from(*follower)));
        words.extend([0; SLACK]);
    }
    words
}

/// Lets each rank's client ask, and adds up what they have seen; the report is the first rank's.
fn ask_all(
    runtime: &Runtime,
    plan: &Plan,
    zipf: Zipf,
    mut serve: impl FnMut(&mut Client, &[(Request, Option<Text>)]) -> Outcome,
) -> Outcome<Option<Report>> {
    let mut client = Client::new(plan, runtime.rank().0, zipf);
    runtime.barrier()?;
    let began = Instant::now();
    for _ in 0..plan.rounds() {
        let mut asked = Vec::new();
        client.ask(plan, began.elapsed().as_micros() as u64, |_, request, text| asked.push((request, text)));
        serve(&mut client, &asked)?;
        client.hear(began.elapsed().as_micros() as u64);
    }
    runtime.barrier()?;
    let seconds = began.elapsed().as_secs_f64();
    let mut report = Report::new(seconds, &[client], [].into_iter(), 0);
    report.answered = runtime.all_reduce(report.answered, |a, b| a + b)?;
    report.wrong = runtime.all_reduce(report.wrong, |a, b| a + b)?;
    Ok((runtime.rank() == Rank(0)).then_some(report))
}

/// On pages that are kept coherent.
pub fn coherent(runtime: &Runtime, plan: &Plan, edges: &[Edge], zipf: Zipf) -> Outcome<Option<Report>> {
    let me = runtime.rank().0;
    let words = table(edges, plan, me as usize);
    let begins = runtime.all_reduce(words.len(), usize::max)?;
    let tiered_bytes = ((begins + POSTS * POST) * 8) as u64;
    runtime.attach(&SegmentOptions::tiered(tiered_bytes))?;
    runtime.put(GlobalAddress::tiered(Rank(me), 0), &words)?;
    drop(words);
    let at = |rank: u32, word: usize| GlobalAddress::tiered(Rank(rank), word as u64 * 8);
    let user_at = |user: u32, word: usize| at(plan.shard_of(user) as u32, plan.place_of(user) * USER + word);
    let mut composed = 0;
    let deliver = |user: u32, line: usize, place: u64| -> Outcome {
        let guard = runtime.lock(user_at(user, 0))?;
        let mut timeline = [0u64; LINE];
        runtime.get(user_at(user, line), &mut timeline)?;
        push(&mut timeline, place);
        Ok(runtime.put(user_at(user, line), &timeline).map(|()| drop(guard))?)
    };
    let followers_of = |user: u32| -> Outcome<([u64; 3], Vec<u64>)> {
        let mut found = [0u64; 3];
        runtime.get(user_at(user, USER - 3), &mut found)?;
        let mut followers = vec![0u64; found[1] as usize];
        runtime.get(at(plan.shard_of(user) as u32, found[0] as usize), &mut followers)?;
        Ok((found, followers))
    };
    ask_all(runtime, plan, zipf, |client, asked| {
        for (Request { user, kind }, text) in asked {
            match (kind, text) {
                (Kind::Compose { .. }, Some(text)) => {
                    let slot = composed % POSTS;
                    composed += 1;
                    runtime.put(at(me, begins + slot * POST), &compose(*user, text))?;
                    deliver(*user, 1 + LINE, place_of(me, slot))?;
                    let guard = runtime.lock_shared(user_at(*user, 0))?;
                    let (_, followers) = followers_of(*user)?;
                    drop(guard);
                    for follower in followers {
                        deliver(follower as u32, 1, place_of(me, slot))?;
                    }
                }
                (Kind::Follow { by }, _) => {
                    let guard = runtime.lock(user_at(*user, 0))?;
                    let (mut found, mut followers) = followers_of(*user)?;
                    toggle(&mut followers, u64::from(*by), found[2] as usize);
                    found[1] = followers.len() as u64;
                    runtime.put(at(plan.shard_of(*user) as u32, found[0] as usize), &followers)?;
                    runtime.put(user_at(*user, USER - 3), &found)?;
                    drop(guard);
                }
                _ => {
                    let line = if *kind == Kind::ReadHome { 1 } else { 1 + LINE };
                    let mut timeline = [0u64; LINE];
                    let guard = runtime.lock_shared(user_at(*user, 0))?;
                    runtime.get(user_at(*user, line), &mut timeline)?;
                    drop(guard);
                    for place in newest(&timeline) {
                        let mut post = [0u64; POST];
                        let slot = place as u32 as usize;
                        runtime.get(at(rank_of(place), begins + slot * POST), &mut post)?;
                        show(client, &post, plan);
                    }
                }
            }
        }
        Ok(())
    })
}

fn toggle(followers: &mut Vec<u64>, by: u64, room: usize) {
    match followers.binary_search(&by) {
        Ok(at) => drop(followers.remove(at)),
        Err(at) if followers.len() < room => followers.insert(at, by),
        Err(_) => {}
    }
}

/// A rank's data: users, followers and posts.
struct RankData {
    words: Vec<u64>,
    posts: Vec<u64>,
}

static OWN: Mutex<RankData> = Mutex::new(RankData { words: Vec::new(), posts: Vec::new() });
/// Answers that have come, by the number of what was asked.
static ANSWERS: Mutex<Vec<(u32, Vec<u64>)>> = Mutex::new(Vec::new());

fn own<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    // No thread panics while holding it.
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Does what is asked of a rank; nothing, for what it does not have.
fn access(what: u32, place: usize, value: u64) -> Vec<u64> {
    let mut own = own(&OWN);
    let RankData { words, posts } = &mut *own;
    if what == POST_AT {
        return posts.get(place * POST..(place + 1) * POST).map_or(Vec::new(), <[u64]>::to_vec);
    }
    let Some(user) = words.get_mut(place * USER..(place + 1) * USER) else { return Vec::new() };
    let line = if matches!(what, HOME_OF | DELIVER) { 1 } else { 1 + LINE };
    match what {
        HOME_OF | POSTS_OF => return newest(&user[line..line + LINE]).collect(),
        DELIVER | POSTED => push(&mut user[line..line + LINE], value),
        _ => {}
    }
    let [begins, count, room] = [user[USER - 3] as usize, user[USER - 2] as usize, user[USER - 1] as usize];
    let Some(followers) = words.get_mut(begins..begins + room) else { return Vec::new() };
    match what {
        // With how many there are: the rest is asked for.
        POSTED | FOLLOWERS => {
            let from = if what == POSTED { 0 } else { value as usize };
            let some = followers[..count].iter().skip(from).take(BROUGHT);
            std::iter::once(count as u64).chain(some.copied()).collect()
        }
        FOLLOW => {
            let mut all = followers[..count].to_vec();
            toggle(&mut all, value, room);
            followers[..all.len()].copy_from_slice(&all);
            words[(place + 1) * USER - 2] = all.len() as u64;
            Vec::new()
        }
        _ => Vec::new(),
    }
}

fn words_of(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect()
}

/// Joins the job, with the handlers of services that are asked by messages, if that is wanted.
pub fn join(is_delegated: bool) -> vgas::Result<Runtime> {
    if !is_delegated {
        return Runtime::init();
    }
    let ask = Runtime::builder().handler(ASK, |token, arguments, _| {
        let &[number, what, place, low, high] = arguments else {
            return token.refuse("a request of another form");
        };
        let found = access(what, place as usize, u64::from(low) | u64::from(high) << 32);
        let bytes: Vec<u8> = found.iter().flat_map(|word| word.to_le_bytes()).collect();
        token.check(token.reply_medium(ANSWER, &[number], &bytes));
    });
    let answer = ask.handler(ANSWER, |token, arguments, payload| match (arguments, payload) {
        (&[number], Arrived::Medium(bytes)) => own(&ANSWERS).push((number, words_of(&bytes))),
        (&[number], Arrived::Short) => own(&ANSWERS).push((number, Vec::new())),
        _ => token.refuse("an answer of another form"),
    });
    answer.init()
}

/// A client's requests to other ranks, many at a time.
struct ClientRequests<'r> {
    runtime: &'r Runtime,
    in_flight: usize,
    heard: Vec<(u32, Vec<u64>)>,
}

impl ClientRequests<'_> {
    fn ask(&mut self, number: usize, rank: u32, what: u32, place: usize, value: u64) -> Outcome {
        if rank == self.runtime.rank().0 {
            self.heard.push((number as u32, access(what, place, value)));
            return Ok(());
        }
        let arguments = [number as u32, what, place as u32, value as u32, (value >> 32) as u32];
        self.runtime.request(Rank(rank), ASK, &arguments, &[])?;
        self.in_flight += 1;
        if self.in_flight >= WINDOW { self.hear(WINDOW / 2) } else { Ok(()) }
    }

    fn hear(&mut self, count: usize) -> Outcome {
        self.runtime.wait_until(|| own(&ANSWERS).len() >= count)?;
        let answers = std::mem::take(&mut *own(&ANSWERS));
        self.in_flight -= answers.len();
        self.heard.extend(answers);
        Ok(())
    }

    /// All answers to what was asked.
    fn all(&mut self) -> Outcome<Vec<(u32, Vec<u64>)>> {
        self.hear(self.in_flight)?;
        Ok(std::mem::take(&mut self.heard))
    }
}

/// With a message for each access of another rank's users and posts.
pub fn delegated(runtime: &Runtime, plan: &Plan, edges: &[Edge], zipf: Zipf) -> Outcome<Option<Report>> {
    let me = runtime.rank().0;
    *own(&OWN) = RankData { words: table(edges, plan, me as usize), posts: vec![0; POSTS * POST] };
    runtime.attach(&SegmentOptions::tiered(1 << 20))?;
    let asker = RefCell::new(ClientRequests { runtime, in_flight: 0, heard: Vec::new() });
    let of_user = |user: u32| (plan.shard_of(user) as u32, plan.place_of(user));
    let mut composed = 0;
    ask_all(runtime, plan, zipf, |client, asked| {
        let mut asker = asker.borrow_mut();
        let mut places = vec![0; asked.len()];
        for (number, (Request { user, kind }, text)) in asked.iter().enumerate() {
            let (rank, place) = of_user(*user);
            match (kind, text) {
                (Kind::Compose { .. }, Some(text)) => {
                    let slot = composed % POSTS;
                    composed += 1;
                    own(&OWN).posts[slot * POST..(slot + 1) * POST].copy_from_slice(&compose(*user, text));
                    places[number] = place_of(me, slot);
                    asker.ask(number, rank, POSTED, place, places[number])?;
                }
                (Kind::Follow { by }, _) => asker.ask(number, rank, FOLLOW, place, u64::from(*by))?,
                (Kind::ReadHome, _) => asker.ask(number, rank, HOME_OF, place, 0)?,
                _ => asker.ask(number, rank, POSTS_OF, place, 0)?,
            }
        }
        // Timelines and followers have come: posts are read, and delivered.
        for (number, found) in asker.all()? {
            let (request, _) = &asked[number as usize];
            match (request.kind, found.split_first()) {
                (Kind::Compose { .. }, Some((count, followers))) => {
                    let mut followers = followers.to_vec();
                    let (rank, place) = of_user(request.user);
                    while followers.len() < *count as usize {
                        let mut other = ClientRequests { runtime, in_flight: 0, heard: Vec::new() };
                        // Answers in flight are handled first.
                        let in_flight = asker.in_flight;
                        asker.hear(in_flight)?;
                        other.ask(0, rank, FOLLOWERS, place, followers.len() as u64)?;
                        let more = other.all()?;
                        let Some((_, [_, some @ ..])) = more.first().map(|(at, words)| (at, &words[..]))
                        else {
                            break;
                        };
                        if some.is_empty() {
                            break;
                        }
                        followers.extend(some);
                    }
                    for follower in followers {
                        let (rank, place) = of_user(follower as u32);
                        asker.ask(asked.len(), rank, DELIVER, place, places[number as usize])?;
                    }
                }
                (Kind::ReadHome | Kind::ReadUser, _) => {
                    for place in found {
                        asker.ask(number as usize, rank_of(place), POST_AT, place as u32 as usize, 0)?;
                    }
                }
                _ => {}
            }
        }
        for (number, post) in asker.all()? {
            if (number as usize) < asked.len() && post.len() == POST {
                show(client, &post, plan);
            }
        }
        Ok(())
    })
}
