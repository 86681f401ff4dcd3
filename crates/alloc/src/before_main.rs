//! Installs the fork handler before other constructors (functions that run before `main`). This
//! file never creates a cache: `cache` does, when a thread first needs one.

/// The number of the section places this constructor before constructors without a number.
#[used]
#[unsafe(link_section = ".init_array.00101")]
static BEFORE_MAIN: extern "C" fn() = {
    extern "C" fn before_main() {
        crate::fork::install();
    }
    before_main
};
