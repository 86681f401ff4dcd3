//! scratch
use std::time::Instant;
fn main() {
    let what = std::env::args().nth(1).unwrap_or_default();
    let n: u64 = std::env::args().nth(2).and_then(|s| s.parse().ok()).unwrap_or(1000);
    gosched::run(move || {
        for _ in 0..5 {
            let t = Instant::now();
            match what.as_str() {
                "yield" => {
                    let hs: Vec<_> = (0..2)
                        .map(|_| {
                            gosched::go(move || {
                                for _ in 0..n / 2 {
                                    gosched::yield_now()
                                }
                            })
                        })
                        .collect();
                    hs.into_iter().for_each(|h| h.join().unwrap());
                }
                "yield1000" => {
                    let hs: Vec<_> = (0..1000)
                        .map(|_| {
                            gosched::go(move || {
                                for _ in 0..n / 1000 {
                                    gosched::yield_now()
                                }
                            })
                        })
                        .collect();
                    hs.into_iter().for_each(|h| h.join().unwrap());
                }
                "join" => {
                    for i in 0..n {
                        assert_eq!(gosched::go(move || i).join().unwrap(), i);
                    }
                }
                "many" => {
                    let hs: Vec<_> = (0..n).map(|i| gosched::go(move || i)).collect();
                    hs.into_iter().for_each(|h| {
                        h.join().unwrap();
                    });
                }
                "tree" => {
                    fn t(d: u32) -> u64 {
                        if d == 0 {
                            return 1;
                        }
                        let a = gosched::go(move || t(d - 1));
                        let b = t(d - 1);
                        a.join().unwrap() + b
                    }
                    assert_eq!(t(n as u32), 1 << n);
                    println!("per task");
                }
                _ => panic!(),
            }
            println!(
                "{:.1} ns",
                t.elapsed().as_nanos() as f64
                    / if what == "tree" { (1u64 << n) as f64 } else { n as f64 }
            );
        }
    });
    println!(
        "{:?} threads {}",
        gosched::runtime::num_goroutines(),
        gosched::runtime::num_threads()
    );
}
