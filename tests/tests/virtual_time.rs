//! Tests in virtual time: the clock jumps, a seed replays the run, and a deadlock fails the test.

use gosched::chan::RecvTimeoutError;
use gosched::sync::{Condvar, Mutex, WaitGroup};
use gosched::time::{self, Ticker, Timer, after_func, sleep, sleep_until};
use gosched::{chan, context, go, select};
use gosched_tests as _;
use std::collections::BTreeSet;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

const HOUR: Duration = Duration::from_secs(3600);

#[gosched::test(virtual_time, timeout = 120)]
fn a_sleep_of_a_year_returns_at_once() {
    let start = time::now();
    sleep(365 * 24 * HOUR);
    assert_eq!(time::now() - start, 365 * 24 * HOUR);
}

#[gosched::test(virtual_time)]
fn sleepers_wake_in_order_and_to_the_nanosecond() {
    let start = time::now();
    let (tx, rx) = chan::<(u32, Duration)>(0);
    for i in (1..=100u32).rev() {
        let tx = tx.clone();
        go(move || {
            sleep(i * HOUR + Duration::from_nanos(u64::from(i)));
            tx.send((i, time::now() - start)).unwrap();
        });
    }
    drop(tx);
    let all: Vec<_> = rx.iter().collect();
    let expected = (1..=100u32).map(|i| (i, i * HOUR + Duration::from_nanos(u64::from(i))));
    assert!(all.into_iter().eq(expected));
}

#[gosched::test(virtual_time)]
fn time_stands_still_while_a_goroutine_can_run() {
    let start = time::now();
    let other = go(move || {
        sleep(HOUR);
        time::now() - start
    });
    for _ in 0..10_000 {
        gosched::yield_now();
        assert_eq!(time::now(), start);
    }
    // The goroutine is blocked outside the runtime, which cannot see that it will continue: as
    // documented, the clock then stands still for at most a second.
    gosched::yield_now();
    let blocked = Instant::now();
    std::thread::sleep(Duration::from_millis(30));
    assert!(time::now() == start || blocked.elapsed() > Duration::from_millis(900));
    assert_eq!(other.join().unwrap(), HOUR);
}

#[gosched::test(virtual_time)]
fn timeouts_are_exact_in_virtual_time() {
    let start = time::now();
    let passed = || time::now() - start;
    let (tx, rx) = chan::<u32>(0);
    assert_eq!(rx.recv_timeout(HOUR), Err(RecvTimeoutError::Timeout));
    assert_eq!(passed(), HOUR);
    assert!(tx.send_timeout(1, HOUR).is_err());
    assert_eq!(passed(), 2 * HOUR);
    select! {
        recv(rx) -> _ => unreachable!(),
        default(HOUR) => {}
    }
    assert_eq!(passed(), 3 * HOUR);
    let (lock, condition) = (Mutex::new(()), Condvar::new());
    drop(condition.wait_timeout(lock.lock(), HOUR));
    assert_eq!(passed(), 4 * HOUR);
    gosched::park_timeout(HOUR);
    assert_eq!(passed(), 5 * HOUR);
    sleep_until(start + 6 * HOUR);
    assert_eq!(passed(), 6 * HOUR);
    assert_eq!(time::timeout(HOUR, |ctx| ctx.done().recv()), Err(time::Elapsed));
    assert_eq!(passed(), 7 * HOUR);
    let (ctx, _guard) = context::background().with_timeout(HOUR);
    assert_eq!(ctx.deadline(), Some(start + 8 * HOUR));
    let _ = ctx.done().recv();
    assert_eq!(passed(), 8 * HOUR);
    assert_eq!(ctx.err(), Some(context::ContextError::DeadlineExceeded));
}

#[gosched::test(virtual_time)]
fn tickers_timers_and_functions_use_virtual_time() {
    let start = time::now();
    let ticker = Ticker::new(HOUR);
    let ticks: Vec<_> = ticker.chan().iter().take(5).map(|tick| tick - start).collect();
    assert_eq!(ticks, (1..=5u32).map(|i| i * HOUR).collect::<Vec<_>>());
    ticker.stop();
    let timer = Timer::new(HOUR);
    sleep(HOUR / 2);
    assert!(timer.reset(HOUR));
    assert_eq!(timer.chan().recv().unwrap() - start, 6 * HOUR + HOUR / 2);
    let (tx, rx) = chan(1);
    let func = after_func(HOUR, move || tx.send(time::now() - start).unwrap());
    assert_eq!(rx.recv(), Ok(7 * HOUR + HOUR / 2));
    func.reset(HOUR);
    assert_eq!(rx.recv(), Ok(8 * HOUR + HOUR / 2));
}

/// The ticker is due billions of times; the clock must not advance tick by tick.
#[gosched::test(virtual_time)]
fn virtual_time_does_not_stop_for_ticks_without_a_receiver() {
    let (start, ticker) = (time::now(), Ticker::new(Duration::from_micros(1)));
    sleep(1000 * HOUR);
    assert_eq!(time::now() - start, 1000 * HOUR);
    assert!(ticker.chan().try_recv().is_ok());
}

#[gosched::test(virtual_time)]
fn a_tick_received_late_has_the_time_at_which_it_was_due() {
    let (start, ticker, timer) = (time::now(), Ticker::new(HOUR), Timer::new(2 * HOUR));
    sleep(7 * HOUR / 2);
    assert_eq!(ticker.chan().recv().unwrap() - start, HOUR);
    assert_eq!(timer.chan().recv().unwrap() - start, 2 * HOUR);
    assert_eq!(time::now() - start, 7 * HOUR / 2);
    assert_eq!(ticker.chan().recv().unwrap() - start, 4 * HOUR);
    assert_eq!(time::now() - start, 4 * HOUR);
}

#[gosched::test(virtual_time)]
#[should_panic(expected = "all goroutines are asleep (listed above)")]
fn a_ticker_without_a_receiver_does_not_hide_a_deadlock() {
    let (_ticker, (_tx, rx)) = (Ticker::new(Duration::from_micros(1)), chan::<u32>(0));
    let _ = rx.recv();
}

#[gosched::test(virtual_time)]
fn an_ordinary_thread_receives_ticks_in_virtual_time() {
    let (start, ticker) = (time::now(), Ticker::new(HOUR));
    let thread = std::thread::spawn(move || ticker.chan().iter().nth(2).unwrap() - start);
    // Threads of a test do not count as runnable. Without this loop the clock would stand still,
    // which is a deadlock.
    while !thread.is_finished() {
        sleep(HOUR / 4);
    }
    assert!(thread.join().unwrap() >= 3 * HOUR);
}

#[gosched::test(virtual_time, leaks = allow)]
fn goroutines_left_behind_may_wait_forever() {
    go(|| chan::<u32>(0).1.recv());
    let never = chan::<u32>(0);
    go(move || never.0.send(1));
    gosched::yield_now();
}

#[gosched::test(virtual_time)]
fn an_ordinary_thread_sleeps_in_virtual_time() {
    let start = time::now();
    let thread = std::thread::spawn(move || {
        sleep(HOUR);
        time::now() - start
    });
    while !thread.is_finished() {
        sleep(HOUR / 4);
    }
    assert!(thread.join().unwrap() >= HOUR);
}

#[gosched::test(virtual_time)]
fn goroutines_locked_to_their_threads_sleep_in_virtual_time() {
    let start = time::now();
    gosched::lock_os_thread();
    let others = WaitGroup::new();
    for i in 1..10u32 {
        others.go(move || {
            gosched::lock_os_thread();
            sleep(i * HOUR);
        });
    }
    sleep(HOUR);
    others.wait();
    assert_eq!(time::now() - start, 9 * HOUR);
}

#[gosched::test(virtual_time)]
#[should_panic(expected = "all goroutines are asleep (listed above)")]
fn a_deadlock_fails_the_test() {
    let (tx, rx) = chan::<u32>(0);
    let waits = go(move || rx.recv());
    sleep(HOUR);
    let _ = waits.join();
    drop(tx);
}

#[gosched::test(virtual_time)]
#[should_panic(expected = "all goroutines are asleep (listed above)")]
fn a_deadlock_that_appears_when_another_goroutine_ends_fails_the_test() {
    let (_tx, rx) = chan::<u32>(0);
    go(|| std::thread::sleep(Duration::from_millis(60)));
    let _ = rx.recv();
}

#[gosched::test(virtual_time)]
#[should_panic(expected = "two\nlines \\ and more")]
fn a_panic_of_several_lines_is_passed_on() {
    panic!("two\nlines \\ and more");
}

#[gosched::test(virtual_time)]
fn a_panic_payload_that_panics_does_not_stop_virtual_time() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("on purpose: the payload");
        }
    }
    after_func(HOUR, || std::panic::panic_any(Bomb));
    sleep(2 * HOUR);
}

#[gosched::test(virtual_time)]
#[should_panic(expected = "hours later: 5")]
fn a_panic_is_passed_on() {
    sleep(5 * HOUR);
    panic!("hours later: {}", 5);
}

#[gosched::test(virtual_time, timeout = 0.2)]
#[should_panic(expected = "did not end within 200ms")]
fn the_time_limit_is_in_real_time() {
    loop {
        gosched::yield_now();
    }
}

#[gosched::test(virtual_time)]
#[should_panic(expected = "left 1 goroutines behind")]
fn a_leaked_goroutine_fails_the_test() {
    let (tx, rx) = chan::<u32>(0);
    std::mem::forget((tx, rx.clone()));
    go(move || rx.recv());
}

#[gosched::test(virtual_time)]
fn a_test_in_virtual_time_may_return_an_error() -> Result<(), std::num::ParseIntError> {
    sleep(HOUR);
    "7".parse::<u8>().map(drop)
}

mod inside {
    #[gosched::test(virtual_time)]
    fn a_test_may_be_in_a_module() {
        gosched::time::sleep(super::HOUR);
    }
}

/// Run by the next test, with a seed.
#[gosched::test(virtual_time, seed = 1)]
fn prints_its_order() {
    let order = Arc::new(Mutex::new(Vec::new()));
    let all = WaitGroup::new();
    for i in 0..12u64 {
        let order = order.clone();
        all.go(move || {
            for _ in 0..3 {
                order.lock().push(i);
                gosched::yield_now();
                sleep(Duration::from_millis(i % 2));
            }
        });
    }
    all.wait();
    let ready = [chan::<u64>(1), chan::<u64>(1), chan::<u64>(1)];
    for _ in 0..20 {
        ready.iter().for_each(|(tx, _)| _ = tx.try_send(1));
        let chosen = select! {
            recv(ready[0].1) -> _ => 100,
            recv(ready[1].1) -> _ => 101,
            recv(ready[2].1) -> _ => 102,
        };
        order.lock().push(chosen);
        gosched::blocking_now(|| std::thread::sleep(Duration::from_micros(300)));
        std::thread::sleep(Duration::from_micros(300));
    }
    println!("order {:?}", order.lock());
}

#[test]
fn a_seed_replays_the_run_and_another_seed_gives_another_run() {
    let run = |seed: u64| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["prints_its_order", "--exact", "--nocapture"]).env("GOMAXPROCS", "1");
        command.env("GOSCHED_VIRTUAL_TIME", "virtual_time::prints_its_order");
        command.env("GOSCHED_SEED", seed.to_string());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = text.lines().find(|line| line.starts_with("order "));
        line.unwrap_or_else(|| panic!("no order in: {text}")).to_owned()
    };
    let mut orders = BTreeSet::new();
    for seed in 1..=5 {
        let order = run(seed);
        if !cfg!(feature = "threads") {
            assert_eq!(order, run(seed), "seed {seed}");
        }
        let choices = order.split(", ").filter(|number| number.len() == 3).collect::<String>();
        orders.insert(choices);
    }
    assert!(orders.len() > 1, "seeds make a difference to select too: {orders:?}");
}

#[gosched::test(virtual_time, timeout = 120)]
fn a_socket_deadline_of_an_hour_passes_in_virtual_time() {
    use gosched::net::UnixStream;
    use std::io::{ErrorKind, Read, Write};
    let (mut near, mut far) = UnixStream::pair().unwrap();
    let before = time::now();
    near.set_read_deadline(Some(before + Duration::from_secs(3600))).unwrap();
    let echo = go(move || {
        let mut byte = [0];
        while far.read(&mut byte).unwrap() == 1 {
            far.write_all(&byte).unwrap();
        }
    });
    // Data that is available at once is read before the clock advances.
    for byte in 0..100 {
        near.write_all(&[byte]).unwrap();
        let mut answer = [0];
        near.read_exact(&mut answer).unwrap();
        assert_eq!(answer, [byte]);
    }
    assert_eq!(time::now(), before);
    let error = near.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert_eq!(time::now() - before, Duration::from_secs(3600));
    drop(near);
    echo.join().unwrap();
}
