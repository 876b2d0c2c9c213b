//! The line table: every cell of state × event, decided. One row per line: `Event => Next [Actions]`; what `never`
//! lists cannot happen there and is a [`Violation`](crate::protocol::Violation). The compiler refuses a missing
//! cell (the match has no wildcard) and a double one.
//!
//! No cell says *stall*: the home serves one request per page at a time, readers apart, and channels are ordered, so a line never
//! gets a message that it would have to keep for later.

use super::{Act, Event, State};

cells! {
    // ---- Stable states ---------------------------------------------------------------------------------------
    I {
        Read             => IsD [AskShared]
        Write            => ImD [AskModified]
        WriteWhole       => ImG [AskWhole]
        _ => never [Replace ApplyGet ApplyPut ForwardShared ForwardModified Invalidate Pull Own Last
                    DataShared DataExclusive DataModified DataModifiedAcks Grant GrantAcks GrantClean GrantCleanAcks Ack LastAck
                    InPlace Failed EvictAck EvictRefused]
    }
    S {
        Read             => S   [Readable]
        Write            => SmG [AskUpgrade]
        WriteWhole       => SwG [AskWholeUpgrade]
        Replace          => SiE [EvictClean]
        ForwardShared    => S   [SupplyShared]
        ForwardModified  => I   [SupplyModified, Drop]
        Invalidate       => I   [Acknowledge, Drop]
        Own              => O   []
        Last             => S   []
        _ => never [ApplyGet ApplyPut Pull
                    DataShared DataExclusive DataModified DataModifiedAcks Grant GrantAcks GrantClean GrantCleanAcks Ack LastAck
                    InPlace Failed EvictAck EvictRefused]
    }
    O {
        Read             => O   [Readable]
        Write            => OmG [AskUpgrade]
        WriteWhole       => OwG [AskWholeUpgrade]
        Replace          => OiE [EvictDirty]
        ForwardShared    => O   [SupplySharedDirty]
        ForwardModified  => I   [SupplyModified, Drop]
        Invalidate       => I   [Acknowledge, Drop]
        Pull             => S   [PulledDirty]
        Last             => O   []
        _ => never [ApplyGet ApplyPut Own
                    DataShared DataExclusive DataModified DataModifiedAcks Grant GrantAcks GrantClean GrantCleanAcks Ack LastAck
                    InPlace Failed EvictAck EvictRefused]
    }
    E {
        Read             => E   [Readable]
        Write            => M   [Writable]
        WriteWhole       => M   [Writable]
        Replace          => EiE [EvictClean]
        ApplyGet         => E   [Apply]
        ApplyPut         => M   [Apply]
        ForwardShared    => S   [SupplyShared]
        ForwardModified  => I   [SupplyModified, Drop]
        Invalidate       => I   [Acknowledge, Drop]
        Pull             => S   [PulledClean]
        _ => never [Own Last
                    DataShared DataExclusive DataModified DataModifiedAcks Grant GrantAcks GrantClean GrantCleanAcks Ack LastAck
                    InPlace Failed EvictAck EvictRefused]
    }
    M {
        Read             => M   [Readable]
        Write            => M   [Writable]
        WriteWhole       => M   [Writable]
        Replace          => MiE [EvictDirty]
        ApplyGet         => M   [Apply]
        ApplyPut         => M   [Apply]
        ForwardShared    => O   [SupplySharedDirty]
        ForwardModified  => I   [SupplyModified, Drop]
        Invalidate       => I   [Acknowledge, Drop]
        Pull             => S   [PulledDirty]
        _ => never [Own Last
                    DataShared DataExclusive DataModified DataModifiedAcks Grant GrantAcks GrantClean GrantCleanAcks Ack LastAck
                    InPlace Failed EvictAck EvictRefused]
    }

    // ---- On the way to a copy: no copy until the answer --------------------------------------------------------
    IsD {
        DataShared       => S   [Readable, Confirm]
        DataExclusive    => E   [Readable, Confirm]
        InPlace          => I   [ServedInPlace, Drop]
        Failed           => I   [Failed, Drop]
        _ => never [Read Write WriteWhole Replace ApplyGet ApplyPut
                    ForwardShared ForwardModified Invalidate Pull Own Last
                    DataModified DataModifiedAcks Grant GrantAcks GrantClean GrantCleanAcks Ack LastAck EvictAck EvictRefused]
    }
    ImD {
        DataModified     => M   [Writable, Confirm]
        DataModifiedAcks => ImA []
        Ack              => ImD []
        InPlace          => I   [ServedInPlace, Drop]
        Failed           => I   [Failed, Drop]
        _ => never [Read Write WriteWhole Replace ApplyGet ApplyPut
                    ForwardShared ForwardModified Invalidate Pull Own Last
                    DataShared DataExclusive Grant GrantAcks GrantClean GrantCleanAcks LastAck EvictAck EvictRefused]
    }
    ImG {
        Grant            => M   [Writable, Confirm]
        GrantAcks        => ImA []
        Ack              => ImG []
        InPlace          => I   [ServedInPlace, Drop]
        _ => never [Read Write WriteWhole Replace ApplyGet ApplyPut
                    ForwardShared ForwardModified Invalidate Pull Own Last
                    DataShared DataExclusive DataModified DataModifiedAcks LastAck Failed EvictAck EvictRefused
                    GrantClean GrantCleanAcks]
    }
    ImA {
        Ack              => ImA []
        LastAck          => M   [Writable, Finish]
        _ => never [Read Write WriteWhole Replace ApplyGet ApplyPut
                    ForwardShared ForwardModified Invalidate Pull Own Last
                    DataShared DataExclusive DataModified DataModifiedAcks Grant GrantAcks GrantClean GrantCleanAcks
                    InPlace Failed EvictAck EvictRefused]
    }
    IeA {
        Ack              => IeA []
        LastAck          => E   [Writable, Finish]
        _ => never [Read Write WriteWhole Replace ApplyGet ApplyPut
                    ForwardShared ForwardModified Invalidate Pull Own Last
                    DataShared DataExclusive DataModified DataModifiedAcks
                    Grant GrantAcks GrantClean GrantCleanAcks InPlace Failed EvictAck EvictRefused]
    }

    // ---- On the way from a readable copy to a writable one: still a holder, readable, answers -------------------
    SmG {
        Read             => SmG [Readable]
        ForwardShared    => SmG [SupplyShared]
        ForwardModified  => ImD [SupplyModified]
        Invalidate       => ImD [Acknowledge]
        Own              => OmG []
        Last             => SmG []
        Grant            => M   [Writable, Confirm]
        GrantAcks        => ImA []
        GrantClean       => E   [Writable, Confirm]
        GrantCleanAcks   => IeA []
        Ack              => SmG []
        _ => never [Write WriteWhole Replace ApplyGet ApplyPut Pull
                    DataShared DataExclusive DataModified DataModifiedAcks LastAck
                    InPlace Failed EvictAck EvictRefused]
    }
    OmG {
        Read             => OmG [Readable]
        ForwardShared    => OmG [SupplySharedDirty]
        ForwardModified  => ImD [SupplyModified]
        Invalidate       => ImD [Acknowledge]
        Pull             => SmG [PulledDirty]
        Last             => OmG []
        Grant            => M   [Writable, Confirm]
        GrantAcks        => ImA []
        Ack              => OmG []
        _ => never [Write WriteWhole Replace ApplyGet ApplyPut Own
                    DataShared DataExclusive DataModified DataModifiedAcks LastAck
                    InPlace Failed EvictAck EvictRefused
                    GrantClean GrantCleanAcks]
    }
    SwG {
        Read             => SwG [Readable]
        ForwardShared    => SwG [SupplyShared]
        ForwardModified  => ImG [SupplyModified]
        Invalidate       => ImG [Acknowledge]
        Own              => OwG []
        Last             => SwG []
        Grant            => M   [Writable, Confirm]
        GrantAcks        => ImA []
        Ack              => SwG []
        _ => never [Write WriteWhole Replace ApplyGet ApplyPut Pull
                    DataShared DataExclusive DataModified DataModifiedAcks LastAck
                    InPlace Failed EvictAck EvictRefused
                    GrantClean GrantCleanAcks]
    }
    OwG {
        Read             => OwG [Readable]
        ForwardShared    => OwG [SupplySharedDirty]
        ForwardModified  => ImG [SupplyModified]
        Invalidate       => ImG [Acknowledge]
        Pull             => SwG [PulledDirty]
        Last             => OwG []
        Grant            => M   [Writable, Confirm]
        GrantAcks        => ImA []
        Ack              => OwG []
        _ => never [Write WriteWhole Replace ApplyGet ApplyPut Own
                    DataShared DataExclusive DataModified DataModifiedAcks LastAck
                    InPlace Failed EvictAck EvictRefused
                    GrantClean GrantCleanAcks]
    }

    // ---- On the way out: no rank uses the copy any more, but it answers until the home lets it go ---------------
    SiE {
        ForwardShared    => SiE [SupplyShared]
        ForwardModified  => IiE [SupplyModified, Drop]
        Invalidate       => IiE [Acknowledge, Drop]
        Own              => OiE []
        Last             => SiE []
        EvictAck         => I   [Drop]
        _ => never [Read Write WriteWhole Replace ApplyGet ApplyPut Pull
                    DataShared DataExclusive DataModified DataModifiedAcks Grant GrantAcks GrantClean GrantCleanAcks Ack LastAck
                    InPlace Failed EvictRefused]
    }
    OiE {
        ForwardShared    => OiE [SupplySharedDirty]
        ForwardModified  => IiE [SupplyModified, Drop]
        Invalidate       => IiE [Acknowledge, Drop]
        Pull             => SiE [PulledDirty]
        Last             => OiE []
        EvictAck         => I   [Drop]
        EvictRefused     => O   [Refused]
        _ => never [Read Write WriteWhole Replace ApplyGet ApplyPut Own
                    DataShared DataExclusive DataModified DataModifiedAcks Grant GrantAcks GrantClean GrantCleanAcks Ack LastAck
                    InPlace Failed]
    }
    EiE {
        ApplyGet         => EiE [Apply]
        ApplyPut         => MiE [Apply]
        ForwardShared    => SiE [SupplyShared]
        ForwardModified  => IiE [SupplyModified, Drop]
        Invalidate       => IiE [Acknowledge, Drop]
        Pull             => SiE [PulledClean]
        EvictAck         => I   [Drop]
        _ => never [Read Write WriteWhole Replace Own Last
                    DataShared DataExclusive DataModified DataModifiedAcks Grant GrantAcks GrantClean GrantCleanAcks Ack LastAck
                    InPlace Failed EvictRefused]
    }
    MiE {
        ApplyGet         => MiE [Apply]
        ApplyPut         => MiE [Apply]
        ForwardShared    => OiE [SupplySharedDirty]
        ForwardModified  => IiE [SupplyModified, Drop]
        Invalidate       => IiE [Acknowledge, Drop]
        Pull             => SiE [PulledDirty]
        _ => never [Read Write WriteWhole Replace Own Last
                    DataShared DataExclusive DataModified DataModifiedAcks Grant GrantAcks GrantClean GrantCleanAcks Ack LastAck
                    InPlace Failed EvictAck EvictRefused]
    }
    IiE {
        EvictAck         => I   []
        _ => never [Read Write WriteWhole Replace ApplyGet ApplyPut
                    ForwardShared ForwardModified Invalidate Pull Own Last
                    DataShared DataExclusive DataModified DataModifiedAcks Grant GrantAcks GrantClean GrantCleanAcks Ack LastAck
                    InPlace Failed EvictRefused]
    }
}
