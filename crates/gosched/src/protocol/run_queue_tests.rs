use super::run_queue::{CAPACITY, RunQueue, TimeSlice};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// An item to queue. It counts how often it was taken.
struct Thing(AtomicUsize);

fn things(count: usize) -> &'static [Thing] {
    Box::leak((0..count).map(|_| Thing(AtomicUsize::new(0))).collect())
}

fn index(all: &'static [Thing], one: &'static Thing) -> usize {
    all.iter().position(|thing| ptr::eq(thing, one)).unwrap()
}

fn drain<const CAP: usize>(
    queue: &RunQueue<Thing, CAP>,
    all: &'static [Thing],
) -> Vec<(usize, TimeSlice)> {
    std::iter::from_fn(|| queue.take()).map(|(thing, slice)| (index(all, thing), slice)).collect()
}

// S66: push 3, take 1.
#[test]
fn counters_only_grow() {
    let all = things(3);
    let queue = RunQueue::<Thing, 256>::new();
    all.iter().for_each(|thing| assert!(queue.push(thing)));
    assert_eq!(queue.counters(), (0, 3));
    queue.take().unwrap();
    assert_eq!(queue.counters(), (1, 3));
}

// S65: 256 items, and one in `run_next`.
#[test]
fn a_run_queue_holds_256_items_and_one_in_run_next() {
    let all = things(258);
    let queue = RunQueue::<Thing, CAPACITY>::new();
    for thing in &all[..256] {
        assert!(queue.push(thing));
    }
    assert!(queue.push_next(&all[256]).is_none());
    assert!(!queue.push(&all[257]));
    assert_eq!(queue.len(), 256);
    let taken = drain(&queue, all);
    assert_eq!(taken[0], (256, TimeSlice::Inherited));
    assert!(taken[1..].iter().map(|taken| taken.0).eq(0..256));
    assert!(taken[1..].iter().all(|taken| taken.1 == TimeSlice::New));
}

// S67, S71, S72, S73
#[test]
fn the_latest_item_runs_next_and_kicks_the_previous_item_to_the_tail() {
    let all = things(3);
    let queue = RunQueue::<Thing, 4>::new();
    for thing in all {
        if let Some(kicked) = queue.push_next(thing) {
            assert!(queue.push(kicked));
        }
    }
    assert_eq!(
        drain(&queue, all),
        [(2, TimeSlice::Inherited), (0, TimeSlice::New), (1, TimeSlice::New)]
    );
    assert!(queue.is_empty() && !queue.has_run_next());
}

// S66: the counters may wrap.
#[test]
fn a_run_queue_keeps_working_when_its_counters_wrap() {
    let all = things(4);
    let queue = RunQueue::<Thing, 4>::starting_at(u32::MAX - 1);
    for round in 0..5 {
        all.iter().for_each(|thing| assert!(queue.push(thing)));
        assert!(!queue.push(&all[0]), "the queue is full in round {round}");
        assert_eq!(queue.len(), 4);
        let thief = RunQueue::<Thing, 4>::starting_at(u32::MAX - round);
        let stolen = queue.steal_into(&thief, None).unwrap();
        assert_eq!(index(all, stolen.g), 1);
        assert_eq!((stolen.count, stolen.len), (2, 4));
        assert_eq!(stolen.position, (u32::MAX - 1).wrapping_add(4 * round));
        assert_eq!(stolen.to, u32::MAX - round);
        assert_eq!(drain(&thief, all), [(0, TimeSlice::New)]);
        assert_eq!(drain(&queue, all), [(2, TimeSlice::New), (3, TimeSlice::New)]);
    }
}

// S75
#[test]
fn take_half_takes_the_oldest_half_of_a_full_queue() {
    let all = things(5);
    let queue = RunQueue::<Thing, 4>::new();
    let mut half = [None; 4];
    assert_eq!(queue.take_half(&mut half), None, "the queue is not full");
    all[..4].iter().for_each(|thing| assert!(queue.push(thing)));
    assert_eq!(queue.take_half(&mut half), Some((2, 0)));
    let out: Vec<usize> = half[..2].iter().flatten().map(|thing| index(all, thing)).collect();
    assert_eq!(out, [0, 1]);
    assert_eq!(drain(&queue, all), [(2, TimeSlice::New), (3, TimeSlice::New)]);
}

// S97 to S105, as Go's test of stealing: for each length a thief takes half, rounded up, and each
// item is taken once.
#[test]
fn a_thief_takes_half_rounded_up() {
    for len in 0..=256 {
        let all = things(len);
        let (victim, thief) = (RunQueue::<Thing, 256>::new(), RunQueue::<Thing, 256>::new());
        all.iter().for_each(|thing| assert!(victim.push(thing)));
        let first = victim.steal_into(&thief, None).map(|stolen| stolen.g);
        let stolen = thief.len() + usize::from(first.is_some());
        assert_eq!(stolen, len - len / 2);
        let mut taken: Vec<usize> = first.into_iter().map(|thing| index(all, thing)).collect();
        taken.extend(drain(&thief, all).iter().map(|taken| taken.0));
        taken.extend(drain(&victim, all).iter().map(|taken| taken.0));
        taken.sort_unstable();
        assert!(taken.into_iter().eq(0..len));
    }
}

// S105
#[test]
fn the_item_in_run_next_is_stolen_last_and_only_after_a_pause() {
    static PAUSED: AtomicUsize = AtomicUsize::new(0);
    fn pause() {
        PAUSED.fetch_add(1, Ordering::Relaxed);
    }
    let all = things(2);
    let (victim, thief) = (RunQueue::<Thing, 4>::new(), RunQueue::<Thing, 4>::new());
    victim.push_next(&all[0]);
    assert!(victim.push(&all[1]));
    let steal = || {
        let stolen = victim.steal_into(&thief, Some(pause))?;
        Some((index(all, stolen.g), stolen.count))
    };
    assert_eq!(steal(), Some((1, 1)));
    assert_eq!(
        PAUSED.load(Ordering::Relaxed),
        0,
        "the ring had an item, so the thief does not pause"
    );
    assert!(victim.steal_into(&thief, None).is_none());
    assert_eq!(steal(), Some((0, 0)));
    assert_eq!(PAUSED.load(Ordering::Relaxed), 1);
    assert!(victim.is_empty());
}

// S68: one producer, many takers, with real threads.
#[test]
fn an_owner_and_three_thieves_take_every_item_once() {
    const COUNT: usize = 200_000;
    let all = things(COUNT);
    let victim = RunQueue::<Thing, 16>::starting_at(u32::MAX - 1000);
    let left = AtomicUsize::new(COUNT);
    let taken = |thing: &'static Thing| {
        thing.0.fetch_add(1, Ordering::Relaxed);
        left.fetch_sub(1, Ordering::Relaxed);
    };
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let own = RunQueue::<Thing, 16>::new();
                while left.load(Ordering::Relaxed) > 0 {
                    let stolen = victim.steal_into(&own, Some(std::hint::spin_loop));
                    stolen.into_iter().for_each(|stolen| taken(stolen.g));
                    while let Some((thing, _)) = own.take() {
                        taken(thing);
                    }
                }
            });
        }
        let mut half = [None; 16];
        for thing in all {
            let Some(kicked) = victim.push_next(thing) else { continue };
            while !victim.push(kicked) {
                if let Some((thing, _)) = victim.take() {
                    taken(thing);
                }
                let count = victim.take_half(&mut half).map_or(0, |(count, _)| count);
                half[..count].iter().copied().flatten().for_each(taken);
            }
        }
        while let Some((thing, _)) = victim.take() {
            taken(thing);
        }
    });
    assert!(all.iter().all(|thing| thing.0.load(Ordering::Relaxed) == 1));
}
