//! Which CPUs are close to each other, and in which order a thief tries its victims.
//!
//! Two CPUs of one NUMA node share memory and, mostly, a last-level cache: a G stolen within the
//! node finds its data near. [`Topology`] knows the nodes; [`StealOrder`] visits the Ps of the
//! thief's node first.
//!
//! Within that, the order is a walk around the ring of Ps from a random start with a random step
//! that has no common divisor with their number. It meets every P once, remembers nothing, and two
//! thieves rarely follow each other.

use std::fs;
use std::ops::RangeInclusive;
use std::path::Path;

/// CPU numbers from here on are garbage: Linux stops at 8192.
const CPU_NUMBER_LIMIT: usize = 1 << 16;

/// The NUMA nodes of the machine, as they were when read: a CPU that comes later is unknown.
#[derive(Debug)]
pub(crate) struct Topology {
    nodes: usize,
    /// Indexed by CPU; shorter than the number of CPUs if the last ones are in node 0.
    node_by_cpu: Box<[u16]>,
}

impl Topology {
    /// Reads `/sys/devices/system/node`, looked up below `root`. Nodes that cannot be read, or have
    /// memory only, are left out.
    pub(crate) fn read(root: &Path) -> Topology {
        let mut node_by_cpu = Vec::new();
        let mut nodes = 0;
        for ranges in cpus_by_node(&root.join("sys/devices/system/node")) {
            let Ok(node) = u16::try_from(nodes) else { break };
            for cpu in ranges.into_iter().flatten() {
                if node_by_cpu.len() <= cpu {
                    node_by_cpu.resize(cpu + 1, 0);
                }
                node_by_cpu[cpu] = node;
            }
            nodes += 1;
        }
        Topology { nodes: nodes.max(1), node_by_cpu: node_by_cpu.into_boxed_slice() }
    }

    /// How many nodes have CPUs; 1 when unknown.
    pub(crate) fn nodes(&self) -> usize {
        self.nodes
    }

    /// The node of a CPU, below [`Topology::nodes`]; 0 when unknown. The nodes that have CPUs are
    /// counted in the kernel's order but without its holes, so this can be an index.
    pub(crate) fn node_of(&self, cpu: usize) -> usize {
        self.node_by_cpu.get(cpu).map_or(0, |&node| usize::from(node))
    }
}

/// The CPUs of each node that has some, by the kernel's number of the node.
fn cpus_by_node(directory: &Path) -> Vec<Vec<RangeInclusive<usize>>> {
    let mut nodes: Vec<(u32, Vec<RangeInclusive<usize>>)> = fs::read_dir(directory)
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let number = entry.file_name().to_str()?.strip_prefix("node")?.parse().ok()?;
            let list = fs::read_to_string(entry.path().join("cpulist")).ok()?;
            Some((number, cpu_list(&list)?))
        })
        .filter(|(_, ranges)| !ranges.is_empty())
        .collect();
    nodes.sort_unstable_by_key(|&(number, _)| number);
    nodes.into_iter().map(|(_, ranges)| ranges).collect()
}

/// `0-3,8,10-11`. An empty list is one; garbage is none.
fn cpu_list(text: &str) -> Option<Vec<RangeInclusive<usize>>> {
    let text = text.trim();
    if text.is_empty() {
        return Some(Vec::new());
    }
    text.split(',').map(cpu_range).collect()
}

fn cpu_range(item: &str) -> Option<RangeInclusive<usize>> {
    let (first, last) = item.split_once('-').unwrap_or((item, item));
    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
    (first <= last && last < CPU_NUMBER_LIMIT).then_some(first..=last)
}

/// The steps a [`StealOrder`] over `count` Ps can take.
/// Go: randomOrder.
///
/// Made once when the number of Ps changes, so that a thief reads one word. Looking for a step on
/// the spot would cost a division per round of Euclid's algorithm, and another try for each
/// candidate with a common divisor.
#[derive(Debug)]
pub(crate) struct Coprimes {
    count: usize,
    /// Never empty.
    steps: Box<[usize]>,
}

impl Coprimes {
    /// The steps for `count` Ps: the numbers up to `count` that have no common divisor with it.
    pub(crate) fn new(count: usize) -> Coprimes {
        let steps = (1..=count.max(1)).filter(|&step| gcd(step, count) == 1).collect();
        Coprimes { count, steps }
    }
}

fn gcd(mut a: usize, mut b: usize) -> usize {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Visits each P exactly once, the near ones first. Within near and within far, the order is that
/// of the walk described at the top of this file.
/// Go: stealOrder.start.
///
/// One walk yields the near Ps; if it passed over any, a second one along the same way yields
/// those. So where all are near, `|_| true`, this is the plain walk: an addition and two
/// comparisons a step.
///
/// `near` has to give the same answer for a P throughout. If it changes its mind, that P may come
/// twice or not at all; there is an end in any case.
#[derive(Debug)]
pub(crate) struct StealOrder<F> {
    near: F,
    position: usize,
    step: usize,
    count: usize,
    /// Steps until the walk is back at its start.
    steps_left: usize,
    /// The first walk met a far P.
    passed_over: bool,
    /// This is the second walk.
    far: bool,
}

impl<F: Fn(usize) -> bool> StealOrder<F> {
    /// An order chosen by `random`, whose upper bits count most; each pair of start and step is
    /// about as likely as any other.
    pub(crate) fn new(coprimes: &Coprimes, random: u32, near: F) -> StealOrder<F> {
        let Coprimes { count, steps } = coprimes;
        let (start, rest) = scale(random, *count);
        let (index, _) = scale(rest, steps.len());
        StealOrder {
            near,
            position: start,
            step: steps[index],
            count: *count,
            steps_left: *count,
            passed_over: false,
            far: false,
        }
    }

    /// Starts the second walk, if there is something for it.
    fn turn_to_far(&mut self) -> bool {
        if self.far || !self.passed_over {
            return false;
        }
        self.far = true;
        self.steps_left = self.count;
        true
    }
}

impl<F: Fn(usize) -> bool> Iterator for StealOrder<F> {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        loop {
            if self.steps_left == 0 && !self.turn_to_far() {
                return None;
            }
            self.steps_left -= 1;
            let here = self.position;
            self.position += self.step;
            if self.position >= self.count {
                self.position -= self.count;
            }
            if (self.near)(here) != self.far {
                return Some(here);
            }
            self.passed_over = true;
        }
    }
}

/// `random`, read as a fraction of 2^32, times `below`: the whole part, and the fraction left, which
/// is as random as what `below` did not use up. It takes no division.
fn scale(random: u32, below: usize) -> (usize, u32) {
    let product = u64::from(random) * below as u64;
    ((product >> u32::BITS) as usize, product as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::collections::HashSet;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Reads a machine whose nodes have these numbers and lists.
    fn machine(nodes: &[(&str, &str)]) -> Topology {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let (process, next) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let root = std::env::temp_dir().join(format!("gosched-topology-{process}-{next}"));
        for (node, list) in nodes {
            let node = root.join("sys/devices/system/node").join(node);
            fs::create_dir_all(&node).unwrap();
            fs::write(node.join("cpulist"), list).unwrap();
        }
        let topology = Topology::read(&root);
        let _ = fs::remove_dir_all(&root);
        topology
    }

    fn nodes_of(topology: &Topology, cpus: usize) -> Vec<usize> {
        (0..cpus).map(|cpu| topology.node_of(cpu)).collect()
    }

    #[test]
    fn cpus_are_found_in_their_nodes() {
        let two = machine(&[("node0", "0-1,4\n"), ("node1", "2-3,5\n")]);
        assert_eq!(two.nodes(), 2);
        assert_eq!(nodes_of(&two, 8), [0, 0, 1, 1, 0, 1, 0, 0]);
    }

    #[test]
    fn nodes_are_counted_without_holes_and_without_those_that_have_no_cpu() {
        let nodes = [("node10", "4-5\n"), ("node2", "\n"), ("node3", "2-3\n"), ("node0", "0-1\n")];
        let holes = machine(&nodes);
        assert_eq!(holes.nodes(), 3);
        assert_eq!(nodes_of(&holes, 6), [0, 0, 1, 1, 2, 2]);
    }

    #[test]
    fn an_unknown_machine_is_one_node() {
        let garbage = machine(&[("node0", "?"), ("nodes", "0"), ("has_cpu", "0"), ("node", "1")]);
        for unknown in [machine(&[]), machine(&[("node0", "\n")]), garbage] {
            assert_eq!(unknown.nodes(), 1);
            assert_eq!(unknown.node_of(0), 0);
            assert_eq!(unknown.node_of(usize::MAX), 0);
        }
        assert!(Topology::read(Path::new("/")).nodes() >= 1);
    }

    #[test]
    fn a_cpu_list_has_numbers_and_ranges() {
        assert_eq!(cpu_list("0-3,8,10-11\n"), Some(vec![0..=3, 8..=8, 10..=11]));
        assert_eq!(cpu_list("7"), Some(vec![7..=7]));
        assert_eq!(cpu_list("\n"), Some(vec![]));
        for garbage in ["x", "1,", ",1", "3-1", "1-", "-1", "1-2-3", "0-31:2/4", "0-4294967295"] {
            assert_eq!(cpu_list(garbage), None, "{garbage}");
        }
    }

    /// Numbers from all over `u32`, its ends included.
    fn randoms() -> impl Iterator<Item = u32> {
        (0..=u32::MAX).step_by(0x00f0_1234).chain([1, u32::MAX - 1, u32::MAX])
    }

    #[test]
    fn every_p_comes_once_whoever_is_near() {
        for count in 0..=64 {
            let coprimes = Coprimes::new(count);
            for random in randoms() {
                let rules: [&dyn Fn(usize) -> bool; 5] =
                    [&|_| true, &|_| false, &|p| p % 2 == 0, &|p| p * 2 < count, &|p| p == 7];
                for (rule, near) in rules.into_iter().enumerate() {
                    let mut order: Vec<_> = StealOrder::new(&coprimes, random, near).collect();
                    order.sort_unstable();
                    assert!(order.iter().copied().eq(0..count), "{count} {random} {rule}");
                }
            }
        }
    }

    #[test]
    fn ps_of_the_own_node_come_first() {
        for count in 1..=64 {
            let coprimes = Coprimes::new(count);
            for random in randoms() {
                let near = |p: usize| p % 4 == 1;
                assert!(StealOrder::new(&coprimes, random, near).is_sorted_by_key(|p| !near(p)));
            }
        }
    }

    #[test]
    fn every_start_is_met_with_every_step() {
        for count in 1..=64 {
            let coprimes = Coprimes::new(count);
            let ways: HashSet<_> = (0..=u32::MAX)
                .step_by(1 << 18)
                .map(|random| StealOrder::new(&coprimes, random, |_| true))
                .map(|order| (order.position, order.step))
                .collect();
            assert_eq!(ways.len(), count * coprimes.steps.len(), "{count}");
        }
        assert_eq!(*Coprimes::new(12).steps, [1, 5, 7, 11]);
        assert_eq!(*Coprimes::new(1).steps, [1]);
    }

    #[test]
    fn the_walk_ends_even_if_near_and_far_change_places() {
        let coprimes = Coprimes::new(8);
        let asked = Cell::new(0);
        let near = |_| {
            asked.set(asked.get() + 1);
            asked.get() > 8
        };
        let mut order = StealOrder::new(&coprimes, 5, near);
        assert_eq!(order.next(), None);
        assert_eq!(order.next(), None);
        assert_eq!(asked.get(), 16);
    }
}
