//! A goroutine that computes at instructions whose addresses are known exactly.

use gosched::{go, runtime, yield_now};
use gosched_tests::wait::until;
use std::arch::asm;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

static STOP: AtomicBool = AtomicBool::new(false);
/// Addresses of the two instructions of the loop.
static PLACES: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

#[inline(never)]
fn spins_in_place() {
    let places = PLACES.each_ref().map(AtomicUsize::as_ptr);
    // SAFETY: writes two words and reads a byte, all of them atomics, with one aligned access each.
    unsafe {
        asm!(
            "lea {place}, [rip + 2f]",
            "mov [{first}], {place}",
            "lea {place}, [rip + 3f]",
            "mov [{second}], {place}",
            "2: cmp byte ptr [{stop}], 0",
            "3: je 2b",
            place = out(reg) _,
            first = in(reg) places[0],
            second = in(reg) places[1],
            stop = in(reg) STOP.as_ptr(),
        );
    }
}

/// Returns the offset after `+0x` in the first line that contains `function`, or in the line
/// `line_after` lines below.
fn offset(text: &str, function: &str, line_after: usize) -> Option<usize> {
    let mut lines = text.lines().skip_while(|line| !line.contains(function));
    let (_, rest) = lines.nth(line_after)?.rsplit_once("+0x")?;
    let digits = rest.split(|c: char| !c.is_ascii_hexdigit()).next()?;
    usize::from_str_radix(digits, 16).ok()
}

/// Dumps show the offset of the interrupted instruction, not of the instruction after it.
pub(crate) fn program() {
    let spins = go(spins_in_place);
    while PLACES[1].load(SeqCst) == 0 {
        yield_now();
    }
    let start = spins_in_place as fn() as usize;
    let places = PLACES.each_ref().map(|place| place.load(SeqCst) - start);
    let mut seen = [0, 0];
    // A goroutine whose thread has no CPU for long does not answer.
    until("it has answered often enough", || {
        let (text, folded) = (runtime::dump(), runtime::dump_folded());
        let offsets =
            [offset(&text, "spins_in_place(...)", 1), offset(&folded, "spins_in_place+0x", 0)];
        for (offset, seen) in offsets.into_iter().zip(&mut seen) {
            let Some(offset) = offset else { continue };
            assert!(places.contains(&offset), "{offset:#x} of {places:x?}\n{text}\n{folded}");
            *seen += 1;
        }
        seen.iter().all(|seen| *seen > 10)
    });
    STOP.store(true, SeqCst);
    spins.join().unwrap();
    println!("text {} folded {}", seen[0], seen[1]);
}
