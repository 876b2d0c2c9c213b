#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| vgas_nvm::fuzzing::nvm_map_block(bytes));
