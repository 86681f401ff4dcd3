//! Sockets, files and processes beside a load: how late.

use crate::judge::Case;

pub(crate) const CASES: &[Case] = &[];
