//! Preemption: how late a timer is beside goroutines that never yield, and how evenly they share.

use crate::judge::Case;

pub(crate) const CASES: &[Case] = &[];
