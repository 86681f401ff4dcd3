//! What the programs do: goroutines allocate, free what others allocated, panic, and end.

use gosched::runtime::backend;
use std::hint::black_box;

/// Goroutines that live at the same time: each has a heap of its own in the allocator.
const GOROUTINES: u64 = 1000;

/// Runs goroutines, twice, so that the second ones get stacks that were used before. Prints what
/// goroutines are.
///
/// # Panics
/// A result is wrong.
pub fn work() {
    for _ in 0..2 {
        let (sender, receiver) = gosched::chan::<Vec<u64>>(16);
        let handles: Vec<_> = (0..GOROUTINES)
            .map(|number| {
                let (sender, receiver) = (sender.clone(), receiver.clone());
                gosched::go(move || {
                    sender.send((0..100).map(|each| each * number).collect()).unwrap();
                    let text = black_box(format!("{number:>1000}"));
                    gosched::yield_now();
                    let of_another = receiver.recv().unwrap();
                    assert_eq!(of_another.len() + text.len(), 1100);
                    if number % 100 == 0 {
                        std::panic::resume_unwind(Box::new(text));
                    }
                    of_another[1]
                })
            })
            .collect();
        let results: Vec<_> = handles.into_iter().map(gosched::JoinHandle::join).collect();
        let panics = results.iter().filter(|result| result.is_err()).count();
        assert_eq!(panics as u64, GOROUTINES / 100);
    }
    println!("{:?}", backend());
}
