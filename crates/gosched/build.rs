//! Sets the cfg `ported` on targets that have a port, so that the condition has one name.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(ported)");
    let target = |what: &str| env::var(format!("CARGO_CFG_TARGET_{what}")).unwrap_or_default();
    let ported = target("OS") == "linux" && target("ARCH") == "x86_64" && target("ENV") == "gnu";
    // `--cfg gosched_no_port` builds for a target with a port as if it had none.
    if ported && env::var_os("CARGO_CFG_GOSCHED_NO_PORT").is_none() {
        println!("cargo::rustc-cfg=ported");
    }
}
