//! The home table: every cell of state × event of a page's directory entry, decided. Written and checked like the
//! [line table](crate::protocol::line::table).
//!
//! A request is classified when its *turn* comes, not when it arrives: what it may find then is in the event's
//! name. Storage appears only as "reading", "pulling" and "writing"; when the page has been stored, the request is
//! taken [`Again`](super::Act::Again) as if it had met a clean page in the first place.

use super::{Act, Event, State};

cells! {
    // ---- Stable states: a request's turn ---------------------------------------------------------------------
    Nowhere {
        Get            => NowhereReading     [ReadNvm]
        GetAtHome      => NowhereReading     [ReadNvm]
        Put            => NowhereReading     [ReadNvm]
        PutAtHome      => NowhereReading     [ReadNvm]
        ClaimAlone     => Exclusive          [Grant, TakeAll]
        EvictGone      => Nowhere            [LetGo]
        Clean          => Nowhere            [Cleaned]
        DeclineInPlace => Nowhere            [Decline]
        _ => never [Claim Refer EvictSharer EvictLastButOne EvictOwner EvictLast EvictLastDirty ServeInPlace
                    DoneBeside DoneClean DoneDirty PulledClean PulledDirty ReadForReader ReadForWriter ReadFailed Written WriteFailed]
    }
    Shared {
        Get            => SharedSupplying    [ForwardToReader]
        GetAtHome      => SharedReading      [ReadNvm]
        Put            => Transferring       [InvalidateOthers, ForwardToWriter]
        PutAtHome      => SharedReading      [ReadNvm]
        Claim          => Transferring       [InvalidateOthers, Grant]
        ClaimAlone     => Exclusive          [Grant, TakeAll]
        EvictGone      => Shared             [LetGo]
        EvictSharer    => Shared             [Leave, LetGo]
        EvictLastButOne => Shared            [Leave, TellLast, LetGo]
        EvictLast      => Nowhere            [Leave, LetGo]
        Clean          => Shared             [Cleaned]
        DeclineInPlace => Shared             [Decline]
        _ => never [Refer EvictOwner EvictLastDirty ServeInPlace
                    DoneBeside DoneClean DoneDirty PulledClean PulledDirty ReadForReader ReadForWriter ReadFailed Written WriteFailed]
    }
    Owned {
        Get            => OwnedSupplying     [ForwardToReader]
        GetAtHome      => OwnedPulling       [Pull]
        Put            => Transferring       [InvalidateOthers, ForwardToWriter]
        PutAtHome      => OwnedPulling       [Pull]
        Claim          => Transferring       [InvalidateOthers, Grant]
        ClaimAlone     => Exclusive          [Grant, TakeAll]
        EvictGone      => Owned              [LetGo]
        EvictSharer    => Owned              [Leave, LetGo]
        EvictOwner     => Owned              [Leave, PassOn, LetGo]
        EvictLastDirty => OwnedPulling       [Pull]
        Clean          => OwnedPulling       [Pull]
        DeclineInPlace => Owned              [Decline]
        _ => never [Refer EvictLastButOne EvictLast ServeInPlace
                    DoneBeside DoneClean DoneDirty PulledClean PulledDirty ReadForReader ReadForWriter ReadFailed Written WriteFailed]
    }
    Exclusive {
        Get            => ExclusiveSupplying [ForwardToReader]
        GetAtHome      => ExclusivePulling   [Pull]
        Put            => Transferring       [InvalidateOthers, ForwardToWriter]
        PutAtHome      => ExclusivePulling   [Pull]
        Claim          => Transferring       [InvalidateOthers, Grant]
        Refer          => Exclusive          [ReferInPlace]
        EvictGone      => Exclusive          [LetGo]
        EvictLast      => Nowhere            [Leave, LetGo]
        EvictLastDirty => ExclusivePulling   [Pull]
        Clean          => ExclusivePulling   [Pull]
        ServeInPlace   => Exclusive          [Apply]
        DeclineInPlace => Exclusive          [Decline]
        _ => never [ClaimAlone EvictSharer EvictLastButOne EvictOwner
                    DoneBeside DoneClean DoneDirty PulledClean PulledDirty ReadForReader ReadForWriter ReadFailed Written WriteFailed]
    }

    // ---- A request is being served; others wait in the queue ---------------------------------------------------
    SharedSupplying {
        Get            => SharedSupplying    [ForwardToReader]
        DoneBeside     => SharedSupplying    [Admit]
        DoneClean      => Shared             [Admit]
        DeclineInPlace => SharedSupplying    [Decline]
        _ => never [GetAtHome Put PutAtHome Claim ClaimAlone Refer EvictGone EvictSharer EvictLastButOne EvictOwner EvictLast
                    EvictLastDirty Clean ServeInPlace
                    DoneDirty PulledClean PulledDirty ReadForReader ReadForWriter ReadFailed Written WriteFailed]
    }
    OwnedSupplying {
        DoneDirty      => Owned              [Admit]
        DeclineInPlace => OwnedSupplying     [Decline]
        _ => never [Get GetAtHome Put PutAtHome Claim ClaimAlone Refer EvictGone EvictSharer EvictLastButOne EvictOwner EvictLast
                    EvictLastDirty Clean ServeInPlace
                    DoneBeside DoneClean PulledClean PulledDirty ReadForReader ReadForWriter ReadFailed Written WriteFailed]
    }
    ExclusiveSupplying {
        DoneClean      => Shared             [Admit]
        DoneDirty      => Owned              [Admit]
        DeclineInPlace => ExclusiveSupplying [Decline]
        _ => never [Get GetAtHome Put PutAtHome Claim ClaimAlone Refer EvictGone EvictSharer EvictLastButOne EvictOwner EvictLast
                    EvictLastDirty Clean ServeInPlace
                    DoneBeside PulledClean PulledDirty ReadForReader ReadForWriter ReadFailed Written WriteFailed]
    }
    Transferring {
        DoneDirty      => Exclusive          [TakeAll]
        DeclineInPlace => Transferring       [Decline]
        _ => never [Get GetAtHome Put PutAtHome Claim ClaimAlone Refer EvictGone EvictSharer EvictLastButOne EvictOwner EvictLast
                    EvictLastDirty Clean ServeInPlace
                    DoneBeside DoneClean PulledClean PulledDirty ReadForReader ReadForWriter ReadFailed Written WriteFailed]
    }
    NowhereReading {
        ReadForReader  => Exclusive          [GiveExclusive, TakeAll]
        ReadForWriter  => Exclusive          [GiveModified, TakeAll]
        ReadFailed     => Nowhere            [Fail]
        DeclineInPlace => NowhereReading     [Decline]
        _ => never [Get GetAtHome Put PutAtHome Claim ClaimAlone Refer EvictGone EvictSharer EvictLastButOne EvictOwner EvictLast
                    EvictLastDirty Clean ServeInPlace
                    DoneBeside DoneClean DoneDirty PulledClean PulledDirty Written WriteFailed]
    }
    SharedReading {
        ReadForReader  => Shared             [GiveShared, Admit]
        ReadForWriter  => Transferring       [InvalidateOthers, GiveModified]
        ReadFailed     => Shared             [Fail]
        DeclineInPlace => SharedReading      [Decline]
        _ => never [Get GetAtHome Put PutAtHome Claim ClaimAlone Refer EvictGone EvictSharer EvictLastButOne EvictOwner EvictLast
                    EvictLastDirty Clean ServeInPlace
                    DoneBeside DoneClean DoneDirty PulledClean PulledDirty Written WriteFailed]
    }
    OwnedPulling {
        PulledDirty    => Writing            [WriteNvm]
        DeclineInPlace => OwnedPulling       [Decline]
        _ => never [Get GetAtHome Put PutAtHome Claim ClaimAlone Refer EvictGone EvictSharer EvictLastButOne EvictOwner EvictLast
                    EvictLastDirty Clean ServeInPlace
                    DoneBeside DoneClean DoneDirty PulledClean ReadForReader ReadForWriter ReadFailed Written WriteFailed]
    }
    ExclusivePulling {
        PulledClean    => Shared             [Again]
        PulledDirty    => Writing            [WriteNvm]
        DeclineInPlace => ExclusivePulling   [Decline]
        _ => never [Get GetAtHome Put PutAtHome Claim ClaimAlone Refer EvictGone EvictSharer EvictLastButOne EvictOwner EvictLast
                    EvictLastDirty Clean ServeInPlace
                    DoneBeside DoneClean DoneDirty ReadForReader ReadForWriter ReadFailed Written WriteFailed]
    }
    Writing {
        Written        => Shared             [Again]
        WriteFailed    => Owned              [KeepOwner, Fail]
        DeclineInPlace => Writing            [Decline]
        _ => never [Get GetAtHome Put PutAtHome Claim ClaimAlone Refer EvictGone EvictSharer EvictLastButOne EvictOwner EvictLast
                    EvictLastDirty Clean ServeInPlace
                    DoneBeside DoneClean DoneDirty PulledClean PulledDirty ReadForReader ReadForWriter ReadFailed]
    }
}
