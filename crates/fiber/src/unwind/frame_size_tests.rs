//! Tests of the frame size analysis: functions given as bytes, including some that must be refused,
//! and all functions of this program.

use super::*;
use crate::arch::{Registers, capture_registers};
use crate::unwind::walker::{End, Walker};
use gimli::{EhFrame, UnwindSection};
use std::arch::naked_asm;
use std::cell::RefCell;
use std::hint::black_box;

const START: usize = 0x1000;
const RBX: u16 = 3;
const R15: u16 = 15;

const PUSH_RBP: &[u8] = &[0x55];
const SET_FRAME: &[u8] = &[0x48, 0x89, 0xe5];
const PUSH_R15: &[u8] = &[0x41, 0x57];
const PUSH_RBX: &[u8] = &[0x53];
const SUB_40: &[u8] = &[0x48, 0x83, 0xec, 0x28];
const PUSH_1: &[u8] = &[0x6a, 1];
const CALL: &[u8] = &[0xe8, 0, 0, 0, 0];
const RET: &[u8] = &[0xc3];
/// Jumps over two bytes.
const JE_2: &[u8] = &[0x74, 2];
const SYSCALL: &[u8] = &[0x0f, 0x05];

/// The usual start of a function. Its frame has 72 bytes.
const BEGIN: &[&[u8]] = &[PUSH_RBP, SET_FRAME, PUSH_R15, PUSH_RBX, SUB_40];
const SIZE: usize = 72;

fn begin_and(rest: &[&[u8]]) -> Vec<u8> {
    [BEGIN, rest].concat().concat()
}

/// Returns a function with the unwind tables of code that begins with `push rbp; mov rbp, rsp`.
fn function(code: &[u8], saved: &[(u16, usize)]) -> Function {
    let rows = vec![
        Row { range: START..START + 1, base: CfaBase::Stack(8), saved: Vec::new() },
        Row { range: START + 1..START + 4, base: CfaBase::Stack(16), saved: vec![(FP, 16)] },
        Row {
            range: START + 4..START + code.len(),
            base: CfaBase::Frame(16),
            saved: saved.to_vec(),
        },
    ];
    Function { range: START..START + code.len(), rows }
}

/// Returns the depth at the first `call` in `code`.
fn depth_of(function: &Function, code: &[u8], call: &[u8]) -> Option<usize> {
    let at = code.windows(call.len()).position(|bytes| bytes == call).unwrap();
    function.depth(&function.paths(code)?, START + at + call.len(), call == SYSCALL)
}

const SAVED: [(u16, usize); 3] = [(FP, 16), (R15, 24), (RBX, 32)];

fn depth(code: &[u8]) -> Option<usize> {
    depth_of(&function(code, &SAVED), code, CALL)
}

#[test]
fn the_size_of_a_frame_is_computed_from_the_code() {
    assert_eq!(depth(&begin_and(&[CALL, RET])), Some(SIZE));
    assert_eq!(depth(&begin_and(&[CALL])), Some(SIZE), "one that never returns");
    assert_eq!(depth(&begin_and(&[JE_2, PUSH_R15, CALL])), None, "pushed, or not");
    assert_eq!(depth(&begin_and(&[JE_2, &[0x66, 0x90], CALL])), Some(SIZE), "two ways");
    // A loop around the call.
    assert_eq!(depth(&begin_and(&[CALL, &[0x75, 0xf9], RET])), Some(SIZE));
    // Arguments on the stack count until they are removed.
    assert_eq!(depth(&begin_and(&[PUSH_1, CALL])), Some(SIZE + 8));
    assert_eq!(depth(&begin_and(&[PUSH_1, &[0x48, 0x83, 0xc4, 8], CALL])), Some(SIZE));
    let other = begin_and(&[SYSCALL, RET]);
    assert_eq!(depth_of(&function(&other, &SAVED), &other, SYSCALL), Some(SIZE));
    // A stack probe, which touches the new page.
    let probe: &[u8] = &[0x48, 0x81, 0xec, 0, 0x10, 0, 0, 0x48, 0xc7, 0x04, 0x24, 0, 0, 0, 0];
    assert_eq!(depth(&begin_and(&[probe, CALL])), Some(SIZE + 4096));
}

#[test]
fn a_frame_size_that_depends_on_run_time_values_is_refused() {
    let align: &[u8] = &[0x48, 0x83, 0xe4, 0xe0];
    let alloca: &[u8] = &[0x48, 0x29, 0xc4];
    assert_eq!(depth(&begin_and(&[align, CALL])), None);
    assert_eq!(depth(&begin_and(&[alloca, CALL])), None);
    assert_eq!(depth(&begin_and(&[CALL, alloca, CALL])), None, "it may be a loop");
    assert_eq!(depth(&begin_and(&[CALL, RET, alloca, RET])), None, "where no way is seen to lead");
    // A loop that moves the stack pointer.
    assert_eq!(depth(&begin_and(&[PUSH_1, &[0x75, 0xfc], CALL])), None);
    // The stack pointer is restored from the frame pointer: the distance is not known afterwards.
    assert_eq!(depth(&begin_and(&[&[0x48, 0x8d, 0x65, 0xe0], CALL])), None);
}

#[test]
fn code_that_the_analysis_cannot_follow_is_refused() {
    assert_eq!(depth(&begin_and(&[&[0x06], CALL])), None);
    assert_eq!(depth(&begin_and(&[CALL, RET, &[0x06]])), None);
    // A jump into the middle of an instruction.
    assert_eq!(depth(&begin_and(&[&[0x74, 1], SUB_40, CALL])), None);
    // Only a jump table could lead to the call.
    assert_eq!(depth(&begin_and(&[&[0xff, 0xe0], CALL])), None);
    // No call ends at these addresses.
    let code = begin_and(&[CALL, &[0x90], RET]);
    let function = function(&code, &SAVED);
    let ways = function.paths(&code).unwrap();
    let end = START + code.len() - 2;
    assert_eq!(function.depth(&ways, end, false), Some(SIZE));
    for (pc, system) in [(end + 1, false), (end - 1, false), (end, true)] {
        assert_eq!(function.depth(&ways, pc, system), None);
    }
}

#[test]
fn code_that_contradicts_its_unwind_tables_is_refused() {
    let code = begin_and(&[CALL, RET]);
    for saved in [
        [(FP, 16), (R15, 24), (RBX, 40)].as_slice(),
        &[(FP, 16), (R15, 32), (RBX, 24)],
        &[(FP, 16), (R15, 24), (RBX, 32), (12, 48)],
    ] {
        assert_eq!(depth_of(&function(&code, saved), &code, CALL), None, "{saved:?}");
    }
    // The second half of a function, which begins with the frame of the first half.
    let mut half = function(&code, &SAVED);
    half.rows[0].base = CfaBase::Frame(16);
    assert_eq!(depth_of(&half, &code, CALL), None);
    // The tables compute the frame's address from another register, or not as the code does.
    for base in [CfaBase::Other, CfaBase::Frame(24), CfaBase::Stack(16)] {
        let mut other = function(&code, &SAVED);
        other.rows[2].base = base;
        assert_eq!(depth_of(&other, &code, CALL), None, "{base:?}");
    }
}

#[test]
fn the_depth_after_a_call_that_never_returns_is_unknown() {
    // The first call does not return. The code after it belongs to a part that has no frame yet.
    let code = [PUSH_1, CALL, PUSH_RBP, SET_FRAME, CALL].concat();
    let (first, second) = (START + 7, START + code.len());
    let row = |range, base| Row { range, base, saved: Vec::new() };
    let rows = vec![
        row(START..START + 2, CfaBase::Stack(8)),
        row(START + 2..first, CfaBase::Stack(16)),
        row(first..first + 1, CfaBase::Stack(8)),
        row(first + 1..first + 4, CfaBase::Stack(16)),
        row(first + 4..second, CfaBase::Frame(16)),
    ];
    let function = Function { range: START..second, rows };
    let ways = function.paths(&code).unwrap();
    assert_eq!(function.depth(&ways, first, false), Some(16));
    assert_eq!(function.depth(&ways, second, false), None);
}

#[test]
fn a_jump_to_another_function_is_an_exit_only_if_the_frame_is_gone() {
    let jump: &[u8] = &[0xe9, 0, 1, 0, 0];
    let exits = |code: &[u8], base| {
        let range = START..START + code.len();
        let rows = vec![Row { range: range.clone(), base: CfaBase::Stack(8), saved: Vec::new() }];
        let mut function = Function { range, rows };
        if let Some((at, base)) = base {
            function.rows[0].range.end = START + at;
            let range = START + at..function.range.end;
            function.rows.push(Row { range, base, saved: Vec::new() });
        }
        function.exits(&function.paths(code).unwrap())
    };
    assert_eq!(exits(jump, None), [START + 5 + 256]);
    assert_eq!(exits(&[&[0x74, 0x40], RET].concat(), None), [START + 2 + 64]);
    let inside = [SUB_40, jump].concat();
    assert_eq!(exits(&inside, Some((4, CfaBase::Stack(48)))), [0; 0]);
    assert_eq!(exits(&[&[0xeb, 0], RET].concat(), None), [0; 0], "in itself");
}

/// For code without a frame pointer, the tables state the size of the frame at every instruction.
/// The analysis must find the same size, in all code that is loaded.
#[test]
fn computed_frame_sizes_match_the_unwind_tables_of_all_loaded_code() {
    let tables = Tables::now();
    let mut context = UnwindContext::new();
    let (mut same, mut functions) = (0, 0);
    let different = RefCell::new(Vec::new());
    for module in &tables.modules {
        let (bases, frames) = (module.bases(), module.frames());
        let mut entries = frames.entries(&bases);
        while let Ok(Some(entry)) = entries.next() {
            let gimli::CieOrFde::Fde(entry) = entry else { continue };
            let Ok(entry) = entry.parse(EhFrame::cie_from_offset) else { continue };
            let start = entry.initial_address() as usize;
            let Some(function) = Function::at(module, start, &mut context) else { continue };
            let Some(code) = code(&function.range) else { continue };
            let Some(instructions) = decode_all(start, &code) else { continue };
            // The state after a call that never returns can be anything, also behind the padding
            // after that call.
            let after_call = |at: usize| {
                let mut before =
                    instructions.range(..at).rev().map(|(at, before)| (*at, before.effect));
                let is_filler =
                    |at: usize| matches!(code[at - start..], [0x0f, 0x1f, ..] | [0x66, ..]);
                let before = before.find(|(at, _)| !is_filler(*at));
                before.is_some_and(|(_, what)| matches!(what, Effect::Call(_)))
            };
            let ways = function.paths_where(&code, |at, stack| {
                let fits = function.row(at).is_some_and(|row| row.fits(stack));
                if !fits && !after_call(at) {
                    different.borrow_mut().push((at - module.base, stack.clone()));
                }
                fits
            });
            let Some(ways) = ways else { continue };
            functions += 1;
            same += ways.stacks.values().flatten().count();
        }
    }
    let different = different.into_inner();
    println!("{functions} functions, {same} instructions, {} not so", different.len());
    assert!(functions > 1000 && same > 100_000, "{functions}, {same}");
    // The exceptions are loops over pages, and functions of libc whose tables are wrong.
    assert!(different.len() * 10_000 < same, "{different:x?}");
}

/// Calls `_then(_seen)` from a frame that uses the frame pointer. First stores the address of its
/// return address in the first word of `_seen`.
#[unsafe(naked)]
extern "C" fn framed(_then: extern "C" fn(&mut Seen), _seen: &mut Seen) {
    naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "push rbx",
        ".cfi_offset rbx, -24",
        "sub rsp, 24",
        "lea rax, [rbp + 8]",
        "mov [rsi], rax",
        "mov rax, rdi",
        "mov rdi, rsi",
        "call rax",
        "add rsp, 24",
        "pop rbx",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
    )
}

/// Calls [`framed`] from another frame that uses the frame pointer.
#[unsafe(naked)]
extern "C" fn framed_twice(_then: extern "C" fn(&mut Seen), _seen: &mut Seen) {
    naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "call {framed}",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
        framed = sym framed,
    )
}

/// Jumps to [`framed`].
#[unsafe(naked)]
extern "C" fn jumps(_then: extern "C" fn(&mut Seen), _seen: &mut Seen) {
    naked_asm!(".cfi_startproc", "jmp {framed}", ".cfi_endproc", framed = sym framed)
}

/// Jumps to [`jumps`] after pushing and popping a word.
#[unsafe(naked)]
extern "C" fn ends(_then: extern "C" fn(&mut Seen), _seen: &mut Seen) {
    naked_asm!(
        ".cfi_startproc",
        "push rsi",
        ".cfi_def_cfa_offset 16",
        "pop rsi",
        ".cfi_def_cfa_offset 8",
        "jmp {jumps}",
        ".cfi_endproc",
        jumps = sym jumps,
    )
}

/// Results of two walks: one without the frame pointer, and one with all registers.
#[repr(C)]
#[derive(Debug, Default)]
struct Seen {
    /// Address of the return address of [`framed`].
    back: usize,
    /// A word that the walk without the frame pointer reads instead of the real one: distance from
    /// `back` in bytes, and value.
    instead: Option<(isize, usize)>,
    /// Code addresses that the walk without the frame pointer found.
    found: Vec<usize>,
    /// Code addresses that the walk with all registers found.
    all: Vec<usize>,
    /// How the walk without the frame pointer ended.
    end: Option<End>,
}

extern "C" fn looks(seen: &mut Seen) {
    let mut start = Registers::default();
    // SAFETY: to — a local variable.
    unsafe { capture_registers(&raw mut start) };
    // SAFETY: the tables lead only to words of live frames.
    let read = |address: usize| Some(unsafe { (address as *const usize).read_unaligned() });
    let mut frames = Vec::new();
    Walker::new().walk(&start, false, read, |frame| {
        frames.push(frame);
        true
    });
    // The walk below begins at the caller: this function may save the frame pointer, and a walk
    // from here would find it.
    let [_, caller, ..] = frames[..] else { unreachable!("this function has a caller") };
    seen.all = frames[1..].iter().map(|frame| frame.at).collect();
    let back = seen.back;
    let changed = |address: usize| match seen.instead {
        Some((at, word)) if address == back.wrapping_add_signed(at) => Some(word),
        // Memory elsewhere does not belong to the stack.
        _ if address.abs_diff(back) >= 1 << 14 => None,
        _ => read(address),
    };
    let found = &mut seen.found;
    seen.end = Some(Walker::new().walk_two(caller.pc, caller.sp, false, &changed, &mut |frame| {
        found.push(frame.at);
        true
    }));
}

type Way = extern "C" fn(extern "C" fn(&mut Seen), &mut Seen);

/// Runs `call`, which must run [`looks`] through [`framed`], and returns what `looks` found.
/// `instead` becomes [`Seen::instead`].
#[inline(never)]
fn seen(call: impl Fn(&mut Seen), instead: Option<(isize, usize)>) -> Seen {
    let mut seen = Seen { instead, ..Seen::default() };
    call(&mut seen);
    black_box(seen)
}

#[test]
fn a_walk_without_the_frame_pointer_finds_the_same_frames() {
    let calls: [&dyn Fn(&mut Seen); 5] = [
        &|seen| framed(looks, seen),
        &|seen| framed_twice(looks, seen),
        &|seen| jumps(looks, seen),
        &|seen| ends(looks, seen),
        &|seen| black_box(framed as Way)(looks, seen),
    ];
    for (number, call) in calls.into_iter().enumerate() {
        let seen = seen(call, None);
        assert_eq!(seen.end, Some(End::Complete), "{number}: {seen:x?}");
        assert_eq!(seen.found, seen.all, "{number}");
        assert!(seen.found.len() > 5);
    }
}

/// Returns the address that a call in another function returns to.
#[inline(never)]
fn elsewhere() -> usize {
    let mut registers = Registers::default();
    // SAFETY: to — a local variable.
    unsafe { capture_registers(&raw mut registers) };
    registers.pc
}

#[test]
fn a_walk_ends_before_an_impossible_frame() {
    let call = |seen: &mut Seen| framed(looks, seen);
    let good = seen(call, None);
    let inside = framed as Way as usize;
    let at = good.all.iter().position(|at| (inside..inside + 64).contains(at)).unwrap();
    let back = good.all[at + 1] + 1;
    let same = seen(call, Some((0, back)));
    assert_eq!(same.found, same.all, "as it is");
    for word in [0, 8, back + 1, back - 1, inside, elsewhere(), good.back] {
        let seen = seen(call, Some((0, word)));
        assert_eq!(seen.end, Some(End::Broken), "{word:#x}");
        assert_eq!(seen.found, seen.all[..=at], "{word:#x}");
    }
    // Wrong values of the saved frame pointer, where the caller's frame address is relative to it.
    let call = |seen: &mut Seen| framed_twice(looks, seen);
    let good = seen(call, None);
    for word in [0, 8, good.back - 64, inside] {
        let seen = seen(call, Some((-8, word)));
        assert_eq!((seen.end, seen.found.len()), (Some(End::Broken), at + 1), "{word:#x}");
    }
}
