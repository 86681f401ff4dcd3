//! Installs the allocation cache as the global allocator of every suite. Debug builds enable its
//! checks.

#[global_allocator]
static ALLOC: gosched::alloc::Alloc = gosched::alloc::Alloc::new();
