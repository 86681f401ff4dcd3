//! Tests of the decoder: the effect of instructions on the stack pointer, and unknown instructions.

use super::*;

/// Returns the effect of `bytes`, which must be exactly one instruction. Other code follows it.
fn what(bytes: &[u8]) -> Option<Effect> {
    let code = [bytes, &[0x90; 16]].concat();
    let found = decode(&code)?;
    assert_eq!(found.length, bytes.len(), "{bytes:x?}");
    Some(found.effect)
}

#[test]
fn the_instructions_of_prologues_are_decoded() {
    assert_eq!(what(&[0xf3, 0x0f, 0x1e, 0xfa]), Some(Effect::Other), "endbr64");
    assert_eq!(what(&[0x55]), Some(Effect::Push(Some(6))), "push rbp");
    assert_eq!(what(&[0x41, 0x57]), Some(Effect::Push(Some(15))), "push r15");
    assert_eq!(what(&[0x57]), Some(Effect::Push(Some(5))), "push rdi");
    assert_eq!(what(&[0x6a, 1]), Some(Effect::Push(None)), "push 1");
    assert_eq!(what(&[0xff, 0x75, 0xf8]), Some(Effect::Push(None)), "push [rbp - 8]");
    assert_eq!(what(&[0x48, 0x89, 0xe5]), Some(Effect::SetFp(0)), "mov rbp, rsp");
    assert_eq!(what(&[0x48, 0x8b, 0xec]), Some(Effect::SetFp(0)), "mov rbp, rsp");
    let lea = what(&[0x48, 0x8d, 0xac, 0x24, 0x80, 0, 0, 0]);
    assert_eq!(lea, Some(Effect::SetFp(128)), "lea rbp, [rsp + 128]");
    assert_eq!(what(&[0x48, 0x83, 0xec, 0x28]), Some(Effect::AdjustSp(-40)), "sub rsp, 40");
    assert_eq!(what(&[0x48, 0x83, 0xc4, 0x80]), Some(Effect::AdjustSp(-128)), "add rsp, -128");
    let sub = what(&[0x48, 0x81, 0xec, 0, 0x10, 0, 0]);
    assert_eq!(sub, Some(Effect::AdjustSp(-4096)), "sub rsp, 4096");
    assert_eq!(
        what(&[0x48, 0x8d, 0x64, 0x24, 0xd8]),
        Some(Effect::AdjustSp(-40)),
        "lea rsp, [rsp - 40]"
    );
    let probe = what(&[0x48, 0xc7, 0x04, 0x24, 0, 0, 0, 0]);
    assert_eq!(probe, Some(Effect::Other), "mov qword ptr [rsp], 0");
}

#[test]
fn the_instructions_of_epilogues_calls_and_jumps_are_decoded() {
    assert_eq!(what(&[0x5b]), Some(Effect::Pop(Some(3))), "pop rbx");
    assert_eq!(what(&[0xc9]), Some(Effect::RestoreSpFromFp), "leave");
    assert_eq!(what(&[0x48, 0x89, 0xec]), Some(Effect::RestoreSpFromFp), "mov rsp, rbp");
    assert_eq!(
        what(&[0x48, 0x8d, 0x65, 0xd8]),
        Some(Effect::RestoreSpFromFp),
        "lea rsp, [rbp - 40]"
    );
    assert_eq!(what(&[0xc3]), Some(Effect::Stop), "ret");
    assert_eq!(what(&[0x0f, 0x0b]), Some(Effect::Stop), "ud2");
    assert_eq!(what(&[0x0f, 0x05]), Some(Effect::Syscall), "syscall");
    assert_eq!(what(&[0x75, 0xf0]), Some(Effect::Branch(-16)), "jne");
    assert_eq!(what(&[0x0f, 0x84, 0, 1, 0, 0]), Some(Effect::Branch(256)), "je");
    assert_eq!(what(&[0xeb, 2]), Some(Effect::Jump(Target::Code(2))), "jmp");
    assert_eq!(what(&[0xff, 0xe0]), Some(Effect::Jump(Target::Unknown)), "jmp rax");
    let slot = |kind| what(&[0xff, kind, 16, 0, 0, 0]);
    assert_eq!(slot(0x15), Some(Effect::Call(Target::Slot(16))), "call [rip + 16]");
    assert_eq!(slot(0x25), Some(Effect::Jump(Target::Slot(16))), "jmp [rip + 16]");
    assert_eq!(what(&[0xe8, 1, 0, 0, 0]), Some(Effect::Call(Target::Code(1))), "call");
    let narrow = what(&[0x67, 0xe8, 1, 0, 0, 0]);
    assert_eq!(narrow, Some(Effect::Call(Target::Code(1))), "addr32 call");
    assert_eq!(what(&[0x41, 0xff, 0xd4]), Some(Effect::Call(Target::Unknown)), "call r12");
    assert_eq!(what(&[0xff, 0x50, 0x18]), Some(Effect::Call(Target::Unknown)), "call [rax + 24]");
}

#[test]
fn only_instructions_that_overwrite_the_stack_pointer_make_it_unknown() {
    let all: [&[u8]; 12] = [
        &[0x48, 0x83, 0xe4, 0xe0],       // and rsp, -32
        &[0x48, 0x29, 0xc4],             // sub rsp, rax
        &[0x48, 0x2b, 0x65, 0xf0],       // sub rsp, [rbp - 16]
        &[0x48, 0x89, 0xc4],             // mov rsp, rax
        &[0x48, 0x8b, 0x26],             // mov rsp, [rsi]
        &[0x48, 0x8d, 0x24, 0x04],       // lea rsp, [rsp + rax]
        &[0x48, 0x94],                   // xchg rsp, rax
        &[0x48, 0x87, 0xe0],             // xchg rax, rsp
        &[0x83, 0xec, 0x28],             // sub esp, 40
        &[0xbc, 0, 0, 0, 0],             // mov esp, 0
        &[0x48, 0x0f, 0x44, 0xe0],       // cmove rsp, rax
        &[0x48, 0xc7, 0xc4, 0, 0, 0, 0], // mov rsp, 0
    ];
    for bytes in all {
        assert_eq!(what(bytes), Some(Effect::UnknownSp), "{bytes:x?}");
    }
    // Instructions that only read the stack pointer, or write a register encoded with the same
    // bits.
    let all: [&[u8]; 8] = [
        &[0x49, 0x89, 0xc4],                   // mov r12, rax
        &[0x49, 0x29, 0xc4],                   // sub r12, rax
        &[0x48, 0x39, 0xc4],                   // cmp rsp, rax
        &[0x48, 0x89, 0x64, 0x24, 0x08],       // mov [rsp + 8], rsp
        &[0x48, 0x89, 0xe7],                   // mov rdi, rsp
        &[0x0f, 0x28, 0xe0],                   // movaps xmm4, xmm0
        &[0xc5, 0xf8, 0x28, 0xe0],             // vmovaps xmm4, xmm0
        &[0x62, 0xf1, 0x7c, 0x48, 0x28, 0xe0], // vmovaps zmm4, zmm0
    ];
    for bytes in all {
        assert_eq!(what(bytes), Some(Effect::Other), "{bytes:x?}");
    }
}

#[test]
fn unsupported_instructions_are_not_decoded() {
    let all: [&[u8]; 8] = [
        &[0x06],                   // not an instruction
        &[0xc8, 0, 0, 0],          // enter
        &[0x5c],                   // pop rsp
        &[0xcf],                   // iret
        &[0x66, 0x50],             // push ax
        &[0x66, 0xe8, 0, 0],       // call with 16-bit operands: processors disagree
        &[0x48, 0x81, 0xec, 0, 0], // the last two bytes are missing
        &[],
    ];
    for bytes in all {
        assert_eq!(decode(bytes), None, "{bytes:x?}");
    }
    assert_eq!(decode(&[0x2e; 16]), None);
    assert_eq!(decode(&[[0x2e; 15].as_slice(), &[0x90]].concat()), None, "too long");
}
