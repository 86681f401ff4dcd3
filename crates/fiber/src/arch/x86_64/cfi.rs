//! Instructions that change a frame, with what unwind tables must say about them: one piece each.

/// Pushes a register, and says where it is.
macro_rules! push {
    ($register:literal) => {
        concat!(
            "push ",
            $register,
            "\n.cfi_adjust_cfa_offset 8\n.cfi_rel_offset ",
            $register,
            ", 0"
        )
    };
}

/// Pops a register, and says that it is the caller's again.
macro_rules! pop {
    ($register:literal) => {
        concat!("pop ", $register, "\n.cfi_adjust_cfa_offset -8\n.cfi_restore ", $register)
    };
}

pub(super) use {pop, push};
