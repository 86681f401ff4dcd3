//! A program without an `alloc` option: `#[gosched::main]` installs the allocation cache.

#[gosched::main]
fn main() {
    let text = gosched::go(|| format!("{:>100}", "in a goroutine")).join().unwrap();
    assert_eq!(text.len(), 100);
    assert!(gosched::alloc::stats().in_use > 0, "{:?}", gosched::alloc::stats());
    println!("installed");
}
