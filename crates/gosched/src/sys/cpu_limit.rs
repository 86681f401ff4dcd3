//! The number of Ps to start with: as many as there are CPUs that this process can keep busy.
//!
//! `GOMAXPROCS` in the environment decides if it is a positive number. Otherwise the number is the
//! smaller of two limits, as in Go since 1.25: the CPUs in the affinity mask, and the cgroup's CPU
//! bandwidth, which is its quota divided by its period and counts as 2 if it is less. With more Ps
//! than bandwidth, the process would use up its quota early in each period, and the kernel would
//! then stop all its threads, including those that hold locks.
//!
//! Go reads only the process's own cgroup. The kernel throttles by the tightest limit on the path
//! to the root, so this module considers every ancestor that a mount shows.
//!
//! Nothing in this file fails: a file that cannot be read or parsed imposes no limit.
//!
//! This module never changes the number of Ps: the scheduler does.

use gosched_fiber::base::environment;
use libc::c_ulong;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{fs, io};

/// The minimum number of Ps under a cgroup limit, as in Go, unless the process has fewer CPUs. With
/// a single P, one goroutine that computes would hold up all others.
const CGROUP_MIN_PROCS: usize = 2;

/// Size of the first affinity mask in bits: `CPU_SETSIZE`, which is enough for nearly every kernel.
const FIRST_MASK_BITS: usize = 1024;

/// Size of the largest affinity mask in bits. No kernel supports more CPUs, so a system that
/// refuses this size refuses every size.
const LAST_MASK_BITS: usize = 1 << 20;

/// Whether the program or its environment has chosen the number of Ps. If so, the limits do not
/// apply.
static FIXED: AtomicBool = AtomicBool::new(false);

pub(crate) fn is_procs_fixed() -> bool {
    FIXED.load(Ordering::Relaxed)
}

/// Records that the number of Ps was chosen: [`is_procs_fixed`] returns `true` from then on.
pub(crate) fn fix_procs() {
    FIXED.store(true, Ordering::Relaxed);
}

/// Returns the number of CPUs in the affinity mask, as read by the first call. At least 1.
pub(crate) fn num_cpu() -> usize {
    static CPUS: OnceLock<usize> = OnceLock::new();
    *CPUS.get_or_init(|| cpus_in_mask(affinity).unwrap_or(1).max(1))
}

/// Returns the number of Ps to start with, and calls [`fix_procs`] if `GOMAXPROCS` sets it. Reads
/// the environment and the files at each call.
pub(crate) fn initial_procs() -> usize {
    let asked = environment::PROCS.read().and_then(|text| parse_gomaxprocs(&text));
    if asked.is_some() {
        fix_procs();
    }
    asked.unwrap_or_else(limited_procs)
}

/// Returns the number of Ps that the limits allow, without `GOMAXPROCS`. Reads the files at each
/// call. Does not read the environment, because a goroutine may hold its lock.
/// Go: defaultGOMAXPROCS.
pub(crate) fn limited_procs() -> usize {
    let cpus = cpus_in_mask(affinity).unwrap_or(1).max(1);
    default_procs(cpus, cgroup_limit(Path::new("/")))
}

/// Returns the tightest CPU limit of this process's cgroup and its ancestors, in CPUs, rounded up.
/// Returns `None` if there is no limit. The system's files are read below the folder `root`.
///
/// Each limit is rounded before the comparison. The result is the same as rounding the smallest
/// limit.
pub(crate) fn cgroup_limit(root: &Path) -> Option<usize> {
    let memberships = fs::read(root.join("proc/self/cgroup")).ok()?;
    let own = Cgroup::of_process(&memberships)?;
    let mounts = fs::read(root.join("proc/self/mountinfo")).ok()?;
    // All mounts are read: one mount may show ancestors that another hides.
    lines(&mounts)
        .filter_map(|line| Mount::of_cpu_controller(line, own.version))
        .filter_map(|mount| mount.tightest_limit(root, &own))
        .min()
}

/// Returns the number in `GOMAXPROCS`. Like Go, accepts decimal numbers from 1 to `i32::MAX`
/// without blanks, and ignores everything else.
fn parse_gomaxprocs(text: &OsStr) -> Option<usize> {
    let number: i32 = text.to_str()?.parse().ok()?;
    usize::try_from(number).ok().filter(|&procs| procs > 0)
}

/// Returns the number of Ps if `GOMAXPROCS` does not set it.
fn default_procs(cpus: usize, limit: Option<usize>) -> usize {
    limit.map_or(cpus, |limit| limit.max(CGROUP_MIN_PROCS).min(cpus))
}

/// Returns the number of bits set in the first mask that is large enough for `ask`.
fn cpus_in_mask(ask: impl Fn(&mut [c_ulong]) -> io::Result<()>) -> Option<usize> {
    let mut bits = FIRST_MASK_BITS;
    while bits <= LAST_MASK_BITS {
        let mut mask = vec![0; bits / c_ulong::BITS as usize];
        match ask(&mut mask) {
            Ok(()) => return Some(mask.iter().map(|word| word.count_ones() as usize).sum()),
            // The kernel supports more CPUs than the mask has bits.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => bits *= 2,
            Err(_) => return None,
        }
    }
    None
}

/// Sets the bits of the CPUs that the calling thread may run on. `mask` must be all zero.
fn affinity(mask: &mut [c_ulong]) -> io::Result<()> {
    let bytes = size_of_val(mask);
    // SAFETY: `mask` has `bytes` writable bytes and the alignment of a `cpu_set_t`, which consists
    // of the same words.
    match unsafe { libc::sched_getaffinity(0, bytes, mask.as_mut_ptr().cast()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The file layout of the CPU controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    /// `cpu.cfs_quota_us` and `cpu.cfs_period_us`.
    V1,
    /// `cpu.max`.
    V2,
}

/// The cgroup whose CPU controller governs a process.
#[derive(Debug, PartialEq, Eq)]
struct Cgroup<'a> {
    version: Version,
    /// Path from the root of the process's cgroup namespace; `/` in most containers.
    path: &'a Path,
}

impl Cgroup<'_> {
    /// Parses `/proc/self/cgroup`: lines of `hierarchy:controllers:path`.
    ///
    /// A controller belongs to one hierarchy at a time. If a v1 line lists `cpu`, the v2 line
    /// (hierarchy 0, no controllers) does not apply to CPUs.
    fn of_process(memberships: &[u8]) -> Option<Cgroup<'_>> {
        let mut v2 = None;
        for line in lines(memberships) {
            let fields: Vec<&[u8]> = line.splitn(3, |&byte| byte == b':').collect();
            let [hierarchy, controllers, path @ [b'/', ..]] = fields[..] else { continue };
            let path = Path::new(OsStr::from_bytes(path));
            if hierarchy == b"0" {
                v2 = Some(Cgroup { version: Version::V2, path });
            } else if has_cpu(controllers) {
                return Some(Cgroup { version: Version::V1, path });
            }
        }
        v2
    }
}

/// A mount of the cgroup tree or a part of it.
#[derive(Debug, PartialEq, Eq)]
struct Mount {
    /// The cgroup that is visible at `point`. Not `/` if a container sees only a part of the tree.
    root: PathBuf,
    point: PathBuf,
}

impl Mount {
    /// Parses a line of `/proc/self/mountinfo`. Returns `None` if the line is not a mount of the
    /// CPU controller.
    ///
    /// ```text
    /// 36 35 98:0 /root /mount/point rw,noatime master:1 - cgroup source rw,cpu,cpuacct
    /// ```
    ///
    /// Any number of optional fields, here `master:1`, precedes the lone dash.
    fn of_cpu_controller(line: &[u8], version: Version) -> Option<Mount> {
        let mut fields = line.split(|&byte| byte == b' ');
        let root = fields.nth(3)?;
        let point = fields.next()?;
        fields.find(|&field| field == b"-")?;
        let file_system = fields.next()?;
        let has_controller = match version {
            Version::V1 => file_system == b"cgroup" && has_cpu(fields.nth(1)?),
            Version::V2 => file_system == b"cgroup2",
        };
        has_controller.then(|| Mount { root: unescape(root), point: unescape(point) })
    }

    /// Returns the tightest limit between `own` and the top of this mount. Returns `None` if there
    /// is no limit, or if `own` is not below this mount.
    fn tightest_limit(&self, root: &Path, own: &Cgroup<'_>) -> Option<usize> {
        let below = own.path.strip_prefix(&self.root).ok()?;
        // A process outside of its own cgroup namespace has the path `/../name`, which is not below
        // this mount.
        if below.components().any(|component| component == Component::ParentDir) {
            return None;
        }
        let top = root.join(self.point.strip_prefix("/").ok()?);
        let levels = below.components().count() + 1;
        top.join(below)
            .ancestors()
            .take(levels)
            .filter_map(|directory| limit_in(directory, own.version))
            .min()
    }
}

/// Returns the limit of one cgroup. The root cgroup has no such files, nor has a cgroup whose
/// parent does not enable the controller for its children.
fn limit_in(directory: &Path, version: Version) -> Option<usize> {
    let read = |name| fs::read_to_string(directory.join(name)).ok();
    match version {
        Version::V1 => v1_limit(&read("cpu.cfs_quota_us")?, &read("cpu.cfs_period_us")?),
        Version::V2 => v2_limit(&read("cpu.max")?),
    }
}

/// Computes the limit from the v1 files. A quota of -1 means no limit.
fn v1_limit(quota: &str, period: &str) -> Option<usize> {
    whole_cpus(quota.trim().parse().ok()?, period.trim().parse().ok()?)
}

/// Parses `cpu.max`, which holds quota and period, for example `150000 100000`. A quota of `max`
/// means no limit.
fn v2_limit(text: &str) -> Option<usize> {
    let (quota, period) = text.trim().split_once(' ')?;
    whole_cpus(quota.parse().ok()?, period.parse().ok()?)
}

fn whole_cpus(quota: u64, period: u64) -> Option<usize> {
    (period > 0).then(|| usize::try_from(quota.div_ceil(period)).unwrap_or(usize::MAX))
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|&byte| byte == b'\n')
}

/// Returns whether a list like `rw,cpu,cpuacct` contains `cpu`.
fn has_cpu(list: &[u8]) -> bool {
    list.split(|&byte| byte == b',').any(|item| item == b"cpu")
}

/// Decodes a path in `mountinfo`, where blanks and backslashes are written as `\` and three octal
/// digits.
fn unescape(field: &[u8]) -> PathBuf {
    let mut path = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, ..] = *rest {
        let (byte, length) = match *rest {
            [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..] => {
                ((a & 7) << 6 | (b & 7) << 3 | (c & 7), 4)
            }
            _ => (first, 1),
        };
        path.push(byte);
        rest = &rest[length..];
    }
    PathBuf::from(OsStr::from_bytes(&path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Returns the limit on a system that has these files.
    fn limit_with(files: &[(&str, &str)]) -> Option<usize> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let (process, next) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let root = std::env::temp_dir().join(format!("gosched-cpu-limit-{process}-{next}"));
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let limit = cgroup_limit(&root);
        let _ = fs::remove_dir_all(&root);
        limit
    }

    #[track_caller]
    fn check(case: &str, cgroup: &str, mounts: &str, files: &[(&str, &str)], limit: Option<usize>) {
        let proc = [("proc/self/cgroup", cgroup), ("proc/self/mountinfo", mounts)];
        assert_eq!(limit_with(&[&proc, files].concat()), limit, "{case}");
    }

    const V2: &str = "22 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n\
        30 22 0:26 / /cg rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
    const V1: &str = "30 22 0:25 / /cg rw - tmpfs tmpfs ro,mode=755\n\
        31 30 0:28 / /cg/cpuacct rw shared:9 master:2 - cgroup cgroup rw,cpuacct\n\
        32 30 0:29 / /cg/cpu rw shared:10 - cgroup cgroup rw,cpu\n";
    const V1_QUOTA: &str = "cg/cpu/a/cpu.cfs_quota_us";
    const V1_PERIOD: &str = "cg/cpu/a/cpu.cfs_period_us";

    #[test]
    fn a_v2_limit_is_the_tightest_of_the_cgroup_and_its_ancestors() {
        let own = "0::/a/b\n";
        let at_b = |text| [("cg/a/b/cpu.max", text)];
        check("none", own, V2, &at_b("max 100000\n"), None);
        check("own", own, V2, &at_b("450000 100000\n"), Some(5));
        let both = |own, parent| [("cg/a/b/cpu.max", own), ("cg/a/cpu.max", parent)];
        check("parent", own, V2, &both("400000 100000\n", "300000 100000\n"), Some(3));
        check("looser parent", own, V2, &both("300000 100000\n", "80000 10000\n"), Some(3));
        check("parent only", own, V2, &both("max 100000\n", "300000 100000\n"), Some(3));
        check("not handed down", own, V2, &[("cg/a/cpu.max", "300000 100000\n")], Some(3));
        check("mount's top", own, V2, &[("cg/cpu.max", "300000 100000\n")], Some(3));
        check("siblings do not count", own, V2, &[("cg/a/c/cpu.max", "300000 100000\n")], None);
        check("above the mount", own, V2, &[("cpu.max", "300000 100000\n")], None);
    }

    #[test]
    fn a_mount_may_show_a_part_of_the_tree_under_another_name() {
        let files = [("cg/b/cpu.max", "500000 100000\n"), ("cg/cpu.max", "400000 100000\n")];
        let mount = |root| format!("30 22 0:26 {root} /cg rw - cgroup2 cgroup2 rw\n");
        check("in a namespace", "0::/\n", &mount("/"), &files, Some(4));
        check("part", "0::/a/b\n", &mount("/a"), &files, Some(4));
        check("own is the top", "0::/a\n", &mount("/a"), &files, Some(4));
        check("another part", "0::/ab\n", &mount("/a"), &files, None);
        check("outside of the namespace", "0::/../b\n", &mount("/"), &files, None);
        check("mounted from outside", "0::/../b\n", &mount("/.."), &files, Some(4));
        check("further outside", "0::/../../b\n", &mount("/.."), &files, None);
        check("second fits", "0::/a/b\n", &(mount("/x") + &mount("/a")), &files, Some(4));
        let blank = r"30 22 0:26 /a\040b /c\134\040d rw - cgroup2 cgroup2 rw";
        let files = [(r"c\ d/e:f/cpu.max", "300000 100000\n")];
        check("escapes", "0::/a b/e:f\n", blank, &files, Some(3));
    }

    #[test]
    fn a_v1_limit_has_two_files() {
        let own = "4:memory:/m\n3:cpuacct:/x\n2:cpu:/a\n";
        let at_a = |quota| [(V1_QUOTA, quota), (V1_PERIOD, "100000\n")];
        check("limit", own, V1, &at_a("250000\n"), Some(3));
        check("none", own, V1, &at_a("-1\n"), None);
        check("no period", own, V1, &at_a("250000\n")[..1], None);
        let together = V1.replace("rw,cpu\n", "rw,cpuacct,cpu\n");
        check("co-mounted", "3:cpuacct,cpu:/a\n", &together, &at_a("250000\n"), Some(3));
        let parent = [("cg/cpu/cpu.cfs_quota_us", "90"), ("cg/cpu/cpu.cfs_period_us", "30")];
        check("ancestor", own, V1, &[at_a("500000\n"), parent].concat(), Some(3));
    }

    #[test]
    fn in_a_hybrid_hierarchy_the_v1_controller_counts() {
        let mounts = V1.to_owned() + "40 30 0:38 / /cg/unified rw - cgroup2 cgroup2 rw\n";
        let v2 = ("cg/unified/a/cpu.max", "300000 100000\n");
        let v1 = [(V1_QUOTA, "400000\n"), (V1_PERIOD, "100000\n")];
        for own in ["0::/a\n2:cpu:/a\n", "2:cpu:/a\n0::/a\n"] {
            check("v1 has it", own, &mounts, &[v1[0], v1[1], v2], Some(4));
            check("v1 without a limit", own, &mounts, &[v2], None);
        }
        check("v1 without cpu", "2:cpuset:/a\n0::/a\n", &mounts, &[v1[0], v1[1], v2], Some(3));
    }

    #[test]
    fn missing_or_malformed_files_mean_no_limit() {
        assert_eq!(limit_with(&[]), None);
        assert_eq!(limit_with(&[("proc/self/cgroup", "0::/a\n")]), None);
        let files = [("cg/a/cpu.max", "300000 100000\n")];
        check("no mounts", "0::/a\n", "", &files, None);
        for own in ["", "\n", "0", "0:", "0::", "0::a", "1:name=systemd:/a", ":::", "\u{fffd}"] {
            check(own, own, V2, &files, None);
        }
        check("one bad line", "?\n0::/a\n", &format!("?\n\n1 2 3 4\n{V2}"), &files, Some(3));
        for mount in ["- cgroup2", "1 2 3 / /cg rw", "1 2 3 / /cg -", "1 2 3 / cg rw - cgroup2"] {
            check(mount, "0::/a\n", mount, &files, None);
        }
    }

    #[test]
    fn a_limit_is_rounded_up_to_whole_cpus() {
        assert_eq!(v2_limit("150000 100000\n"), Some(2));
        assert_eq!(v2_limit("50000 100000\n"), Some(1));
        assert_eq!(v2_limit("250000 100000\n"), Some(3));
        assert_eq!(v2_limit("0 100000\n"), Some(0));
        assert_eq!(v2_limit("18446744073709551615 1\n"), Some(usize::MAX));
        assert_eq!(v2_limit("1 18446744073709551615\n"), Some(1));
        for none in ["max 100000\n", "100000 0\n", "-1 100000\n", "18446744073709551616 1\n"] {
            assert_eq!(v2_limit(none), None, "{none}");
        }
        for garbage in ["", " ", "100000", "max", "1 2 3", "1  2", "1.5 1", "1 max", "x 100000"] {
            assert_eq!(v2_limit(garbage), None, "{garbage}");
        }
        assert_eq!(v1_limit("150000\n", "0\n"), None);
    }

    #[test]
    fn a_limit_gives_at_least_two_ps_but_never_more_ps_than_cpus() {
        let limits = [None, Some(0), Some(1), Some(3), Some(usize::MAX)];
        assert_eq!(limits.map(|limit| default_procs(8, limit)), [8, 2, 2, 3, 8]);
        assert_eq!(limits.map(|limit| default_procs(1, limit)), [1; 5]);
    }

    #[test]
    fn gomaxprocs_counts_only_if_it_is_a_positive_number() {
        for (text, procs) in [("1", 1), ("64", 64), ("+3", 3), ("007", 7)] {
            assert_eq!(parse_gomaxprocs(OsStr::new(text)), Some(procs), "{text:?}");
        }
        for text in ["", "0", "-1", " 4", "4 ", "4x", "2.0", "0x4", "2147483648", "four"] {
            assert_eq!(parse_gomaxprocs(OsStr::new(text)), None, "{text:?}");
        }
        assert_eq!(parse_gomaxprocs(OsStr::from_bytes(b"\xff")), None);
    }

    #[test]
    fn the_affinity_mask_grows_until_the_kernel_accepts_it() {
        let refuse = |errno| Err(io::Error::from_raw_os_error(errno));
        let kernel_of_8192 = |mask: &mut [c_ulong]| {
            mask[..16].fill(1 << 5);
            if size_of_val(mask) * 8 < 8192 { refuse(libc::EINVAL) } else { Ok(()) }
        };
        assert_eq!(cpus_in_mask(kernel_of_8192), Some(16));
        assert_eq!(cpus_in_mask(|_| refuse(libc::EINVAL)), None);
        assert_eq!(cpus_in_mask(|_| refuse(libc::EPERM)), None);
    }

    #[test]
    fn a_thread_bound_to_one_cpu_counts_one() {
        let counted = std::thread::spawn(|| {
            let mut mask = [0 as c_ulong; 1 << 12];
            // SAFETY: `sched_getcpu` has no precondition.
            let cpu = unsafe { libc::sched_getcpu() } as usize;
            mask[cpu / c_ulong::BITS as usize] = 1 << (cpu % c_ulong::BITS as usize);
            let bytes = size_of_val(&mask);
            // SAFETY: `mask` has `bytes` bytes.
            assert_eq!(unsafe { libc::sched_setaffinity(0, bytes, mask.as_ptr().cast()) }, 0);
            cpus_in_mask(affinity)
        });
        assert_eq!(counted.join().unwrap(), Some(1));
        assert!(num_cpu() >= 1 && initial_procs() >= 1);
    }
}
