//! Models of the protocols, checked by loom in every order: `RUSTFLAGS="--cfg loom" cargo test --lib`.
