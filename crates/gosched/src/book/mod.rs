//! The design, one chapter per question a new contributor asks.
//!
//! What a goroutine is made of (switch, identity, stacks, overflow) is in
//! [`gosched_fiber::book`].

#[doc = include_str!("01_map.md")]
pub mod map {}

#[doc = include_str!("02_life_of_a_g.md")]
pub mod life_of_a_g {}

#[doc = include_str!("03_run_queues.md")]
pub mod run_queues {}

#[doc = include_str!("04_park_and_ready.md")]
pub mod park_and_ready {}

#[doc = include_str!("05_waking_threads.md")]
pub mod waking_threads {}

#[doc = include_str!("06_stopping_the_world.md")]
pub mod stopping_the_world {}

#[doc = include_str!("07_memory.md")]
pub mod memory {}

#[doc = include_str!("08_waiting.md")]
pub mod waiting {}

#[doc = include_str!("09_blocking.md")]
pub mod blocking {}

#[doc = include_str!("10_preemption.md")]
pub mod preemption {}

#[doc = include_str!("11_differences_from_go.md")]
pub mod differences_from_go {}

#[doc = include_str!("12_order_and_scenarios.md")]
pub mod order_and_scenarios {}

#[doc = include_str!("13_input_and_output.md")]
pub mod input_and_output {}

#[doc = include_str!("14_seeing.md")]
pub mod seeing {}

#[doc = include_str!("15_numbers.md")]
pub mod numbers {}

#[doc = include_str!("16_hints.md")]
pub mod hints {}
