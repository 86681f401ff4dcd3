//! The design, one chapter per question a new contributor asks.
//!
//! Each says the problem, the rule, why it cannot fail, what we rejected and why, which file, and
//! which test breaks.

#[doc = include_str!("01_switch.md")]
pub mod switch {}

#[doc = include_str!("02_identity.md")]
pub mod identity {}

#[doc = include_str!("03_stacks.md")]
pub mod stacks {}

#[doc = include_str!("04_overflow.md")]
pub mod overflow {}

#[doc = include_str!("05_dependencies.md")]
pub mod dependencies {}
