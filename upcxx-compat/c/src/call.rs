//! Calling a C handler with as many arguments as its message has.

use crate::job::RawHandler;
use libc::c_void;

/// Calls `$handler`, a function of `$fixed` and then `$count` 32-bit words, with the words of `$words`, which are signed in C.
macro_rules! call_with {
    ($handler:expr, ($($fixed:expr => $Fixed:ty),*), $words:expr) => {
        call_with!(@each $handler, ($($fixed => $Fixed),*), $words,
            0 [],
            1 [0],
            2 [0 1],
            3 [0 1 2],
            4 [0 1 2 3],
            5 [0 1 2 3 4],
            6 [0 1 2 3 4 5],
            7 [0 1 2 3 4 5 6],
            8 [0 1 2 3 4 5 6 7],
            9 [0 1 2 3 4 5 6 7 8],
            10 [0 1 2 3 4 5 6 7 8 9],
            11 [0 1 2 3 4 5 6 7 8 9 10],
            12 [0 1 2 3 4 5 6 7 8 9 10 11],
            13 [0 1 2 3 4 5 6 7 8 9 10 11 12],
            14 [0 1 2 3 4 5 6 7 8 9 10 11 12 13],
            15 [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14],
            16 [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15])
    };
    (@each $handler:expr, $fixed:tt, $words:expr, $($count:literal [$($index:literal)*]),*) => {
        match $words.len() {
            $( $count => call_with!(@one $handler, $fixed, $words, [$($index)*]), )*
            // The endpoint refuses messages with more (`ARGUMENTS_MAX`).
            count => unreachable!("a message with {count} arguments"),
        }
    };
    (@one $handler:expr, ($($fixed:expr => $Fixed:ty),*), $words:expr, [$($index:literal)*]) => {{
        type Function = unsafe extern "C" fn($($Fixed,)* $(call_with!(@word $index)),*);
        // SAFETY: rule 3: the client registered a function of this type.
        unsafe {
            let function: Function = std::mem::transmute::<RawHandler, Function>($handler);
            function($($fixed,)* $($words[$index] as i32),*)
        }
    }};
    (@word $index:literal) => { i32 };
}

/// Runs the handler of a short message.
pub(crate) fn short(handler: RawHandler, token: *mut c_void, words: &[u32]) {
    call_with!(handler, (token => *mut c_void), words)
}

/// Runs the handler of a medium or long message.
pub(crate) fn with_payload(
    handler: RawHandler,
    token: *mut c_void,
    address: *mut c_void,
    bytes: usize,
    words: &[u32],
) {
    call_with!(handler, (token => *mut c_void, address => *mut c_void, bytes => usize), words)
}
