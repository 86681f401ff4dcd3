//! A tour of what the crate can do: `cargo run --release --example tour`.

use gosched_fiber::{Routine, Size, Status, stack, support, suspend};
use std::cell::Cell;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

thread_local! {
    static VISITS: Cell<u64> = const { Cell::new(0) };
}

fn main() {
    println!("gosched: a goroutine is a thread to the code inside it\n");
    if let Err(why) = support() {
        println!("{why}\nOn such a system goroutines will run as threads.");
        return;
    }
    let size = Size::from_environment().unwrap_or_else(|error| {
        eprintln!("{error}");
        std::process::exit(1)
    });
    one_goroutine_two_threads(size);
    if cfg!(debug_assertions) {
        println!("2. Stale thread-locals show in an optimised build: run this with --release.\n");
    } else {
        the_disease_and_the_cure(size);
    }
    what_it_costs(size);
}

/// Runs a routine on two threads in turn. If `say`, prints which thread resumes it.
fn to_and_fro<T: Send + 'static>(routine: Routine<T>, say: bool) -> T {
    fn carry<T: Send + 'static>(
        name: &'static str,
        say: bool,
        from: Receiver<Routine<T>>,
        to: Sender<Routine<T>>,
    ) -> std::thread::JoinHandle<Option<T>> {
        std::thread::spawn(move || {
            for mut routine in from {
                if say {
                    println!("   thread {name} resumes it");
                }
                if routine.resume().expect("a stack") == Status::Finished {
                    return routine.into_result().and_then(Result::ok);
                }
                if to.send(routine).is_err() {
                    break;
                }
            }
            None
        })
    }
    let ((to_a, at_a), (to_b, at_b)) = (channel(), channel());
    to_a.send(routine).expect("thread A listens");
    let (a, b) = (carry("A", say, at_a, to_b), carry("B", say, at_b, to_a));
    let results = [a, b].map(|thread| thread.join().expect("no panic"));
    results.into_iter().flatten().next().expect("one of them saw it finish")
}

fn one_goroutine_two_threads(size: Size) {
    println!("1. One goroutine, two threads. It asks std who it is, and counts in a thread-local:");
    let routine = Routine::new(size, || {
        for _ in 0..4 {
            VISITS.set(VISITS.get() + 1);
            println!("      I am {:?}, visit {}", std::thread::current().id(), VISITS.get());
            suspend();
        }
    });
    to_and_fro(routine, true);
    println!();
}

/// Returns how often, after a move, the code uses the address of another thread's thread-local.
#[inline(never)]
fn stale(moves: usize) -> usize {
    #[inline(never)]
    fn address() -> usize {
        VISITS.with(|visits| std::ptr::from_ref(visits) as usize)
    }
    let mut stale = 0;
    for _ in 0..moves {
        VISITS.with(|visits| visits.set(visits.get() + 1));
        suspend();
        let used = VISITS.with(|visits| std::ptr::from_ref(visits) as usize);
        stale += usize::from(std::hint::black_box(used) != address());
    }
    stale
}

fn the_disease_and_the_cure(size: Size) {
    const MOVES: usize = 1000;
    println!("2. {MOVES} moves between two threads, and a thread-local used after each:");
    // SAFETY: no thread-locals — broken on purpose: `stale` compares addresses, and counts in
    // thread-locals of two threads that both live until the end.
    let ill = unsafe { Routine::without_identity(size, || stale(MOVES)) };
    println!(
        "   as every other runtime does it: {} times another thread's",
        to_and_fro(ill, false)
    );
    let well = Routine::new(size, || stale(MOVES));
    println!("   with an identity of its own:    {} times\n", to_and_fro(well, false));
}

fn what_it_costs(size: Size) {
    println!("3. What it costs:");
    let mut routine = Routine::new(size, || {
        loop {
            suspend();
        }
    });
    let resumes = 1_000_000;
    let start = Instant::now();
    for _ in 0..resumes {
        routine.resume().expect("a stack");
    }
    let each = start.elapsed().as_nanos() as f64 / (2 * resumes) as f64;
    println!("   a switch: {each:.0} ns");
    let count = 100_000;
    let start = Instant::now();
    let mut parked: Vec<Routine<()>> = Vec::with_capacity(count);
    for made in 1..=count {
        let mut routine = Routine::new(size, suspend);
        routine.resume().expect("a stack");
        parked.push(routine);
        if made % (count / 10) == 0 {
            eprint!("\r   {made} goroutines");
        }
    }
    eprint!("\r");
    let each = start.elapsed().as_secs_f64() * 1e6 / count as f64;
    println!("   {count} goroutines, started and parked: {each:.1} µs each");
    for routine in &mut parked {
        routine.resume().expect("a stack");
    }
    drop(parked);
    let trimmed = stack::trim(Duration::ZERO);
    println!("   all finished; {trimmed} unused stacks given back to the system");
}
