//! A program for the suite `backend_builds`, which builds it with sanitizers: goroutines that wait,
//! panic and sleep. Prints the runtime's backend. An optional argument selects a defect.

use gosched::runtime::backend;
use gosched::sync::{Mutex, WaitGroup};
use std::cell::UnsafeCell;
use std::sync::Arc;
use std::time::Duration;

#[gosched::main(alloc = off)]
fn main() {
    match std::env::args().nth(1).as_deref() {
        None => work(),
        Some("race") => race(),
        Some("use after free") => use_after_free(),
        Some(other) => panic!("no defect {other}"),
    }
    println!("{:?}", backend());
}

fn work() {
    let (sender, receiver) = gosched::chan::<u64>(4);
    let sum = Arc::new(Mutex::new(0));
    let done = Arc::new(WaitGroup::new());
    for number in 0..50 {
        let (sender, sum, done) = (sender.clone(), sum.clone(), done.clone());
        done.add(1);
        gosched::go(move || {
            sender.send(number).unwrap();
            *sum.lock() += number;
            gosched::time::sleep(Duration::from_millis(1));
            done.done();
        });
    }
    drop(sender);
    assert_eq!(receiver.iter().sum::<u64>(), 1225);
    done.wait();
    assert_eq!(*sum.lock(), 1225);
    let panicked = gosched::go(|| std::panic::panic_any("asked for")).join();
    assert!(panicked.unwrap_err().is_panic());
}

/// A number that two goroutines write without a lock.
#[derive(Debug, Default)]
struct Racy(UnsafeCell<u64>);

// SAFETY: this is the defect.
unsafe impl Sync for Racy {}

fn race() {
    let racy = Arc::new(Racy::default());
    let count = |racy: Arc<Racy>| {
        move || {
            for _ in 0..1000 {
                // SAFETY: none: this is the defect.
                unsafe { *racy.0.get() += 1 };
                gosched::yield_now();
            }
        }
    };
    let other = gosched::go(count(racy.clone()));
    count(racy)();
    other.join().unwrap();
}

fn use_after_free() {
    let read = gosched::go(|| {
        let freed = Box::into_raw(Box::new([17u8; 100]));
        // SAFETY: from `Box::into_raw` above.
        drop(unsafe { Box::from_raw(freed) });
        // SAFETY: none: this is the defect.
        unsafe { std::ptr::read_volatile(freed.cast::<u8>()) }
    });
    println!("{}", read.join().unwrap());
}
