//! The NUMA nodes of the machine, and the order in which a thief tries its victims.
//!
//! CPUs of one NUMA node share memory and usually a last-level cache, so a G that is stolen within
//! a node finds its data nearby. [`Topology`] maps CPUs to nodes; [`StealOrder`] visits the Ps of
//! the thief's node first.
//!
//! Within the near Ps and within the far Ps, the order is a walk around the ring of Ps from a
//! random start with a random step that is coprime to the number of Ps. Such a walk visits every P
//! once without recording which Ps it has visited, and two thieves rarely follow each other.
//!
//! This module never steals, and never binds a thread to a CPU: `sched/run/steal.rs` follows the
//! order.

use std::fs;
use std::ops::RangeInclusive;
use std::path::Path;

/// CPU numbers from this value on are rejected as garbage. Linux supports at most 8192 CPUs.
const CPU_NUMBER_LIMIT: usize = 1 << 16;

/// The NUMA nodes of the machine when [`Topology::read`] was called. A CPU that is added later is
/// unknown.
#[derive(Debug)]
pub(crate) struct Topology {
    nodes: usize,
    /// The node of each CPU, indexed by CPU number. CPUs past the end are in node 0 or unknown.
    node_by_cpu: Box<[u16]>,
}

impl Topology {
    /// Reads `/sys/devices/system/node` below the folder `root`. Skips nodes that cannot be read
    /// and nodes without CPUs.
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

    /// Returns the number of nodes that have CPUs; 1 if unknown.
    pub(crate) fn nodes(&self) -> usize {
        self.nodes
    }

    /// Returns the node of a CPU; 0 if unknown. The result is below [`Topology::nodes`] and can be
    /// used as an index: the nodes that have CPUs are numbered in the kernel's order, without gaps.
    pub(crate) fn node_of(&self, cpu: usize) -> usize {
        self.node_by_cpu.get(cpu).map_or(0, |&node| usize::from(node))
    }
}

/// Returns the CPUs of each node that has CPUs, ordered by the kernel's node number.
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

/// Parses a CPU list like `0-3,8,10-11`, which may be empty. Returns `None` if the text is
/// malformed.
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

/// The steps that a [`StealOrder`] over `count` Ps can use.
///
/// Computed once when the number of Ps changes, so that a thief reads one word. Computing a step on
/// demand would cost a division per round of Euclid's algorithm, and a retry for each candidate
/// with a common divisor.
/// Go: randomOrder.
#[derive(Debug)]
pub(crate) struct Coprimes {
    count: usize,
    /// The numbers that are coprime to `count`. Never empty.
    steps: Box<[usize]>,
}

impl Coprimes {
    /// Computes the steps for `count` Ps: the numbers up to `count` that are coprime to it.
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

/// An iterator that visits each P exactly once, near Ps first. Within the near Ps and within the
/// far Ps, the order is the walk described at the top of this file.
///
/// A first walk yields the near Ps. If it has skipped any, a second walk with the same step yields
/// the skipped Ps. If all Ps are near (`|_| true`), there is only the first walk, which costs an
/// addition and two comparisons per step.
///
/// `near` must return the same result for a P throughout. Otherwise that P may be visited twice or
/// not at all; the iteration ends in any case.
/// Go: stealOrder.start.
#[derive(Debug)]
pub(crate) struct StealOrder<F> {
    near: F,
    position: usize,
    step: usize,
    count: usize,
    /// Number of steps until the walk is back at its start.
    steps_left: usize,
    /// Whether the first walk has skipped a far P.
    passed_over: bool,
    /// Whether this is the second walk.
    far: bool,
}

impl<F: Fn(usize) -> bool> StealOrder<F> {
    /// Creates an order from the random number `random`, whose upper bits have the most influence.
    /// All pairs of start and step are about equally likely.
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

    /// Starts the second walk, if the first walk has skipped a P. Returns whether it did.
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

/// Multiplies `below` by `random / 2^32`. Returns the integer part and the fraction, scaled to a
/// `u32`. The fraction contains the randomness that the integer part has not used up. Needs no
/// division.
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

    /// Reads the topology of a machine whose nodes have these names and CPU lists.
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
    fn nodes_are_numbered_without_gaps_and_nodes_without_cpus_are_skipped() {
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

    /// Returns numbers spread over the whole range of `u32`, including both ends.
    fn randoms() -> impl Iterator<Item = u32> {
        (0..=u32::MAX).step_by(0x00f0_1234).chain([1, u32::MAX - 1, u32::MAX])
    }

    #[test]
    fn every_p_comes_once_whichever_ps_are_near() {
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
    fn every_start_is_combined_with_every_step() {
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
    fn a_steal_order_ends_even_if_near_and_far_ps_change_places() {
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
