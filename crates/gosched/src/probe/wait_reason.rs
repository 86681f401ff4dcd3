//! Why a G waits, in Go's words where Go has them. A reason never affects scheduling: only reports
//! and metrics use it.

/// What a goroutine waits for. Displayed as in a dump: in Go's words where Go has them.
// Go: waitReason.
#[repr(u8)]
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitReason {
    /// The goroutine does not wait, or the reason is not known.
    None,
    /// `park`.
    Park,
    /// `join`, and the end of a `scope`.
    Join,
    /// `run`, until its goroutine has ended.
    Run,
    /// A receive on a channel.
    ChanReceive,
    /// A receive on `chan::never`.
    ChanReceiveNil,
    /// A send on a channel.
    ChanSend,
    /// A `select`.
    Select,
    /// A `select` in which no arm can ever become ready.
    SelectNoCases,
    /// `time::sleep`.
    Sleep,
    /// `Mutex::lock`.
    Mutex,
    /// `RwLock::read`.
    RwLockRead,
    /// `RwLock::write`.
    RwLockWrite,
    /// `Condvar::wait`.
    Condvar,
    /// `WaitGroup::wait`.
    WaitGroup,
    /// `Semaphore::acquire`.
    Semaphore,
    /// `Barrier::wait`.
    Barrier,
    /// `block_on`.
    BlockOn,
    /// I/O on a polled descriptor.
    Io,
}

impl WaitReason {
    const ALL: [WaitReason; 19] = [
        WaitReason::None,
        WaitReason::Park,
        WaitReason::Join,
        WaitReason::Run,
        WaitReason::ChanReceive,
        WaitReason::ChanReceiveNil,
        WaitReason::ChanSend,
        WaitReason::Select,
        WaitReason::SelectNoCases,
        WaitReason::Sleep,
        WaitReason::Mutex,
        WaitReason::RwLockRead,
        WaitReason::RwLockWrite,
        WaitReason::Condvar,
        WaitReason::WaitGroup,
        WaitReason::Semaphore,
        WaitReason::Barrier,
        WaitReason::BlockOn,
        WaitReason::Io,
    ];

    pub(crate) fn from_number(number: u8) -> WaitReason {
        WaitReason::ALL.get(usize::from(number)).copied().unwrap_or(WaitReason::None)
    }

    /// Returns the reason as a dump prints it.
    pub(crate) fn words(self) -> &'static str {
        match self {
            WaitReason::None => "",
            WaitReason::Park => "park",
            WaitReason::Join => "join",
            WaitReason::Run => "run",
            WaitReason::ChanReceive => "chan receive",
            WaitReason::ChanReceiveNil => "chan receive (nil chan)",
            WaitReason::ChanSend => "chan send",
            WaitReason::Select => "select",
            WaitReason::SelectNoCases => "select (no cases)",
            WaitReason::Sleep => "sleep",
            WaitReason::Mutex => "sync.Mutex.Lock",
            WaitReason::RwLockRead => "sync.RWMutex.RLock",
            WaitReason::RwLockWrite => "sync.RWMutex.Lock",
            WaitReason::Condvar => "sync.Cond.Wait",
            WaitReason::WaitGroup => "sync.WaitGroup.Wait",
            WaitReason::Semaphore => "semaphore",
            WaitReason::Barrier => "barrier",
            WaitReason::BlockOn => "block_on",
            WaitReason::Io => "IO wait",
        }
    }
}

impl std::fmt::Display for WaitReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.words())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_reasons_convert_to_numbers_and_back() {
        for (number, reason) in WaitReason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, number);
            assert_eq!(WaitReason::from_number(number as u8), reason);
        }
        assert_eq!(WaitReason::from_number(200), WaitReason::None);
    }
}
