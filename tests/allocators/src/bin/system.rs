//! The system's allocator, or an allocator loaded by `LD_PRELOAD`.

#[gosched::main(alloc = off)]
fn main() {
    gosched_allocators_tests::work();
}
