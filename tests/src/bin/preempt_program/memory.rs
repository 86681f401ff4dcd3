//! C's malloc, used by goroutines that are preempted inside it and by threads that want the same
//! lock.

use crate::harness::{self, Heartbeat, spawn_group};
use gosched_tests::alloc_blocks::Random;
use std::ptr::NonNull;

/// A block from malloc, filled with one byte.
struct Piece {
    start: NonNull<u8>,
    size: usize,
    mark: u8,
}

impl Piece {
    fn new(size: usize, mark: u8) -> Piece {
        // SAFETY: malloc accepts any size.
        let start = unsafe { libc::malloc(size) };
        let piece = Piece { start: NonNull::new(start.cast()).expect("memory"), size, mark };
        piece.fill();
        piece
    }

    fn fill(&self) {
        // SAFETY: the block is ours, of this size.
        unsafe { self.start.as_ptr().write_bytes(self.mark, self.size) };
    }

    fn check(&self, count: usize) {
        // SAFETY: the block is ours and was filled.
        let bytes = unsafe { std::slice::from_raw_parts(self.start.as_ptr(), count) };
        let wrong = bytes.iter().position(|&byte| byte != self.mark);
        assert_eq!(wrong, None, "a block of {} bytes has changed", self.size);
    }

    fn resize(&mut self, size: usize) {
        // SAFETY: the block is from malloc, and only the returned block is used from here on.
        let start = unsafe { libc::realloc(self.start.as_ptr().cast(), size) };
        self.start = NonNull::new(start.cast()).expect("memory");
        self.check(size.min(self.size));
        self.size = size;
        self.fill();
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.check(self.size);
        // SAFETY: the block is from malloc, and not used again.
        unsafe { libc::free(self.start.as_ptr().cast()) };
    }
}

/// Returns a size from 16 bytes to 200 KB; small sizes are more likely.
fn size(random: &mut Random) -> usize {
    let largest = [64, 512, 4096, 30_000, 200_000][random.below(5)];
    16 + random.below(largest - 15)
}

/// Allocates, resizes and frees blocks until the program is over. Returns the number of operations.
pub(crate) fn take_and_give(seed: usize, lane: &Heartbeat) -> u64 {
    let mut random = Random::new(seed as u64);
    let mut pieces: Vec<Option<Piece>> = (0..32).map(|_| None).collect();
    while !harness::is_over() || lane.steps() == 0 {
        let at = random.below(pieces.len());
        let mark = (seed * 31 + at) as u8;
        match &mut pieces[at] {
            Some(piece) if random.below(3) == 0 => piece.resize(size(&mut random)),
            Some(_) => pieces[at] = None,
            None => pieces[at] = Some(Piece::new(size(&mut random), mark)),
        }
        lane.step();
    }
    lane.steps()
}

/// Goroutines and threads share one arena.
pub(crate) fn malloc() {
    let threads: Vec<_> = (0..2)
        .map(|number| {
            let lane = Heartbeat::new("a thread in malloc");
            std::thread::spawn(move || take_and_give(100 + number, &lane))
        })
        .collect();
    let goroutines = spawn_group("a goroutine in malloc", 10, take_and_give);
    let trimmers =
        spawn_group("a goroutine that holds malloc's lock for long", 2, |_, lane: &Heartbeat| {
            while !harness::is_over() || lane.steps() == 0 {
                // SAFETY: has no precondition.
                unsafe { libc::malloc_trim(0) };
                lane.step();
            }
            lane.steps()
        });
    harness::wait_for_and_stop(|counts| counts.outside + counts.deferred > 0);
    let trims = trimmers.join().into_iter().min().unwrap();
    let least = goroutines.join().into_iter().min().unwrap();
    threads.into_iter().for_each(|thread| assert!(thread.join().unwrap() > 0));
    println!("least {} trims {trims}", least.min(trims));
}
