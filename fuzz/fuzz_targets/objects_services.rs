#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| vgas_objects::fuzzing::objects_services(bytes));
