//! Register contents of goroutines: loaded, held for a while, then compared.
//!
//! Only the assembly below accesses the registers meanwhile, so any difference comes from a
//! preemption.

use crate::harness::{self, Heartbeat, is_over, spawn_group};
use gosched::runtime;
use gosched_tests::{alloc_blocks::Random, linked};
use std::arch::naked_asm;
use std::cell::Cell;
use std::mem::offset_of;

const GENERAL: usize = 13;
const ZONE: usize = 16;

/// The contents that are held: general registers, the red zone, vectors, the x87 stack, flags and
/// modes.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C, align(64))]
struct RegisterSet {
    general: [u64; GENERAL],
    zone: [u64; ZONE],
    vectors: [[u64; 4]; 16],
    x87: [i64; 8],
    flags: u64,
    mxcsr: u32,
    control: u16,
}

/// The expected contents, the contents found, and the modes before the call, which are restored.
#[repr(C, align(64))]
struct Block {
    expected: RegisterSet,
    found: RegisterSet,
    mxcsr_before: u32,
    control_before: u16,
}

/// The carry, parity, auxiliary carry, zero, sign and overflow flags, which computations set.
const ARITHMETIC: u64 = 0x8d5;
/// The direction flag, which the kernel clears for a signal handler.
const DIRECTION: u64 = 0x400;
/// The interrupt flag, and a bit that is always set.
const ALWAYS: u64 = 0x202;

const ZEROES: RegisterSet = RegisterSet {
    general: [0; GENERAL],
    zone: [0; ZONE],
    vectors: [[0; 4]; 16],
    x87: [0; 8],
    flags: 0,
    mxcsr: 0,
    control: 0,
};

impl RegisterSet {
    fn random(random: &mut Random, wide: bool) -> RegisterSet {
        let mut word = || {
            let mut part = || random.below(1 << 32) as u64;
            part() << 32 | part()
        };
        let mut held = ZEROES;
        held.general.fill_with(&mut word);
        held.zone.fill_with(&mut word);
        let parts = if wide { 4 } else { 2 };
        held.vectors.iter_mut().for_each(|vector| vector[..parts].fill_with(&mut word));
        held.x87.fill_with(|| word() as i64);
        held.flags = word() & (ARITHMETIC | DIRECTION);
        // All exceptions masked; random exception flags, rounding mode, DAZ and FTZ.
        held.mxcsr = 0x1f80 | word() as u32 & 0xe07f;
        // All exceptions masked; random rounding mode; full precision.
        held.control = 0x037f | word() as u16 & 0x0c00;
        held
    }
}

/// The code that both vector widths share. `$load` and `$store` access one register each.
macro_rules! hold {
    ($name:ident, $load:literal, $store:literal, $register:literal, $end:literal) => {
        /// Loads the expected contents, counts down to 0, and stores the contents found.
        ///
        /// On entry, rdi points to the block and rsi is the count. The loop uses rdi and rcx; all
        /// other registers hold values. No instruction from `popfq` to `pushfq` writes flags.
        ///
        /// # Safety
        /// - **block**: valid for reads and writes.
        /// - **cpu**: the CPU has vectors of this width.
        #[unsafe(naked)]
        unsafe extern "sysv64" fn $name(block: *mut Block, rounds: u64) {
            naked_asm!(
                "push rbx", "push rbp", "push r12", "push r13", "push r14", "push r15",
                "stmxcsr [rdi + {mxcsr_before}]",
                "fnstcw [rdi + {control_before}]",
                "mov rcx, rsi",
                "push qword ptr [rdi + {flags}]",
                "popfq",
                "ldmxcsr [rdi + {mxcsr}]",
                "fldcw [rdi + {control}]",
                // The x87 stack, all eight registers.
                "fild qword ptr [rdi + {x87}]",
                "fild qword ptr [rdi + {x87} + 8]",
                "fild qword ptr [rdi + {x87} + 16]",
                "fild qword ptr [rdi + {x87} + 24]",
                "fild qword ptr [rdi + {x87} + 32]",
                "fild qword ptr [rdi + {x87} + 40]",
                "fild qword ptr [rdi + {x87} + 48]",
                "fild qword ptr [rdi + {x87} + 56]",
                concat!($load, " ", $register, "0, [rdi + {vectors}]"),
                concat!($load, " ", $register, "1, [rdi + {vectors} + 32]"),
                concat!($load, " ", $register, "2, [rdi + {vectors} + 64]"),
                concat!($load, " ", $register, "3, [rdi + {vectors} + 96]"),
                concat!($load, " ", $register, "4, [rdi + {vectors} + 128]"),
                concat!($load, " ", $register, "5, [rdi + {vectors} + 160]"),
                concat!($load, " ", $register, "6, [rdi + {vectors} + 192]"),
                concat!($load, " ", $register, "7, [rdi + {vectors} + 224]"),
                concat!($load, " ", $register, "8, [rdi + {vectors} + 256]"),
                concat!($load, " ", $register, "9, [rdi + {vectors} + 288]"),
                concat!($load, " ", $register, "10, [rdi + {vectors} + 320]"),
                concat!($load, " ", $register, "11, [rdi + {vectors} + 352]"),
                concat!($load, " ", $register, "12, [rdi + {vectors} + 384]"),
                concat!($load, " ", $register, "13, [rdi + {vectors} + 416]"),
                concat!($load, " ", $register, "14, [rdi + {vectors} + 448]"),
                concat!($load, " ", $register, "15, [rdi + {vectors} + 480]"),
                // The red zone: 16 words below rsp.
                ".set at, 0",
                ".rept 16",
                "mov rax, [rdi + {zone} + 8 * at]",
                "mov [rsp - 8 - 8 * at], rax",
                ".set at, at + 1",
                ".endr",
                "mov rax, [rdi + {general}]",
                "mov rbx, [rdi + {general} + 8]",
                "mov rdx, [rdi + {general} + 16]",
                "mov rsi, [rdi + {general} + 24]",
                "mov rbp, [rdi + {general} + 32]",
                "mov r8, [rdi + {general} + 40]",
                "mov r9, [rdi + {general} + 48]",
                "mov r10, [rdi + {general} + 56]",
                "mov r11, [rdi + {general} + 64]",
                "mov r12, [rdi + {general} + 72]",
                "mov r13, [rdi + {general} + 80]",
                "mov r14, [rdi + {general} + 88]",
                "mov r15, [rdi + {general} + 96]",
                "2:",
                "lea rcx, [rcx - 1]",
                "jrcxz 3f",
                "jmp 2b",
                "3:",
                "mov [rdi + {found} + {general}], rax",
                "mov [rdi + {found} + {general} + 8], rbx",
                "mov [rdi + {found} + {general} + 16], rdx",
                "mov [rdi + {found} + {general} + 24], rsi",
                "mov [rdi + {found} + {general} + 32], rbp",
                "mov [rdi + {found} + {general} + 40], r8",
                "mov [rdi + {found} + {general} + 48], r9",
                "mov [rdi + {found} + {general} + 56], r10",
                "mov [rdi + {found} + {general} + 64], r11",
                "mov [rdi + {found} + {general} + 72], r12",
                "mov [rdi + {found} + {general} + 80], r13",
                "mov [rdi + {found} + {general} + 88], r14",
                "mov [rdi + {found} + {general} + 96], r15",
                ".set at, 0",
                ".rept 16",
                "mov rax, [rsp - 8 - 8 * at]",
                "mov [rdi + {found} + {zone} + 8 * at], rax",
                ".set at, at + 1",
                ".endr",
                concat!($store, " [rdi + {found} + {vectors}], ", $register, "0"),
                concat!($store, " [rdi + {found} + {vectors} + 32], ", $register, "1"),
                concat!($store, " [rdi + {found} + {vectors} + 64], ", $register, "2"),
                concat!($store, " [rdi + {found} + {vectors} + 96], ", $register, "3"),
                concat!($store, " [rdi + {found} + {vectors} + 128], ", $register, "4"),
                concat!($store, " [rdi + {found} + {vectors} + 160], ", $register, "5"),
                concat!($store, " [rdi + {found} + {vectors} + 192], ", $register, "6"),
                concat!($store, " [rdi + {found} + {vectors} + 224], ", $register, "7"),
                concat!($store, " [rdi + {found} + {vectors} + 256], ", $register, "8"),
                concat!($store, " [rdi + {found} + {vectors} + 288], ", $register, "9"),
                concat!($store, " [rdi + {found} + {vectors} + 320], ", $register, "10"),
                concat!($store, " [rdi + {found} + {vectors} + 352], ", $register, "11"),
                concat!($store, " [rdi + {found} + {vectors} + 384], ", $register, "12"),
                concat!($store, " [rdi + {found} + {vectors} + 416], ", $register, "13"),
                concat!($store, " [rdi + {found} + {vectors} + 448], ", $register, "14"),
                concat!($store, " [rdi + {found} + {vectors} + 480], ", $register, "15"),
                $end,
                "stmxcsr [rdi + {found} + {mxcsr}]",
                "fnstcw [rdi + {found} + {control}]",
                "fistp qword ptr [rdi + {found} + {x87} + 56]",
                "fistp qword ptr [rdi + {found} + {x87} + 48]",
                "fistp qword ptr [rdi + {found} + {x87} + 40]",
                "fistp qword ptr [rdi + {found} + {x87} + 32]",
                "fistp qword ptr [rdi + {found} + {x87} + 24]",
                "fistp qword ptr [rdi + {found} + {x87} + 16]",
                "fistp qword ptr [rdi + {found} + {x87} + 8]",
                "fistp qword ptr [rdi + {found} + {x87}]",
                "pushfq",
                "pop qword ptr [rdi + {found} + {flags}]",
                // The ABI requires a clear direction flag.
                "cld",
                "ldmxcsr [rdi + {mxcsr_before}]",
                "fldcw [rdi + {control_before}]",
                "pop r15", "pop r14", "pop r13", "pop r12", "pop rbp", "pop rbx",
                "ret",
                found = const offset_of!(Block, found),
                mxcsr_before = const offset_of!(Block, mxcsr_before),
                control_before = const offset_of!(Block, control_before),
                general = const offset_of!(RegisterSet, general),
                zone = const offset_of!(RegisterSet, zone),
                vectors = const offset_of!(RegisterSet, vectors),
                x87 = const offset_of!(RegisterSet, x87),
                flags = const offset_of!(RegisterSet, flags),
                mxcsr = const offset_of!(RegisterSet, mxcsr),
                control = const offset_of!(RegisterSet, control),
            )
        }
    };
}

hold!(hold_sse, "movdqu", "movdqu", "xmm", "");
hold!(hold_avx, "vmovdqu", "vmovdqu", "ymm", "vzeroupper");

thread_local! {
    static OWN: Cell<usize> = const { Cell::new(0) };
}

/// Holds random values for about 20 microseconds at a time. Returns the number of rounds.
fn hold(number: usize, lane: &Heartbeat) -> u64 {
    let wide = number.is_multiple_of(2) && is_x86_feature_detected!("avx");
    let mut random = Random::new(number as u64);
    OWN.set(number);
    while !is_over() || lane.steps() == 0 {
        let held = RegisterSet::random(&mut random, wide);
        let mut block = Block { expected: held, found: ZEROES, mxcsr_before: 0, control_before: 0 };
        block.expected.flags |= ALWAYS;
        linked::set_errno(number as i32);
        let hold = if wide { hold_avx } else { hold_sse };
        // SAFETY: block — a local; cpu — checked above.
        unsafe { hold(&raw mut block, 20_000) };
        block.found.flags &= ARITHMETIC | DIRECTION | ALWAYS;
        assert_eq!(block.expected, block.found, "changed by a preemption");
        assert_eq!(linked::errno(), number as i32);
        assert_eq!(OWN.get(), number);
        lane.step();
    }
    lane.steps()
}

pub(crate) fn registers() {
    const WANTED: u64 = 100_000;
    let all = spawn_group("a goroutine that holds registers", 2 * runtime::procs() + 2, hold);
    if harness::is_long() {
        while harness::preemptions() < WANTED {
            gosched::time::sleep(harness::MILLI);
        }
    }
    harness::wait_for_moves_and_stop();
    println!("least {}", all.join().iter().min().unwrap());
}
