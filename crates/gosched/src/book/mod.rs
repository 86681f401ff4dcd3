//! The design, one chapter for each question that a new contributor asks.
//!
//! Each chapter states the problem, the rule, why the rule cannot fail, the designs that were
//! rejected, the files, and the tests that fail when the rule is broken. Where a chapter lists what
//! code does, it quotes the code, and the house rule `chapters_quote_the_code` compares. Start with
//! [`map`] and [`life_of_a_g`]; ARCHITECTURE.md, at the root of the repository, has the picture.

#[doc = include_str!("map.md")]
pub mod map {}

#[doc = include_str!("life_of_a_g.md")]
pub mod life_of_a_g {}

#[doc = include_str!("switch.md")]
pub mod switch {}

#[doc = include_str!("identity.md")]
pub mod identity {}

#[doc = include_str!("stacks.md")]
pub mod stacks {}

#[doc = include_str!("stack_overflow.md")]
pub mod stack_overflow {}

#[doc = include_str!("run_queues.md")]
pub mod run_queues {}

#[doc = include_str!("park_and_ready.md")]
pub mod park_and_ready {}

#[doc = include_str!("waking_threads.md")]
pub mod waking_threads {}

#[doc = include_str!("stopping_the_world.md")]
pub mod stopping_the_world {}

#[doc = include_str!("blocking_calls.md")]
pub mod blocking_calls {}

#[doc = include_str!("preemption.md")]
pub mod preemption {}

#[doc = include_str!("waiting.md")]
pub mod waiting {}

#[doc = include_str!("input_and_output.md")]
pub mod input_and_output {}

#[doc = include_str!("memory.md")]
pub mod memory {}

#[doc = include_str!("inspection.md")]
pub mod inspection {}

#[doc = include_str!("metrics.md")]
pub mod metrics {}

#[doc = include_str!("scheduler_events.md")]
pub mod scheduler_events {}

#[doc = include_str!("leak_hints.md")]
pub mod leak_hints {}

#[doc = include_str!("differences_from_go.md")]
pub mod differences_from_go {}

#[doc = include_str!("order_and_scenarios.md")]
pub mod order_and_scenarios {}

#[doc = include_str!("dependencies.md")]
pub mod dependencies {}
