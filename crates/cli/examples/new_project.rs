//! Squares numbers with a pool of goroutines: `cargo run`.

use gosched::{chan, go};

/// Returns the sum of the squares of 1 to `last`, which `workers` goroutines compute.
fn sum_of_squares(last: u64, workers: usize) -> u64 {
    let (jobs, at_worker) = chan(16);
    let (results, at_end) = chan(16);
    for _ in 0..workers {
        let (at_worker, results) = (at_worker.clone(), results.clone());
        go(move || {
            for number in at_worker {
                if results.send(number * number).is_err() {
                    break;
                }
            }
        });
    }
    // The last worker that ends closes the channel of results.
    drop(results);
    go(move || {
        for number in 1..=last {
            if jobs.send(number).is_err() {
                break;
            }
        }
    });
    at_end.into_iter().sum()
}

#[gosched::main]
fn main() {
    println!("1² + 2² + ... + 1000² = {}", sum_of_squares(1000, 4));
}

#[cfg(test)]
mod tests {
    #[gosched::test]
    fn squares_are_summed() {
        assert_eq!(super::sum_of_squares(3, 2), 14);
        assert_eq!(super::sum_of_squares(0, 2), 0);
    }
}
