//! Combining elements with functions of the client.

use super::lock;
use crate::fatal::fatal;
use libc::{c_int, c_uint, c_void};
use std::borrow::Cow;
use std::sync::Mutex;
use vgas_rma::collective::{Combiner, View};

/// `gasnet_coll_reduce_fn_t`.
type Function = unsafe extern "C" fn(
    results: *mut c_void,
    result_count: usize,
    left: *const c_void,
    left_count: usize,
    right: *const c_void,
    element_bytes: usize,
    flags: c_int,
    argument: c_int,
);

/// `gasnet_coll_fn_entry_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FunctionEntry {
    function: Option<Function>,
    flags: c_uint,
}

/// May be called in handlers.
const AM_SAFE: c_uint = 1 << 0;

/// The functions given to `gasnet_coll_init`: a copy, since the table may be on the caller's stack.
static FUNCTIONS: Mutex<Vec<FunctionEntry>> = Mutex::new(Vec::new());

/// Alignment that every element type of C is content with.
const ALIGNMENT: usize = 16;

/// Makes the functions of a table the ones that reductions name by index.
pub(super) fn register(table: &[FunctionEntry]) {
    *lock(&FUNCTIONS) = table.to_vec();
}

/// A function, and its operand type.
#[derive(Clone, Copy)]
pub(super) struct Reduction {
    function: Function,
    flags: c_uint,
    argument: c_int,
    element_bytes: usize,
}

impl Reduction {
    /// The function with that index. The job ends if there is none.
    pub(super) fn new(index: i32, argument: c_int, element_bytes: usize) -> Self {
        let functions = lock(&FUNCTIONS);
        let entry = usize::try_from(index).ok().and_then(|index| functions.get(index).copied());
        let Some(FunctionEntry { function: Some(function), flags }) = entry else {
            let count = functions.len();
            fatal(format_args!("reduction function {index} of the {count} given to gasnet_coll_init"));
        };
        Self { function, flags, argument, element_bytes }
    }

    /// Returns true if the function must not run in handlers.
    pub(super) fn needs_client(&self) -> bool {
        self.flags & AM_SAFE == 0
    }

    /// Combines two rows of elements into a third.
    pub(super) fn combine(&self, left: &[u8], right: &[u8]) -> Vec<u8> {
        if self.element_bytes == 0 || left.is_empty() {
            return Vec::new();
        }
        let (left, right) = (aligned(left), aligned(right));
        // The allocator aligns memory of this size as C's types ask for, in practice; what it returned is looked at.
        let mut results = vec![0; left.len().max(ALIGNMENT)];
        assert!(results.as_ptr().addr().is_multiple_of(ALIGNMENT), "malloc aligns as max_align_t");
        results.truncate(left.len());
        self.apply(left.as_ptr().cast(), right.as_ptr().cast(), results.as_mut_ptr().cast(), left.len());
        results
    }

    /// Calls the function once for all elements in `bytes` bytes, as GASNet does. The results lie apart from
    /// the operands, or on the left ones.
    fn apply(&self, left: *const c_void, right: *const c_void, results: *mut c_void, bytes: usize) {
        let count = bytes / self.element_bytes;
        // SAFETY: rule 3: the client registered a function of this type; it gets so many elements of each.
        unsafe {
            (self.function)(
                results,
                count,
                left,
                count,
                right,
                self.element_bytes,
                self.flags as c_int,
                self.argument,
            );
        }
    }
}

// SAFETY: the views are used in the call only; so does the client's function with what it gets (rule 3).
unsafe impl Combiner for Reduction {
    fn combine(&self, left: View, right: View, result: View) {
        if self.element_bytes == 0 || result.bytes() == 0 {
            return;
        }
        // A type's alignment divides its size.
        let alignment = ALIGNMENT.min(1 << self.element_bytes.trailing_zeros());
        let is_aligned = |view: View| view.address().addr().is_multiple_of(alignment);
        if [left, right, result].into_iter().all(is_aligned) && (result == left || !result.overlaps(left)) {
            let (left, right) = (left.address().cast(), right.address().cast());
            return self.apply(left, right, result.address().cast(), result.bytes());
        }
        // Functions may rely on results, and operands, that are aligned.
        result.write(&Self::combine(self, &left.read(), &right.read()));
    }

    fn element_bytes(&self) -> usize {
        self.element_bytes
    }

    fn needs_caller(&self) -> bool {
        self.needs_client()
    }
}

/// Returns the same bytes at an alignment for elements of any type.
fn aligned(bytes: &[u8]) -> Cow<'_, [u8]> {
    if bytes.as_ptr().addr().is_multiple_of(ALIGNMENT) {
        return bytes.into();
    }
    let mut copy = Vec::with_capacity(bytes.len().max(ALIGNMENT));
    copy.extend_from_slice(bytes);
    assert!(copy.as_ptr().addr().is_multiple_of(ALIGNMENT), "malloc aligns as max_align_t");
    copy.into()
}
