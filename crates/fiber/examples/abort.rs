//! A program built with `panic = "abort"`: goroutines run, their frames can be listed, and a panic
//! in a goroutine ends the process with the message and frames of a panic. `ci/programs` runs it.

use gosched_fiber::{Routine, Size, Status, suspend};

#[inline(never)]
fn waits_here() {
    suspend();
    std::hint::black_box(());
}

#[inline(never)]
fn panics_here() {
    panic!("as asked");
}

fn main() {
    let size = Size::from_environment().expect("a stack size");
    let mut routine = Routine::new(size, || {
        waits_here();
        7
    });
    assert_eq!(routine.resume(), Ok(Status::Suspended));
    println!("parked in {} frames", routine.backtrace().len());
    assert!(routine.backtrace().len() >= 3);
    assert_eq!(routine.resume(), Ok(Status::Finished));
    assert_eq!(routine.into_result().and_then(Result::ok), Some(7));
    let mut routine = Routine::new(size, panics_here);
    let _ = routine.resume();
    println!("a panic must not come back here");
}
