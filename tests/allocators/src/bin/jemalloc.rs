//! jemalloc as the global allocator.

#[global_allocator]
static ALLOC: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

#[gosched::main(alloc = off)]
fn main() {
    gosched_allocators_tests::work();
}
