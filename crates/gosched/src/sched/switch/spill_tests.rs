use super::*;
use crate::protocol::run_queue::TimeSlice;
use std::ptr;

/// Four queues with a capacity of 4, as in the documents' scenarios, and a global queue.
struct World {
    gs: Vec<&'static G>,
    queues: [RunQueue<G, 4>; 4],
    global: GList,
}

impl World {
    fn new() -> World {
        World {
            gs: (0..16).map(|_| &*Box::leak(Box::new(G::new()))).collect(),
            queues: std::array::from_fn(|_| RunQueue::new()),
            global: GList::new(),
        }
    }

    fn number(&self, g: &'static G) -> usize {
        self.gs.iter().position(|other| ptr::eq(*other, g)).unwrap()
    }

    /// Does what `go` does on P `p`: makes the G the next to run, and moves the G that was next to
    /// the tail.
    fn spawn(&mut self, p: usize, number: usize) {
        if let Some(kicked) = self.queues[p].push_next(self.gs[number]) {
            self.push(p, kicked);
        }
    }

    fn push(&mut self, p: usize, g: &'static G) {
        if !self.queues[p].push(g) {
            let global = &mut self.global;
            spill_half(&self.queues[p], g, |half, _| {
                half.iter().flatten().for_each(|g| global.push_back(g));
                global.push_back(g);
            });
        }
    }

    fn local(&mut self, p: usize) -> Vec<usize> {
        let taken: Vec<(&'static G, TimeSlice)> =
            std::iter::from_fn(|| self.queues[p].take()).collect();
        for &(g, slice) in &taken {
            match slice {
                TimeSlice::New => assert!(self.queues[p].push(g)),
                TimeSlice::Inherited => assert!(self.queues[p].push_next(g).is_none()),
            }
        }
        taken.iter().map(|(g, _)| self.number(g)).collect()
    }

    fn global(&mut self) -> Vec<usize> {
        let taken: Vec<&'static G> = std::iter::from_fn(|| self.global.pop_front()).collect();
        taken.iter().for_each(|g| self.global.push_back(g));
        taken.iter().map(|g| self.number(g)).collect()
    }
}

#[test]
fn a_batch_is_a_share_of_the_global_queue_plus_one_and_at_most_half_a_local_queue() {
    let table = [
        (0, 1, 0),
        (1, 1, 1),
        (1, 4, 1),
        (3, 4, 1),
        (4, 4, 2),
        (10, 1, 10),
        (100, 4, 26),
        (1000, 1, 128),
        (1000, 4, 128),
        (508, 4, 128),
        (507, 4, 127),
    ];
    for (queued, procs, wanted) in table {
        assert_eq!(batch_size(queued, procs, 256), wanted, "{queued} among {procs}");
    }
    assert_eq!(batch_size(3, 4, 4), 1, "scenario 7");
}

// S170, S171
#[test]
fn scenario_1_and_2_a_new_g_stays_with_its_p_and_runs_there_next() {
    let mut world = World::new();
    world.spawn(0, 2);
    assert_eq!(world.local(0), [2]);
    let (g, slice) = world.queues[0].take().unwrap();
    assert_eq!((world.number(g), slice), (2, TimeSlice::Inherited));
}

// S172, S173, S174
#[test]
fn scenario_3_to_5_a_full_queue_spills_its_older_half_and_the_displaced_g() {
    let mut world = World::new();
    // With `run_next` the ring is full one spawn later than in the documents: it holds G3 to G6,
    // and G7 is next.
    for number in 3..=7 {
        world.spawn(0, number);
    }
    assert_eq!(world.local(0), [7, 3, 4, 5, 6]);
    assert_eq!(world.global(), []);
    world.spawn(0, 8);
    assert_eq!(world.global(), [3, 4, 7], "in order, not shuffled");
    assert_eq!(world.local(0), [8, 5, 6]);
}

// S173: without `run_next`, as in the documents.
#[test]
fn scenario_4_a_full_queue_without_run_next_spills_its_older_half_and_the_new_g() {
    let mut world = World::new();
    for number in 3..=7 {
        world.push(0, world.gs[number]);
    }
    assert_eq!(world.global(), [3, 4, 7]);
    assert_eq!(world.local(0), [5, 6]);
}

// S176
#[test]
fn scenario_7_a_spinner_takes_one_of_three_global_gs_with_four_ps() {
    let mut world = World::new();
    [3, 4, 7].iter().for_each(|&number| world.global.push_back(world.gs[number]));
    let g = refill(&world.queues[1], &mut world.global, 4).unwrap();
    assert_eq!(world.number(g), 3);
    assert_eq!(world.local(1), []);
    assert_eq!(world.global(), [4, 7]);
}

// S177
#[test]
fn scenario_8_a_thief_steals_half_from_the_head_and_runs_the_last_stolen_g() {
    let mut world = World::new();
    [5, 6, 8].iter().for_each(|&number| assert!(world.queues[0].push(world.gs[number])));
    let g = world.queues[0].steal_into(&world.queues[1], None).unwrap().g;
    assert_eq!(world.number(g), 6);
    assert_eq!(world.local(1), [5]);
    assert_eq!(world.local(0), [8]);
}

// S177 with `run_next`: G8 is not stolen.
#[test]
fn scenario_8_the_g_in_run_next_is_not_stolen_with_the_others() {
    let mut world = World::new();
    [5, 6].iter().for_each(|&number| assert!(world.queues[0].push(world.gs[number])));
    world.spawn(0, 8);
    let g = world.queues[0].steal_into(&world.queues[1], None).unwrap().g;
    assert_eq!(world.number(g), 5);
    assert_eq!(world.local(1), []);
    assert_eq!(world.local(0), [8, 6]);
}

#[test]
fn refill_returns_the_first_g_of_the_share_and_queues_the_rest() {
    let mut world = World::new();
    (0..6).for_each(|number| world.global.push_back(world.gs[number]));
    let g = refill(&world.queues[2], &mut world.global, 1).unwrap();
    assert_eq!(world.number(g), 0);
    assert_eq!(world.local(2), [1], "half a queue of 4 at most");
    assert_eq!(world.global(), [2, 3, 4, 5]);
}
