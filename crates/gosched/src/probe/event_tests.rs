use super::*;

/// One event of each kind, with all its fields different.
fn one_of_each() -> Vec<EventKind> {
    let (g, m, p, to) = (71, 3, 4, Place::Queue(u32::MAX));
    let span = Span { position: u32::MAX, count: 128 };
    let reason = PreemptReason::MakeRoom;
    vec![
        EventKind::Spawn { g: u64::MAX, parent: 1, to },
        EventKind::Ready { g, by: Waker::Goroutine(9), to: Place::RunNext },
        EventKind::Enqueue { g, to: Place::Global },
        EventKind::Displace { g, by: 72, to: Place::Spill },
        EventKind::Spill { g, moved: span, first: 5, last: 6, len: 256 },
        EventKind::Run { g, from: Source::Queue(7), slice: 61, inherits: true, global: 8 },
        EventKind::TakeGlobal { g, why: GlobalReason::Tick, others: span, len: 9 },
        EventKind::Steal { g, victim: p, taken: span, len: 10, to: 11 },
        EventKind::Park { g, reason: WaitReason::ChanReceive },
        EventKind::Yield { g, continues: true },
        EventKind::Exit { g },
        EventKind::NoStack { g },
        EventKind::Preempt { g, reason, how: PreemptMethod::InPlace },
        EventKind::RequestPreempt { m, g, reason },
        EventKind::EnterCall { g, blocks: true },
        EventKind::Retake { p, m, g, marked: false },
        EventKind::LeaveCall { g, end: CallEnd::IdleP },
        EventKind::Spin {},
        EventKind::StopSpinning { found: true },
        EventKind::Wake { m, p, spins: true },
        EventKind::NeedThread { p, spins: false },
        EventKind::Sleep { polls: true, keeps_time: false },
        EventKind::Awake {},
        EventKind::AcquireP { p },
        EventKind::ReleaseP { p },
        EventKind::Timers { ready: 12 },
        EventKind::Poll { ready: 13 },
        EventKind::StopWorld { reason: StopReason::Dump },
        EventKind::WorldStopped {},
        EventKind::StartWorld { stopped: false },
        EventKind::MakeThread { m },
        EventKind::StartThread {},
        EventKind::EndThread {},
        EventKind::WakeTimekeeper { m },
    ]
}

#[test]
fn every_event_is_read_as_it_was_written() {
    let all = one_of_each();
    for (index, event) in all.iter().enumerate() {
        let (number, words) = event.encode();
        assert_eq!(usize::from(number), index + 1, "{event:?}");
        assert_eq!(EventKind::decode(number, words), Some(*event));
        assert!(!event.to_string().is_empty());
    }
    assert_eq!(EventKind::decode(all.len() as u8 + 1, [0; FIELDS]), None);
    assert_eq!(EventKind::decode(0, [0; FIELDS]), None);
}

#[test]
fn every_value_of_a_field_is_read_as_it_was_written() {
    fn check<T: Word + Copy + PartialEq + fmt::Debug + fmt::Display>(values: &[T]) {
        for value in values {
            assert_eq!(T::from_word((*value).to_word()), Some(*value));
            assert!(!value.to_string().is_empty());
        }
    }
    check(&[
        Place::RunNext,
        Place::Queue(7),
        Place::Global,
        Place::GlobalFirst,
        Place::Spill,
        Place::Nowhere,
    ]);
    check(&[
        Source::RunNext,
        Source::Queue(7),
        Source::Global,
        Source::Stolen,
        Source::Poll,
        Source::InPlace,
        Source::Earlier,
    ]);
    check(&[Waker::Goroutine(7), Waker::Thread, Waker::Timer, Waker::Io, Waker::NoWait]);
    check(&[CallEnd::Kept, CallEnd::OldP, CallEnd::IdleP, CallEnd::Queued, CallEnd::Waits]);
}

#[test]
fn words_that_no_event_writes_are_refused() {
    // `Run` with a place that does not exist, and with a flag that is neither true nor false.
    assert_eq!(EventKind::decode(6, [1, u64::MAX, 0, 0, 0]), None);
    assert_eq!(EventKind::decode(6, [1, Source::Stolen.to_word(), 0, 2, 0]), None);
}
