#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| vgasnet::fuzzing::c_long(bytes));
