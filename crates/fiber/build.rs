//! Sets two cfgs: `ported` if this crate has a port to the target, and `interposed` if it also
//! replaces libc functions.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(ported)");
    println!("cargo::rustc-check-cfg=cfg(interposed)");
    let target = |what: &str| env::var(format!("CARGO_CFG_TARGET_{what}")).unwrap_or_default();
    let ported = target("OS") == "linux" && target("ARCH") == "x86_64" && target("ENV") == "gnu";
    // `--cfg gosched_no_port` makes a system with a port behave like one without.
    if !ported || env::var_os("CARGO_CFG_GOSCHED_NO_PORT").is_some() {
        return;
    }
    println!("cargo::rustc-cfg=ported");
    if env::var_os("CARGO_FEATURE_THREADS").is_none() && !has_sanitizer() {
        println!("cargo::rustc-cfg=interposed");
    }
}

/// Returns whether this build has a sanitizer that tracks the stack of each thread. Such a
/// sanitizer would report a goroutine's frames as errors. ThreadSanitizer also calls functions that
/// this crate would replace before it can run instrumented code; the replacements are instrumented,
/// so the program would crash before `main`.
fn has_sanitizer() -> bool {
    let sanitizers = env::var("CARGO_CFG_SANITIZE").unwrap_or_default();
    sanitizers.split(',').any(|name| !["", "cfi", "kcfi"].contains(&name))
}
