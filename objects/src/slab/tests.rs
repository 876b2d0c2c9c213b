//! Goal: objects never overlap, an address never has a served colour twice, nothing is lost, and a free of
//! something else is refused.

use super::*;
use proptest::prelude::*;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};

#[derive(Debug)]
pub(super) struct Bytes(RefCell<Vec<u32>>);

impl Memory for Bytes {
    fn load(&self, offset: u64) -> u32 {
        self.0.borrow()[offset as usize / 4]
    }

    fn store(&self, offset: u64, word: u32) {
        self.0.borrow_mut()[offset as usize / 4] = word;
    }
}

pub(super) const ADDRESS: u64 = 0x1000_0000_3000;

pub(super) fn slabs(bytes: u64, last: u16) -> Slabs<Bytes> {
    let memory = Bytes(RefCell::new(vec![0; bytes as usize / 4]));
    Slabs::new(memory, Geometry::new(ADDRESS, bytes), Colour(last))
}

#[derive(Clone, Debug)]
enum Action {
    Allocate(u64, u64, bool),
    Serve(usize),
    Free(usize),
    Confirm(usize),
    Reopen,
}

fn actions() -> impl Strategy<Value = Action> {
    let sizes = prop_oneof![0..100u64, 0..9000u64, 60_000..300_000u64];
    prop_oneof![
        4 => (sizes, 0..9u32, any::<bool>()).prop_map(|(size, align, of)| Action::Allocate(size, 1 << align, of)),
        2 => any::<usize>().prop_map(Action::Serve),
        4 => any::<usize>().prop_map(Action::Free),
        1 => any::<usize>().prop_map(Action::Confirm),
        1 => Just(Action::Reopen),
    ]
}

/// Miri takes up to a second for an action of many objects: few and short, so that its time is bounded whatever is drawn.
const ACTIONS_MAX: usize = if cfg!(miri) { 60 } else { 400 };

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: if cfg!(miri) { 3 } else { 256 }, ..ProptestConfig::default() })]

    #[test]
    fn slots_are_apart_and_colours_go_on(actions in prop::collection::vec(actions(), 1..ACTIONS_MAX), last in 0..4u16) {
        let mut slabs = slabs(2 << 20, last);
        let geometry = slabs.geometry();
        let mut live: Vec<(SlotPlace, u64, Class)> = Vec::new();
        let mut copies: HashSet<u64> = HashSet::new();
        let mut seen: HashSet<(u64, u16)> = HashSet::new();
        // By size, as far as they are no copies.
        let of_values = |live: &[(SlotPlace, u64, Class)], copies: &HashSet<u64>| {
            let mut sizes = BTreeMap::<(bool, u64), u64>::new();
            for (_, _, class) in live.iter().filter(|(place, ..)| !copies.contains(&place.offset)) {
                *sizes.entry((matches!(class, Class::Large(_)), class.bytes())).or_default() += 1;
            }
            sizes
        };
        let counted = |slabs: &Slabs<Bytes>| -> BTreeMap<(bool, u64), u64> {
            slabs.sizes().iter().map(|of| ((of.is_large, of.bytes), of.objects)).collect()
        };
        let mut is_reopened = false;
        for action in actions {
            match action {
                Action::Allocate(size, align, is_copy) => {
                    let class = Class::of(size, align).unwrap();
                    let of = if is_copy { Use::Copies } else { Use::Values };
                    let Ok(place) = slabs.allocate(class, of) else { continue };
                    prop_assert!((ADDRESS + place.offset).is_multiple_of(align));
                    prop_assert!(place.offset + size <= 2 << 20 && place.colour <= Colour(last));
                    prop_assert!(!seen.contains(&(place.offset, place.colour.0)), "{place:?} was served before");
                    let apart = |(other, its, _): &(SlotPlace, u64, Class)| {
                        place.offset + size.max(1) <= other.offset || other.offset + its.max(&1) <= place.offset
                    };
                    prop_assert!(live.iter().all(apart));
                    prop_assert!(slabs.bytes_at(place.offset).unwrap() >= size);
                    let word = match class {
                        Class::Small(number) => word_address(number, ADDRESS + place.offset),
                        Class::Large(_) => geometry.large_words(ADDRESS) + ((ADDRESS + place.offset) >> 12),
                    };
                    prop_assert_eq!(Some(word - ADDRESS), geometry.word_of(place.offset, class));
                    copies.remove(&place.offset);
                    if is_copy {
                        copies.insert(place.offset);
                    }
                    live.push((place, size, class));
                }
                Action::Serve(which) if !live.is_empty() => {
                    let (place, _, class) = live[which % live.len()];
                    let at = geometry.word_of(place.offset, class).unwrap();
                    slabs.memory().store(at, slabs.memory().load(at) | SERVED);
                    seen.insert((place.offset, place.colour.0));
                }
                Action::Free(which) if !live.is_empty() => {
                    let (place, ..) = live.swap_remove(which % live.len());
                    slabs.free(place.offset, place.colour).unwrap();
                    prop_assert!(slabs.free(place.offset, place.colour).is_err());
                    prop_assert!(slabs.free(place.offset + 4, place.colour).is_err());
                }
                Action::Confirm(which) if !slabs.retired().is_empty() => {
                    let offset = slabs.retired()[which % slabs.retired().len()];
                    // Its copies are gone: what was seen there is forgotten.
                    seen.retain(|(at, _)| *at != offset);
                    slabs.confirmed(offset).unwrap();
                }
                Action::Reopen => {
                    live.retain(|(place, ..)| !copies.contains(&place.offset));
                    // No process has copies.
                    (seen, copies) = Default::default();
                    let Slabs { memory, used, .. } = slabs;
                    slabs = Slabs::reopen(memory, geometry, Colour(last), live.len() as u64, used);
                    is_reopened = true;
                }
                _ => {}
            }
            prop_assert_eq!(slabs.live(), live.len() as u64);
            prop_assert_eq!(slabs.free_slabs(), slabs.free.values().sum::<u32>());
            if is_reopened {
                let there = of_values(&live, &copies);
                prop_assert!(counted(&slabs).iter().all(|(size, count)| there.get(size) >= Some(count)));
            } else {
                prop_assert_eq!(counted(&slabs), of_values(&live, &copies));
            }
        }
        slabs.look_everywhere();
        prop_assert_eq!(counted(&slabs), of_values(&live, &copies));
        for (place, ..) in live {
            slabs.free(place.offset, place.colour).unwrap();
        }
        prop_assert_eq!(slabs.sizes(), []);
        for offset in slabs.retired().to_vec() {
            slabs.confirmed(offset).unwrap();
        }
        prop_assert_eq!((slabs.free.len(), slabs.free[&0]), (1, geometry.slabs), "a slab is lost");
    }

    #[test]
    fn what_is_no_object_is_refused(offset: u64, colour: u16) {
        let mut slabs = slabs(1 << 20, u16::MAX);
        let place = slabs.allocate(Class::of(40, 8).unwrap(), Use::Values).unwrap();
        let near = place.offset.wrapping_add(offset % 1000).wrapping_sub(500);
        for offset in [offset, offset % (1 << 20), near] {
            if offset != place.offset {
                prop_assert!(slabs.free(offset, Colour(colour)).is_err());
                let slot = slabs.bytes_at(offset).map_or(0, |bytes| offset + bytes);
                prop_assert!(slot <= 1 << 20);
            }
        }
        prop_assert_eq!(slabs.live(), 1);
    }
}

#[test]
fn a_full_partition_says_so() {
    let mut slabs = slabs(1 << 20, 9);
    let class = Class::of(1000, 8).unwrap();
    // The slabs to stay free do, and begun slabs are filled.
    let leaving = std::iter::from_fn(|| slabs.allocate_leaving(class, Use::Values, 3).ok()).count();
    assert!(leaving > 600 && slabs.free_slabs() == 3, "{leaving}");
    assert!(slabs.allocate_leaving(Class::Large(1), Use::Values, 3).is_err());
    let count = std::iter::from_fn(|| slabs.allocate(class, Use::Values).ok()).count();
    assert!(count + leaving > 800, "{count}");
    let full = slabs.allocate(class, Use::Values).unwrap_err();
    assert!(full.to_string().contains("attach the heap with more bytes"), "{full}");
    assert_eq!(Geometry::new(ADDRESS, 1000).slabs, 0);
}
