//! What must be done before anybody else's functions before `main`.

/// Before functions without a number.
#[used]
#[unsafe(link_section = ".init_array.00101")]
static BEFORE_MAIN: extern "C" fn() = {
    extern "C" fn before_main() {
        crate::fork::install();
    }
    before_main
};
