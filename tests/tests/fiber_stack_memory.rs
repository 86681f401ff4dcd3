//! Memory of stacks: what many goroutines cost, what is returned to the system, and the errors when
//! memory runs out.

use gosched_fiber::stack::{GUARD, MIN_USABLE, trim};
use gosched_fiber::{Routine, Size, StackError, Status, stack, support, suspend};
use gosched_tests::{children, linked};
use std::time::Duration;

fn size() -> Size {
    Size::from_environment().unwrap()
}

/// Returns the number of kilobytes in a line of /proc/self/status, or 0 if this kernel has no such
/// line.
fn status(name: &str) -> usize {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.map_or(0, |line| line.split_whitespace().next().unwrap().parse().unwrap())
}

/// Returns the memory in use and the page tables, in bytes. Memory that a busy system has swapped
/// out counts as in use.
fn memory() -> usize {
    (status("VmRSS:") + status("VmSwap:") + status("VmPTE:")) << 10
}

fn mappings() -> usize {
    std::fs::read_to_string("/proc/self/maps").unwrap().lines().count()
}

fn limit(resource: libc::__rlimit_resource_t, bytes: u64) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is valid for writes.
    unsafe { libc::getrlimit(resource, &mut limit) };
    limit.rlim_cur = bytes.min(limit.rlim_max);
    // SAFETY: a valid limit.
    assert_eq!(unsafe { libc::setrlimit(resource, &limit) }, 0);
}

fn used(name: &str) -> u64 {
    (status(name) as u64) << 10
}

fn parked() -> Routine<()> {
    let mut routine = Routine::new(size(), suspend);
    assert_eq!(routine.resume(), Ok(Status::Suspended));
    routine
}

#[test]
fn child() {
    let Some(scenario) = children::scenario() else {
        return;
    };
    match scenario.as_str() {
        "memory of many" => memory_of_many(),
        "deep stacks come back" => deep_stacks_come_back(),
        "trim" => trimmed_memory_comes_back(),
        "no address space" => refused(libc::RLIMIT_AS, "VmSize:"),
        "no writable memory" => refused(libc::RLIMIT_DATA, "VmData:"),
        "too many mappings" => too_many_mappings(0),
        "too many mappings, many not ours" => too_many_mappings(30_000),
        "locked memory" => locked_memory(),
        "a thread's own stacks" => own_stacks_come_back(),
        "malloc refuses" => malloc_refuses(),
        "sizes of the environment" => {
            println!("{}", size().usable());
            // SAFETY: ends the process at once.
            unsafe { libc::_exit(0) }
        }
        "support" => {
            println!("{:?}", support());
            if let Err(why) = support() {
                println!("{why}");
                println!("{}", Size::from_environment().unwrap_err());
            }
            assert_eq!(gosched_fiber::host(|| 1), 1);
        }
        other => panic!("no scenario {other}"),
    }
}

fn passes(scenario: &str) {
    let output = children::run(scenario);
    assert!(output.status.success(), "{:?}\n{}", output.status, children::stderr(&output));
}

#[test]
fn a_parked_goroutine_costs_a_page_and_no_mapping() {
    passes("memory of many");
}

fn memory_of_many() {
    let by_mapping = std::env::var_os("GOSCHED_GUARD").is_some();
    let count = if by_mapping { 10_000 } else { 50_000 };
    drop(parked());
    let mut all = Vec::with_capacity(count);
    let (memory_before, mappings_before) = (memory(), mappings());
    all.extend((0..count).map(|_| parked()));
    let each = (memory() - memory_before) / count;
    let mappings = mappings() - mappings_before;
    eprintln!("{each} bytes and {mappings} mappings for {count}");
    assert!(mappings < if by_mapping { 2 * count + 100 } else { 100 }, "{mappings} mappings");
    // Frames of a debug build are larger, and so is the spacing of stacks. The identity of a
    // program that links libc statically takes one more page: see the book's chapter `identity`.
    let one_page = !cfg!(debug_assertions) && !cfg!(target_feature = "crt-static");
    if one_page {
        // The routine itself (closure, result, handle) is on the heap, in addition to its stack.
        assert!(each <= 5 * 1024 + 512, "{each} bytes each, with closure and handle");
    }
    let mut stacks = Vec::with_capacity(count / 5);
    let memory_before = memory();
    for _ in 0..count / 5 {
        let stack = stack::Stack::new(size()).unwrap();
        // SAFETY: quiet — the stack belongs to this test.
        unsafe { gosched_fiber::identity::create(&stack) }.unwrap();
        stacks.push(stack);
    }
    let each = (memory() - memory_before) / stacks.len();
    assert!(!one_page || each <= 5 * 1024, "{each} bytes for stack and identity");
}

#[test]
fn stacks_do_not_use_huge_pages() {
    let stack = stack::Stack::new(size()).unwrap();
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut inside = false;
    let mut flags = None;
    for line in maps.lines() {
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        let bounds = range.and_then(|(low, high)| {
            let parse = |text| usize::from_str_radix(text, 16).ok();
            Some(parse(low)?..parse(high)?)
        });
        if let Some(bounds) = bounds {
            inside = bounds.contains(&stack.usable().start);
        } else if inside && line.starts_with("VmFlags:") {
            flags = Some(line);
        }
    }
    let flags = flags.expect("the stack's mapping");
    // "nh": MADV_NOHUGEPAGE is in force, on kernels that have huge pages.
    let has_huge_pages = std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists();
    assert_eq!(flags.split(' ').any(|flag| flag == "nh"), has_huge_pages, "{flags}");
}

#[test]
fn memory_touched_by_a_finished_goroutine_is_returned() {
    passes("deep stacks come back");
}

fn deep_stacks_come_back() {
    const COUNT: usize = 500;
    #[inline(never)]
    fn touch(depth: usize) -> usize {
        let frame = std::hint::black_box([depth as u8; 4096]);
        let below = if depth == 0 { 0 } else { touch(depth - 1) };
        std::hint::black_box(below + usize::from(frame[17]))
    }
    let before = memory();
    let mut all: Vec<_> = (0..COUNT)
        .map(|_| {
            let mut routine = Routine::new(size(), || {
                touch(30);
                suspend();
            });
            routine.resume().unwrap();
            routine
        })
        .collect();
    let touched = memory() - before;
    assert!(touched > COUNT * 120_000, "{touched}");
    for routine in &mut all {
        assert_eq!(routine.resume(), Ok(Status::Finished));
    }
    drop(all);
    // The stacks in this thread's cache stay warm: at most 64.
    let kept = memory().saturating_sub(before);
    let warm = touched / COUNT * 64;
    assert!(kept < warm + COUNT * 13_000, "{kept} of {touched}");
}

#[test]
fn unused_stacks_are_trimmed() {
    passes("trim");
}

fn trimmed_memory_comes_back() {
    const COUNT: usize = 5000;
    drop(parked());
    let before = memory();
    for round in 0..6 {
        std::thread::spawn(|| {
            // Each routine allocates, so that libc creates a cache for it. Trimming must not leak
            // the cache.
            let mut all: Vec<_> = (0..COUNT)
                .map(|_| {
                    let mut routine = Routine::new(size(), || {
                        drop(std::hint::black_box(vec![1u8; 100]));
                        suspend();
                    });
                    assert_eq!(routine.resume(), Ok(Status::Suspended));
                    routine
                })
                .collect();
            for routine in &mut all {
                assert_eq!(routine.resume(), Ok(Status::Finished));
            }
        })
        .join()
        .unwrap();
        let counts = stack::stats();
        assert!(counts.warm >= COUNT, "{counts:?}");
        let rested = memory() - before;
        assert!(rested > COUNT * 4096, "{rested}");
        assert_eq!(trim(Duration::from_secs(3600)), 0, "nothing has rested for an hour");
        assert!(trim(Duration::ZERO) >= COUNT);
        let counts = stack::stats();
        assert_eq!(counts.warm, 0, "{counts:?}");
        let kept = memory().saturating_sub(before);
        assert!(kept < COUNT * 2000, "round {round}: {kept} of {rested} bytes kept, {counts:?}");
        assert!(counts.slabs <= 4, "{counts:?}");
    }
}

#[test]
fn out_of_memory_errors_state_the_request_and_the_error_of_the_system() {
    passes("no address space");
    passes("no writable memory");
}

fn refused(resource: libc::__rlimit_resource_t, name: &str) {
    drop(parked());
    let counts = stack::stats();
    // Room for a few more stacks, but not for many.
    limit(resource, used(name) + (24 << 20));
    let mut all = Vec::new();
    let error = loop {
        let mut routine = Routine::new(size(), suspend);
        match routine.resume() {
            Ok(_) => all.push(routine),
            Err(error) => break error,
        }
        assert!(all.len() < 10_000, "the limit holds");
    };
    let StackError::Memory { bytes, errno, .. } = &error else { panic!("{error:?}") };
    assert_eq!(*errno, libc::ENOMEM);
    assert!(error.to_string().contains(&format!("({bytes} bytes) failed: ")), "{error}");
    assert!(error.to_string().contains("Cannot allocate memory"), "{error}");
    let many = all.len();
    // Each retry fails with the same error, and leaks nothing.
    for _ in 0..100 {
        assert_eq!(Routine::new(size(), || ()).resume().unwrap_err(), error);
    }
    assert_eq!(stack::stats().out - counts.out, many);
    // Suspended routines continue, end, and release their stacks.
    for routine in &mut all {
        assert_eq!(routine.resume(), Ok(Status::Finished));
    }
    drop(all);
    assert_eq!(Routine::new(size(), || ()).resume(), Ok(Status::Finished));
    limit(resource, u64::MAX);
    let all: Vec<_> = (0..many + 100).map(|_| parked()).collect();
    assert_eq!(all.len(), many + 100);
}

#[test]
fn mprotect_guards_stop_well_below_the_limit_of_mappings() {
    for scenario in ["too many mappings", "too many mappings, many not ours"] {
        let mut command = children::command(scenario);
        let output = command.env("GOSCHED_GUARD", "mprotect").output().unwrap();
        assert!(output.status.success(), "{}", children::stderr(&output));
    }
}

#[test]
fn locked_memory_is_trimmed_without_harm() {
    passes("locked memory");
}

/// The kernel does not discard locked memory. A new identity must not use what an earlier one left
/// there.
fn locked_memory() {
    support().unwrap();
    linked::make_stubborn();
    // SAFETY: locks pages, mapped now or later, when they are touched.
    let locked = unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE | 4) };
    if locked != 0 {
        let error = std::io::Error::last_os_error();
        // Without the permission to lock memory there is nothing to test.
        let right = [libc::EPERM, libc::ENOMEM].contains(&error.raw_os_error().unwrap());
        return assert!(right, "{error}");
    }
    for _ in 0..5 {
        let mut routine = Routine::new(size(), || {
            assert_eq!(linked::set_stubborn(), 0);
            let memory: Vec<Box<[usize; 64]>> = (0..64).map(|_| Box::new([7; 64])).collect();
            assert!(memory.iter().all(|block| block.iter().all(|&word| word == 7)));
        });
        assert_eq!(routine.resume(), Ok(Status::Finished));
        routine.into_result().unwrap().unwrap();
        assert!(trim(Duration::ZERO) > 0);
    }
}

#[test]
fn trim_frees_the_stacks_cached_by_the_calling_thread() {
    passes("a thread's own stacks");
}

fn own_stacks_come_back() {
    drop(parked());
    let before = memory();
    let mut all: Vec<_> = (0..60)
        .map(|_| {
            let mut routine = Routine::new(size(), || {
                std::hint::black_box([1u8; 100_000]);
                suspend();
            });
            routine.resume().unwrap();
            routine
        })
        .collect();
    let touched = memory() - before;
    assert!(touched > 60 * 100_000, "{touched}");
    for routine in &mut all {
        assert_eq!(routine.resume(), Ok(Status::Finished));
    }
    drop(all);
    assert!(trim(Duration::ZERO) >= 60);
    let kept = memory().saturating_sub(before);
    assert!(kept < touched / 10, "{kept} of {touched}");
}

fn too_many_mappings(own: usize) {
    let allowed = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap();
    let allowed: usize = allowed.trim().parse().unwrap();
    if allowed > 1 << 20 {
        return; // practically no limit
    }
    for number in 0..own {
        let protection = if number % 2 == 0 { libc::PROT_READ } else { libc::PROT_NONE };
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping, at an address that the kernel chooses. Neighbours differ, so they
        // do not merge.
        unsafe { libc::mmap(std::ptr::null_mut(), 4096, protection, flags, -1, 0) };
    }
    let mut stacks = Vec::new();
    let error = loop {
        match stack::Stack::new(Size::new(MIN_USABLE).unwrap()) {
            Ok(stack) => stacks.push(stack),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, StackError::Mappings { .. }), "{error:?}");
    assert!(error.to_string().contains("vm.max_map_count"), "{error}");
    assert!((stacks.len() * 2 + own) > allowed / 2, "{} stacks of {allowed}", stacks.len());
    assert!(mappings() < allowed / 10 * 8, "{} mappings of {allowed}", mappings());
    // The program can still create mappings, for threads.
    let threads: Vec<_> = (0..50).map(|_| std::thread::spawn(std::thread::park)).collect();
    for thread in threads {
        thread.thread().unpark();
        thread.join().unwrap();
    }
    // A stack that is released makes room for another one.
    stacks.pop();
    stacks.push(stack::Stack::new(Size::new(MIN_USABLE).unwrap()).unwrap());
}

#[test]
fn running_out_of_memory_for_thread_locals_is_an_error() {
    if cfg!(target_feature = "crt-static") {
        return; // needs an allocator that the program can replace at run time
    }
    passes("malloc refuses");
}

/// While this is set, `calloc`, which allocates the vector of thread-locals, fails.
static REFUSE: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

/// # Safety
/// Same contract as libc's `calloc`.
#[cfg(not(target_feature = "crt-static"))]
#[unsafe(no_mangle)]
unsafe extern "C" fn calloc(count: usize, bytes: usize) -> *mut libc::c_void {
    if REFUSE.load(std::sync::atomic::Ordering::Relaxed) {
        return std::ptr::null_mut();
    }
    let Some(total) = count.checked_mul(bytes) else {
        return std::ptr::null_mut();
    };
    // SAFETY: any size is valid.
    let memory = unsafe { libc::malloc(total) };
    if !memory.is_null() {
        // SAFETY: `total` bytes were just allocated.
        unsafe { std::ptr::write_bytes(memory.cast::<u8>(), 0, total) };
    }
    memory
}

fn malloc_refuses() {
    support().unwrap();
    // Created here, so that only the identity allocates below.
    let mut routine = Routine::new(size(), || 7);
    let mut warm = parked();
    let before = stack::stats();
    REFUSE.store(true, std::sync::atomic::Ordering::Relaxed);
    let refused = routine.resume();
    REFUSE.store(false, std::sync::atomic::Ordering::Relaxed);
    let error = refused.unwrap_err();
    assert!(error.to_string().starts_with("allocating a goroutine's thread-locals"), "{error}");
    assert_eq!(stack::stats().out, before.out, "the stack went back");
    assert_eq!(routine.resume(), Ok(Status::Finished), "it can be tried again");
    assert_eq!(routine.into_result().unwrap().unwrap(), 7);
    assert_eq!(warm.resume(), Ok(Status::Finished));
}

#[test]
fn the_environment_sets_the_default_size() {
    let usable = |text: &str| {
        let output = children::command("sizes of the environment")
            .env("GOSCHED_STACK", text)
            .output()
            .unwrap();
        let out = String::from_utf8_lossy(&output.stdout).into_owned();
        let number = out.lines().find_map(|line| line.rsplit(' ').next()?.parse::<usize>().ok());
        number.ok_or_else(|| out + &children::stderr(&output))
    };
    assert!((512 << 10..640 << 10).contains(&usable("512k").unwrap()));
    assert!((4 << 20..5 << 20).contains(&usable("4m").unwrap()));
    assert!(usable("1").unwrap() >= MIN_USABLE);
    for wrong in ["", "much", "12q"] {
        let text = usable(wrong).unwrap_err();
        assert!(text.contains("GOSCHED_STACK") || text.contains("Environment"), "{text}");
    }
    let text = usable("0").unwrap_err();
    assert!(text.contains("Size { asked: 0 }"), "{text}");
}

#[test]
fn absurd_sizes_are_errors() {
    for asked in [0, 1 << 60, usize::MAX] {
        assert_eq!(Size::new(asked), Err(StackError::Size { asked }));
    }
    // The largest size may exceed the memory of the machine. The routine is then refused with an
    // error; the process must not crash.
    let mut largest = Routine::new(Size::new(stack::MAX_USABLE).unwrap(), || 1);
    match largest.resume() {
        Ok(status) => assert_eq!(status, Status::Finished),
        Err(error) => assert!(matches!(error, StackError::Memory { .. }), "{error:?}"),
    }
}

#[test]
fn a_stack_is_usable_up_to_the_requested_size() {
    for asked in [MIN_USABLE, 100_000, 1 << 20, 64 << 20] {
        let stack = stack::Stack::new(Size::new(asked).unwrap()).unwrap();
        let usable = stack.usable();
        assert!(usable.len() >= asked);
        assert_eq!(stack.guard().end, usable.start);
        assert_eq!(stack.guard().len(), GUARD);
        for address in [usable.start, usable.end - asked, usable.end - 1] {
            // SAFETY: inside a stack that nothing runs on.
            unsafe { std::ptr::write_volatile(address as *mut u8, 1) };
        }
    }
}

#[test]
fn support_reports_an_invalid_fsgsbase_setting() {
    let output = children::command("support").env("GOSCHED_FSGSBASE", "perhaps").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text} {}", children::stderr(&output));
    assert!(
        text.contains("wanted a way to write the thread pointer, found GOSCHED_FSGSBASE is"),
        "{text}"
    );
}
