//! A program that a test controls through its standard streams. The first argument selects the
//! mode.

use gosched::io::{stderr, stdin, stdout};
use gosched::{__rules as rules, chan, go, time};
use std::io::{BufRead, Read, Write};
use std::os::fd::AsRawFd;
use std::time::Duration;

#[gosched::main(alloc = off)]
fn main() {
    let mode = std::env::args().nth(1).expect("a mode");
    match mode.as_str() {
        "cat" => cat(),
        "sum" => println!("{}", gosched::io::copy(&mut stdin(), &mut std::io::sink()).unwrap()),
        "parks" => parks(),
        "crowd" => crowd(),
        "beside" => beside(),
        "partial" => partial(),
        "spill" => spill(),
        "slow" => slow(),
        "replaced" => replaced(),
        mode => panic!("{mode}"),
    }
}

/// Echoes every line.
fn cat() {
    for line in stdin().lines() {
        writeln!(stdout(), "{}", line.unwrap()).unwrap();
    }
    write!(stderr(), "end").unwrap();
}

/// While a goroutine waits for a line, others run, and no P is handed off.
fn parks() {
    let reader = go(|| {
        let mut line = String::new();
        stdin().read_line(&mut line).unwrap();
        line
    });
    let before = rules::hand_offs().0;
    for _ in 0..30 {
        time::sleep(Duration::from_millis(1));
    }
    println!("alive");
    let line = reader.join().unwrap();
    println!("{} {}", line.trim(), rules::hand_offs().0 - before);
}

/// Many goroutines read lines: each line goes whole to one goroutine.
fn crowd() {
    let (found, lines) = chan(0);
    for _ in 0..20 {
        let found = found.clone();
        go(move || {
            let mut line = String::new();
            while stdin().read_line(&mut line).unwrap() > 0 {
                found.send(line.trim().parse::<u64>().unwrap()).unwrap();
                line.clear();
            }
        });
    }
    drop(found);
    println!("{}", lines.iter().sum::<u64>());
}

/// A thread reads the same descriptor, past the buffer: no byte is lost, and no reader hangs.
fn beside() {
    let other = std::thread::spawn(|| {
        let (mut bytes, mut total) = ([0; 7], 0);
        loop {
            // SAFETY: a buffer of this length.
            match unsafe { libc::read(0, bytes.as_mut_ptr().cast(), bytes.len()) } {
                0 => return total,
                count => total += u64::try_from(count).unwrap(),
            }
        }
    });
    let (mut bytes, mut total) = ([0; 16], 0);
    let mut input = stdin().lock();
    loop {
        match input.read(&mut bytes).unwrap() {
            0 => break,
            count => total += count as u64,
        }
    }
    println!("{}", total + other.join().unwrap());
}

/// An incomplete line is written when the process exits.
fn partial() {
    go(|| write!(stdout(), "no newline").unwrap()).join().unwrap();
    std::process::exit(7);
}

/// Writes more than a pipe holds, while another goroutine reports that it is alive.
fn spill() {
    let writer = go(|| {
        let line = [b'x'; 1023];
        let mut out = stdout().lock();
        for _ in 0..512 {
            out.write_all(&line).unwrap();
            out.write_all(b"\n").unwrap();
        }
    });
    for _ in 0..20 {
        time::sleep(Duration::from_millis(1));
    }
    write!(stderr(), "alive").unwrap();
    writer.join().unwrap();
}

/// Everything is written, whatever standard output is.
fn slow() {
    let text: String = (0..20_000).map(|i| format!("{i}\n")).collect();
    stdout().write_all(text.as_bytes()).unwrap();
}

/// Descriptor 0 is replaced by another file, and reads wait for that file.
fn replaced() {
    let mut line = String::new();
    stdin().lock().read_line(&mut line).unwrap();
    let (reader, mut writer) = std::io::pipe().unwrap();
    // SAFETY: both descriptors are open.
    assert_eq!(unsafe { libc::dup2(reader.as_raw_fd(), 0) }, 0);
    go(move || {
        time::sleep(Duration::from_millis(5));
        writer.write_all(b"second\n").unwrap();
    });
    stdin().lock().read_line(&mut line).unwrap();
    print!("{line}");
}
