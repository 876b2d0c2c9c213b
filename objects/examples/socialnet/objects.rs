//! The services on owned objects: users in vectors, a shard of them for each thread of each rank.

use super::common::random::{Zipf, mix};
use super::common::{Outcome, Progress};
use super::load::{self, Client, Edge, Kind, OPENED, Picture, Plan, Report, Request, SHOWN, Text};
use std::time::Instant;
use vgas::Rank;
use vgas_objects::prelude::*;
use vgas_objects::{Call, Lent};

/// Posts of a home timeline that are kept.
const HOME: usize = 16;

/// A post, in the page of those that were composed with it.
#[derive(Portable, Shareable)]
struct Post {
    author: u32,
    text: Text,
    mentions: [Option<u32>; 4],
    picture: Option<Arc<[u8; load::MEDIA]>>,
}

/// Place of a post: the page, and its index there.
#[derive(Clone, Copy, Default, Portable, Shareable)]
struct PostPlace {
    page: u32,
    at: u32,
}

/// A user's graph and timelines.
#[derive(Portable, Shareable)]
struct User {
    followers: Vec<u32>,
    posts: Vec<PostPlace>,
    /// The newest, and how many there were.
    home: [PostPlace; HOME],
    delivered: u64,
}

/// Users, and what was composed for them.
#[derive(Portable, Shareable)]
struct Shard {
    users: Vec<User>,
    /// Targets of short addresses.
    addresses: HashMap<u64, [u8; 32]>,
    latest: Option<Arc<[u8; load::MEDIA]>>,
}

/// A client's requests to one shard.
#[derive(Portable, Shareable)]
struct Batch {
    requests: Vec<Request>,
    texts: Vec<Text>,
}

/// Places of the posts that answer a batch.
#[derive(Portable, Shareable)]
struct Answers {
    places: Vec<PostPlace>,
}

/// A post for a follower's home timeline.
#[derive(Clone, Copy, Portable, Shareable)]
struct Delivery {
    to: u32,
    post: PostPlace,
}

/// A shard's newly composed posts, as a page, and the deliveries to each shard.
type Composed = (Vec<Post>, Vec<Vec<Delivery>>);

impl Shard {
    /// The users of a shard, with their followers.
    fn load(edges: &[Edge], plan: &Plan, shard: usize) -> Self {
        let mut followers: std::vec::Vec<_> = plan.users_of(shard).map(|_| std::vec![]).collect();
        for (user, follower) in edges.iter().flat_map(|(a, b)| [(*a, *b), (*b, *a)]) {
            if plan.shard_of(user) == shard {
                followers[plan.place_of(user)].push(follower);
            }
        }
        let users = followers.into_iter().map(|mut followers| {
            followers.sort_unstable();
            followers.dedup();
            User { followers: followers.into(), posts: Vec::new(), home: Default::default(), delivered: 0 }
        });
        Self { users: users.collect(), addresses: HashMap::new(), latest: None }
    }

    /// The services for what changes: posts are composed, and follow.
    fn write(&mut self, asked: &[Vec<Batch>], plan: &Plan, (number, page): (usize, u32)) -> Composed {
        let mut posts = Vec::new();
        let mut deliveries = vec![std::vec![]; plan.shards as usize];
        for batch in asked.iter().map(|batches| &batches[number]) {
            let mut texts = batch.texts.iter();
            for request in batch.requests.iter() {
                match request.kind {
                    Kind::ReadHome | Kind::ReadUser => {}
                    Kind::Follow { by } => self.follow(plan.place_of(request.user), by),
                    Kind::Compose { picture } => {
                        let Some(text) = texts.next() else { continue };
                        let post = PostPlace { page, at: posts.len() as u32 };
                        posts.push(self.compose(request.user, text, picture));
                        let user = &mut self.users[plan.place_of(request.user)];
                        user.posts.push(post);
                        let deliver =
                            |to: &u32| deliveries[plan.shard_of(*to)].push(Delivery { to: *to, post });
                        user.followers.iter().for_each(deliver);
                    }
                }
            }
        }
        (posts, deliveries.into_iter().map(Vec::from).collect())
    }

    /// The services of text, users that it names, addresses, and media.
    fn compose(&mut self, author: u32, text: &Text, picture: Picture) -> Post {
        let addresses = &mut self.addresses;
        let text = load::shortened(text, |short, long| {
            let mut bytes = [0; 32];
            bytes.iter_mut().zip(long.bytes()).for_each(|(to, from)| *to = from);
            addresses.insert(short, bytes);
        });
        let picture = match picture {
            Picture::None => None,
            Picture::New(seed) => Some(Arc::new(load::picture_of(seed))),
            Picture::Shared => self.latest.clone(),
        };
        if picture.is_some() {
            self.latest = picture.clone();
        }
        Post { author, text, mentions: load::mentions_in(&text), picture }
    }

    /// The service of the graph.
    fn follow(&mut self, user: usize, by: u32) {
        let followers = &mut self.users[user].followers;
        match followers.binary_search(&by) {
            Ok(at) => {
                followers[at..].rotate_left(1);
                followers.pop();
            }
            Err(at) => {
                followers.push(by);
                followers[at..].rotate_right(1);
            }
        }
    }

    /// The services of timelines: posts are delivered, and timelines read.
    fn read(
        &mut self,
        asked: &[Vec<Batch>],
        composed: &[Composed],
        plan: &Plan,
        number: usize,
    ) -> Vec<Answers> {
        let users = &mut self.users[..];
        for delivery in composed.iter().flat_map(|(_, deliveries)| deliveries[number].iter()) {
            let user = &mut users[plan.place_of(delivery.to)];
            user.home[user.delivered as usize % HOME] = delivery.post;
            user.delivered += 1;
        }
        let answers = asked.iter().map(|batches| {
            let mut places = std::vec![];
            for request in batches[number].requests.iter() {
                let user = &users[plan.place_of(request.user)];
                match request.kind {
                    Kind::ReadHome => {
                        let newest = (0..user.delivered).rev().take(SHOWN);
                        places.extend(newest.map(|at| user.home[at as usize % HOME]));
                    }
                    Kind::ReadUser => places.extend(user.posts.iter().rev().take(SHOWN)),
                    Kind::Compose { .. } | Kind::Follow { .. } => {}
                }
            }
            Answers { places: places.into() }
        });
        answers.collect()
    }

    /// A number that tells other contents.
    fn digest(&self) -> u64 {
        self.users.iter().fold(0, |sum, user| {
            let places = user
                .posts
                .iter()
                .chain(&user.home)
                .map(|place| u64::from(place.page) << 32 | u64::from(place.at));
            let numbers = places.chain(user.followers.iter().map(|follower| u64::from(*follower)));
            numbers.fold(mix(sum ^ user.delivered), |sum, number| mix(sum ^ number))
        })
    }
}

/// A client looks at the posts that it was answered with, and asks again: what it asks of each shard, and whether nothing is
/// left.
fn turn(
    client: &mut Client,
    answers: &[Vec<Answers>],
    pages: &[Vec<Post>],
    plan: &Plan,
    (number, now): (usize, u64),
) -> (Vec<Batch>, bool) {
    // Once, not for each post.
    let pages: std::vec::Vec<&[Post]> = pages.iter().map(|page| &page[..]).collect();
    let mut places = std::vec![];
    answers.iter().for_each(|answers| places.extend(answers[number].places.iter()));
    let post_at = |place: &&PostPlace| &pages[place.page as usize][place.at as usize];
    // The pictures to be opened come together, instead of one after the other.
    let opened = places.iter().skip(client.unopened()).step_by(OPENED as usize);
    Arc::read_all(opened.filter_map(|place| post_at(place).picture.as_ref()));
    for post in places.iter().map(post_at) {
        let mentions: std::vec::Vec<u32> = post.mentions.iter().copied().flatten().collect();
        if client.see(post.author, &post.text, &mentions, plan)
            && let Some(picture) = &post.picture
        {
            client.open(&picture[..]);
        }
    }
    client.hear(now);
    let mut requests = vec![std::vec![]; plan.shards as usize];
    let mut texts = vec![std::vec![]; plan.shards as usize];
    let is_over = client.ask(plan, now, |shard, request, text| {
        requests[shard].push(request);
        texts[shard].extend(text);
    });
    let all = requests.into_iter().zip(texts);
    (all.map(|(requests, texts)| Batch { requests: requests.into(), texts: texts.into() }).collect(), is_over)
}

/// Runs `work` on every shard's thread and returns the results.
fn each<'lent, L: Lent<'lent> + 'lent, R: Portable>(
    (plan, ranks): (&Plan, u32),
    work: impl Fn(usize) -> Call<L, R>,
) -> Outcome<Vec<R>> {
    let all = (0..plan.shards as usize).collect();
    each_of(all, ranks, |_, number| work(number))
}

/// Runs `work` on every shard's thread with the shard's own item and returns the results.
fn each_of<'lent, T, L: Lent<'lent> + 'lent, R: Portable>(
    of: std::vec::Vec<T>,
    ranks: u32,
    work: impl Fn(T, usize) -> Call<L, R>,
) -> Outcome<Vec<R>> {
    let place = |number| Rank(number as u32 % ranks);
    thread::scope(|scope| {
        let all: std::vec::Vec<_> = of
            .into_iter()
            .enumerate()
            .map(|(number, own)| scope.spawn_to(place(number), work(own, number)))
            .collect();
        all.into_iter().map(|one| Ok(one.join()?)).collect()
    })
}

/// Runs the plan, with a client and a shard for each thread.
pub fn run(plan: &Plan, edges: &[Edge], zipf: Zipf, ranks: u32) -> Outcome<Report> {
    let mut clients: Vec<Client> = (0..plan.shards).map(|number| Client::new(plan, number, zipf)).collect();
    let edges = &Vec::from(edges);
    let mut shards =
        each((plan, ranks), |number| call!(|edges, plan, number| Shard::load(edges, plan, number)))?;
    let mut answers: Vec<Vec<Answers>> = Vec::new();
    let mut pages: Vec<Vec<Post>> = Vec::new();
    let mut progress = Progress::new("requests", plan.rounds());
    let began = Instant::now();
    loop {
        let now = began.elapsed().as_micros() as u64;
        let (answered, written) = (&answers, &pages);
        let turns = each_of(clients.iter_mut().collect(), ranks, |client, number| {
            call!(|client, answered, written, plan, number, now| turn(
                client,
                answered,
                written,
                plan,
                (number, now)
            ))
        })?;
        if turns.iter().all(|(_, is_over)| *is_over) {
            break;
        }
        let asked: Vec<_> = turns.into_iter().map(|(batches, _)| batches).collect();
        let page = pages.len() as u32;
        let asked = &asked;
        let composed = each_of(shards.iter_mut().collect(), ranks, |shard: &mut Shard, number| {
            call!(|shard, asked, plan, number, page| shard.write(asked, plan, (number, page + number as u32)))
        })?;
        let sent = &composed;
        answers = each_of(shards.iter_mut().collect(), ranks, |shard: &mut Shard, number| {
            call!(|shard, asked, sent, plan, number| shard.read(asked, sent, plan, number))
        })?;
        pages.extend(composed.into_iter().map(|(posts, _)| posts));
        progress.step();
    }
    let seconds = began.elapsed().as_secs_f64();
    let digests = each_of(shards.iter().collect(), ranks, |shard: &Shard, _| call!(|shard| shard.digest()))?;
    let posts = pages.iter().map(|page| page.len() as u64).sum();
    Ok(Report::new(seconds, &clients, digests.into_iter(), posts))
}
