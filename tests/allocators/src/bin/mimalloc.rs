//! mimalloc as the global allocator.

#[global_allocator]
static ALLOC: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[gosched::main(alloc = off)]
fn main() {
    gosched_allocators_tests::work();
}
