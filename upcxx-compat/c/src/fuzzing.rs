//! Entry point for a fuzz target: the decoder of the C interface's additions to messages, on arbitrary bytes.
//! It panics if the decoder does, or if the decoded value does not round-trip. Built only for tests and
//! fuzzing (`fuzz/README.md`); not a public interface.

use crate::long::{Carried, header};

/// A long message that is carried, or announces what was put.
pub fn c_long(bytes: &[u8]) {
    let Some(found) = Carried::decode(bytes) else { return };
    assert!(found.body.is_none_or(|body| body.len() == found.bytes));
    let address = std::ptr::without_provenance(found.address);
    let header = header(found.handler, address, found.bytes, found.body.is_some());
    let again = [&header, found.body.unwrap_or_default()].concat();
    assert_eq!(again, bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use vgas_testing::replay;

    fn message(address: usize, bytes: usize, body: Option<&[u8]>) -> Vec<u8> {
        let header = header(200, std::ptr::without_provenance(address), bytes, body.is_some());
        [&header, body.unwrap_or_default()].concat()
    }

    #[test]
    fn any_bytes_are_a_long_message_or_refused() {
        let mut flagged = message(4096, 3, Some(b"abc"));
        flagged[17] = 2;
        replay(
            "c_long",
            c_long,
            &[
                ("carried", message(4096, 3, Some(b"abc"))),
                ("empty", message(0, 0, Some(b""))),
                ("announced", message(8192, 1 << 20, None)),
                ("shorter-than-it-says", message(4096, 4, Some(b"abc"))),
                ("announced-with-bytes", [message(4096, 3, None), b"abc".to_vec()].concat()),
                ("everywhere", message(usize::MAX, usize::MAX, None)),
                ("flagged", flagged),
                ("cut", message(4096, 3, None)[..31].to_vec()),
            ],
        );
    }

    /// Goal: nothing is ignored: excess bytes make a message invalid.
    #[test]
    fn what_is_not_whole_is_refused() {
        let refused = [
            message(4096, 4, Some(b"abc")),
            message(4096, 2, Some(b"abc")),
            [message(4096, 3, None), b"abc".to_vec()].concat(),
            message(4096, 0, None)[..31].to_vec(),
        ];
        assert!(refused.iter().all(|bytes| Carried::decode(bytes).is_none()));
        for place in 17..32 {
            let mut odd = message(4096, 0, None);
            odd[place] = 2;
            assert!(Carried::decode(&odd).is_none(), "byte {place}");
        }
        let whole = message(4096, 3, Some(b"abc"));
        assert_eq!(Carried::decode(&whole).and_then(|found| found.body), Some(&b"abc"[..]));
    }
}
