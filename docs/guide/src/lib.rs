//! The pages of the guide. Their programs are compiled by `cargo test`.

#![doc = include_str!("../getting-started.md")]
#![doc = include_str!("../segments.md")]
#![doc = include_str!("../messages.md")]
#![doc = include_str!("../larger-than-dram.md")]
#![doc = include_str!("../objects.md")]
#![doc = include_str!("../tasks.md")]
#![doc = include_str!("../running.md")]
#![doc = include_str!("../from-c.md")]
#![doc = include_str!("../performance.md")]
#![doc = include_str!("../troubleshooting.md")]
