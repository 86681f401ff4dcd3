use super::event_ring::{EventRing, Read, Slot, Writers};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::{mem, ptr, thread};

type Ring = EventRing<7>;

fn ring(slots: usize, writers: Writers) -> &'static Ring {
    let slots: Vec<Slot<7>> = (0..slots).map(|_| Slot::new()).collect();
    Box::leak(Box::new(EventRing::new(Box::leak(slots.into_boxed_slice()), writers)))
}

/// Reads all records of the ring. Each must be whole: seven words with one value.
fn read_all(ring: &Ring) -> Vec<u64> {
    let whole = |number| match ring.read(number) {
        Read::Record(words) => {
            assert_eq!(words, [words[0]; 7], "record {number} is torn");
            Some(words[0])
        }
        Read::NotYet | Read::Overwritten => None,
    };
    (ring.oldest()..ring.next()).filter_map(whole).collect()
}

#[test]
fn a_full_ring_has_the_latest_records() {
    let ring = ring(4, Writers::One);
    assert_eq!(ring.read(0), Read::NotYet);
    (0..10).for_each(|value| assert!(ring.write([value; 7])));
    assert_eq!(read_all(ring), [6, 7, 8, 9]);
    assert_eq!((ring.read(5), ring.read(10)), (Read::Overwritten, Read::NotYet));
}

/// The ring, and the number of records that the signal handler has written.
static IN_HANDLER: AtomicPtr<Ring> = AtomicPtr::new(ptr::null_mut());
static WRITTEN_BY_HANDLER: AtomicU64 = AtomicU64::new(0);

/// The first value that the handler writes: values below are the thread's.
const HANDLER: u64 = 1 << 32;

extern "C" fn write_in_handler(_: libc::c_int) {
    // SAFETY: the ring was stored before the handler was installed, and is never freed.
    let ring = unsafe { &*IN_HANDLER.load(Ordering::Relaxed) };
    for _ in 0..3 {
        let value = HANDLER + WRITTEN_BY_HANDLER.fetch_add(1, Ordering::Relaxed);
        assert!(ring.write([value; 7]));
    }
}

/// A signal that interrupts a writer in the middle of a record, whose handler writes to the same
/// ring: no record is torn, and none is lost.
#[test]
fn a_signal_in_the_middle_of_a_record_does_not_corrupt_it() {
    const RECORDS: u64 = 50_000;
    let ring = ring(1 << 18, Writers::One);
    IN_HANDLER.store(ptr::from_ref(ring).cast_mut(), Ordering::Relaxed);
    // SAFETY: a zeroed action is valid.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    action.sa_sigaction = write_in_handler as *const () as usize;
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: the handler is a signal handler.
    let status = unsafe { libc::sigaction(libc::SIGUSR2, &raw const action, ptr::null_mut()) };
    assert_eq!(status, 0);
    // SAFETY: returns the calling thread.
    let (writer, done) = (unsafe { libc::pthread_self() }, AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                // SAFETY: the writer waits for this thread.
                unsafe { libc::pthread_kill(writer, libc::SIGUSR2) };
                assert!(read_all(ring).len() as u64 <= ring.next());
            }
        });
        let mut value = 0;
        while value < RECORDS || WRITTEN_BY_HANDLER.load(Ordering::Relaxed) < 300 {
            // The ring must hold all records.
            if value < RECORDS {
                assert!(ring.write([value; 7]));
                value += 1;
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    let all = read_all(ring);
    let (handler, thread): (Vec<u64>, Vec<u64>) = all.iter().partition(|value| **value >= HANDLER);
    assert!(thread.into_iter().eq(0..RECORDS));
    let written = WRITTEN_BY_HANDLER.load(Ordering::Relaxed);
    assert!(handler.into_iter().eq(HANDLER..HANDLER + written));
}

#[test]
fn threads_that_share_a_ring_write_whole_records() {
    const THREADS: u64 = 4;
    const RECORDS: u64 = 20_000;
    let (ring, written) = (ring(64, Writers::Many), AtomicU64::new(0));
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let written = &written;
            scope.spawn(move || {
                for record in 0..RECORDS {
                    let is_written = ring.write([thread * RECORDS + record; 7]);
                    written.fetch_add(u64::from(is_written), Ordering::Relaxed);
                }
            });
        }
        while ring.next() < THREADS * RECORDS {
            read_all(ring);
        }
    });
    // A record is dropped only if the ring is overtaken while its writer is interrupted.
    assert!(written.into_inner() >= THREADS * RECORDS / 2);
    assert!(!read_all(ring).is_empty());
}
