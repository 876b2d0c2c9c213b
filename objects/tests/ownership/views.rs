//! What other libraries see of objects (the features `arrow`, `rkyv` and `serde`), also of other ranks' objects and in copies.

use crate::scenarios::{ensure, nothing_is_left};
use crate::{HEAP, JOBS, Outcome, Scenario};
use std::collections::HashMap;
use vgas::Rank;
use vgas_objects::{DBox, DMap, DString, DVec, Objects, Portable, Shareable, views};

pub const ALL: &[Scenario] = &[
    Scenario { name: "views_of_serde", jobs: JOBS, heap: HEAP, rank: with_serde, ends_with: None },
    Scenario { name: "views_of_arrow", jobs: JOBS, heap: HEAP, rank: with_arrow, ends_with: None },
    Scenario { name: "views_of_rkyv", jobs: JOBS, heap: HEAP, rank: with_rkyv, ends_with: None },
];

#[derive(serde::Serialize, serde::Deserialize, Portable, Shareable)]
struct Person {
    name: DString,
    years: DMap<DString, u32>,
    friends: DVec<DBox<u64>>,
}

/// Goal: what serde writes of objects of rank 0, wherever it is read, is what it writes of std's, and becomes such objects again.
fn with_serde(objects: &Objects, _: u64) -> Outcome {
    let text = r#"{"name":"Ada \"Countess\"","years":{"born":1815},"friends":[1,2,3]}"#;
    let person: Option<DBox<Person>> = (objects.rank() == Rank(0))
        .then(|| serde_json::from_str(text))
        .transpose()
        .map_err(|why| why.to_string())?;
    objects.lend(Rank(0), person.as_ref(), |person| {
        let written = serde_json::to_string(&**person).map_err(|why| why.to_string())?;
        ensure(written == text, || written.clone())
    })??;
    for bad in [r#"{"name":1,"years":{},"friends":[]}"#, r#"{"name":"","years":[],"friends":[]}"#, "[1"] {
        ensure(serde_json::from_str::<Person>(bad).is_err(), || format!("{bad} was taken"))?;
    }
    drop(person);
    nothing_is_left(objects)
}

/// Goal: a row is an Arrow buffer where it lies, shared and sliced by Arrow, and goes with the last that shares it.
fn with_arrow(objects: &Objects, _: u64) -> Outcome {
    let failed = |why: vgas_objects::ObjectError| why.to_string();
    let row: DVec<i64> = (0..100_000).collect();
    let at = row.as_ptr();
    let buffer = views::arrow::buffer(row).map_err(failed)?;
    ensure(buffer.as_ptr() == at && buffer.iter().sum::<i64>() == 4_999_950_000, || "was copied".into())?;
    let part = buffer.slice(10, 5);
    drop(buffer);
    ensure(*part == [10, 11, 12, 13, 14], || format!("{part:?}"))?;
    let mut back = DVec::new();
    back.try_extend_from(&part).map_err(failed)?;
    ensure(back[..] == part[..], || "not back again".into())?;
    ensure(views::arrow::buffer(DVec::<f64>::new()).map_err(failed)?.is_empty(), || "an empty row".into())?;
    drop((part, back));
    nothing_is_left(objects)
}

#[derive(rkyv::Archive, rkyv::Serialize)]
struct Page {
    title: String,
    links: HashMap<String, Vec<u32>>,
}

/// Goal: what is not portable is archived, read by every rank where it is or in a copy, and what is no such value is an error.
fn with_rkyv(objects: &Objects, _: u64) -> Outcome {
    let page = Page { title: "A page".into(), links: [("there".to_owned(), vec![1, 2, 3])].into() };
    let of_first = (objects.rank() == Rank(0)).then(|| views::rkyv::DArchive::new(&page).map(DBox::new));
    let of_first = of_first.transpose().map_err(|why| why.to_string())?;
    objects.lend(Rank(0), of_first.as_ref(), |archive| {
        let page = archive.view().map_err(|why| why.to_string())?;
        let links =
            page.links.get("there").map(|links| links.iter().map(|link| link.to_native()).sum::<u32>());
        ensure(page.title == "A page" && links == Some(6), || format!("{} {links:?}", page.title))
    })??;
    drop(of_first);
    nothing_is_left(objects)
}
