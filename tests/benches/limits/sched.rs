//! Blocking calls, sysmon, idle processes, threads and memory: how late and at what cost.

use crate::judge::Case;

pub(crate) const CASES: &[Case] = &[];
