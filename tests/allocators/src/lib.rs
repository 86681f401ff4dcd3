//! The work of each program: goroutines allocate, free each other's memory, panic, and end.

use gosched::runtime::backend;
use std::hint::black_box;

/// Number of goroutines alive at the same time. Each goroutine has its own heap in the allocator.
const GOROUTINES: u64 = 1000;

/// Runs the goroutines twice, so that the second round reuses the stacks of the first. Prints the
/// runtime's backend.
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
