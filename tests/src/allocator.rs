//! Every suite runs with the allocation cache; in debug builds, with its checks.

#[global_allocator]
static ALLOC: gosched::alloc::Alloc = gosched::alloc::Alloc::new();
