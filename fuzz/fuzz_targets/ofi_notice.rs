#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| vgas_rma::fuzzing::ofi_notice(bytes));
