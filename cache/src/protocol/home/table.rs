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
        _ => never [Claim Refer EvictSharer EvictLastButOne EvictOwner EvictOwnerLastButOne EvictLast EvictLastDirty ServeInPlace
                    DoneBeside DoneClean DoneDirty PulledClean PulledDirty ReadForReader ReadForWriter ReadFailed ReadFailedBeside Written WriteFailed WriteFailedBeside]
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
        _ => never [Refer EvictOwner EvictOwnerLastButOne EvictLastDirty ServeInPlace
                    DoneBeside DoneClean DoneDirty PulledClean PulledDirty ReadForReader ReadForWriter ReadFailed ReadFailedBeside Written WriteFailed WriteFailedBeside]
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
        EvictLastButOne => Owned             [Leave, TellLast, LetGo]
        EvictOwner     => Owned              [Leave, PassOn, LetGo]
        EvictOwnerLastButOne => Owned        [Leave, PassOn, TellLast, LetGo]
        EvictLastDirty => OwnedPulling       [Pull]
        Clean          => OwnedPulling       [Pull]
        DeclineInPlace => Owned              [Decline]
        _ => never [Refer EvictLast ServeInPlace
                    DoneBeside DoneClean DoneDirty PulledClean PulledDirty ReadForReader ReadForWriter ReadFailed ReadFailedBeside Written WriteFailed WriteFailedBeside]
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
        _ => never [ClaimAlone EvictSharer EvictLastButOne EvictOwner EvictOwnerLastButOne
                    DoneBeside DoneClean DoneDirty PulledClean PulledDirty ReadForReader ReadForWriter ReadFailed ReadFailedBeside Written WriteFailed WriteFailedBeside]
    }

    // ---- A request is being served; others wait in the queue ---------------------------------------------------
    SharedSupplying {
        Get            => SharedSupplying    [ForwardToReader]
        DoneBeside     => SharedSupplying    [Admit]
        DoneClean      => Shared             [Admit]
        DeclineInPlace => SharedSupplying    [Decline]
        _ => never [GetAtHome Put PutAtHome Claim ClaimAlone Refer EvictGone EvictSharer EvictLastButOne EvictOwner EvictOwnerLastButOne EvictLast
                    EvictLastDirty Clean ServeInPlace
                    DoneDirty PulledClean PulledDirty ReadForReader ReadForWriter ReadFailed ReadFailedBeside Written WriteFailed WriteFailedBeside]
    }
    OwnedSupplying {
        DoneDirty      => Owned              [Admit]
        // Another holder than the owner has answered.
        DoneClean      => Owned              [Admit]
        DeclineInPlace => OwnedSupplying     [Decline]
        _ => never [Get GetAtHome Put PutAtHome Claim ClaimAlone Refer EvictGone EvictSharer EvictLastButOne EvictOwner EvictOwnerLastButOne EvictLast
                    EvictLastDirty Clean ServeInPlace
                    DoneBeside PulledClean PulledDirty ReadForReader ReadForWriter ReadFailed ReadFailedBeside Written WriteFailed WriteFailedBeside]
    }
    ExclusiveSupplying {
        DoneClean      => Shared             [Admit]
        DoneDirty      => Owned              [Admit]
        DeclineInPlace => ExclusiveSupplying [Decline]
        _ => never [Get GetAtHome Put PutAtHome Claim ClaimAlone Refer EvictGone EvictSharer EvictLastButOne EvictOwner EvictOwnerLastButOne EvictLast
                    EvictLastDirty Clean ServeInPlace
                    DoneBeside PulledClean PulledDirty ReadForReader ReadForWriter ReadFailed ReadFailedBeside Written WriteFailed WriteFailedBeside]
    }
    Transferring {
        DoneDirty      => Exclusive          [TakeAll]
        DeclineInPlace => Transferring       [Decline]
        _ => never [Get GetAtHome Put PutAtHome Claim ClaimAlone Refer EvictGone EvictSharer EvictLastButOne EvictOwner EvictOwnerLastButOne EvictLast
                    EvictLastDirty Clean ServeInPlace
                    DoneBeside DoneClean PulledClean PulledDirty ReadForReader ReadForWriter ReadFailed ReadFailedBeside Written WriteFailed WriteFailedBeside]
    }
    NowhereReading {
        ReadForReader  => Exclusive          [GiveExclusive, TakeAll]
        ReadForWriter  => Exclusive          [GiveModified, TakeAll]
        ReadFailed     => Nowhere            [Fail]
        DeclineInPlace => NowhereReading     [Decline]
        _ => never [Get GetAtHome Put PutAtHome Claim ClaimAlone Refer EvictGone EvictSharer EvictLastButOne EvictOwner EvictOwnerLastButOne EvictLast
                    EvictLastDirty Clean ServeInPlace
                    DoneBeside DoneClean DoneDirty PulledClean PulledDirty ReadFailedBeside Written WriteFailed WriteFailedBeside]
    }
    SharedReading {
        ReadForReader  => Shared             [GiveShared, Admit]
        ReadForWriter  => Transferring       [InvalidateOthers, GiveModified]
        ReadFailed     => Shared             [Fail]
        ReadFailedBeside => Shared           [Again]
        DeclineInPlace => SharedReading      [Decline]
        _ => never [Get GetAtHome Put PutAtHome Claim ClaimAlone Refer EvictGone EvictSharer EvictLastButOne EvictOwner EvictOwnerLastButOne EvictLast
                    EvictLastDirty Clean ServeInPlace
                    DoneBeside DoneClean DoneDirty PulledClean PulledDirty Written WriteFailed WriteFailedBeside]
    }
    OwnedPulling {
        PulledDirty    => Writing            [WriteNvm]
        DeclineInPlace => OwnedPulling       [Decline]
        _ => never [Get GetAtHome Put PutAtHome Claim ClaimAlone Refer EvictGone EvictSharer EvictLastButOne EvictOwner EvictOwnerLastButOne EvictLast
                    EvictLastDirty Clean ServeInPlace
                    DoneBeside DoneClean DoneDirty PulledClean ReadForReader ReadForWriter ReadFailed ReadFailedBeside Written WriteFailed WriteFailedBeside]
    }
    ExclusivePulling {
        PulledClean    => Shared             [Again]
        PulledDirty    => Writing            [WriteNvm]
        DeclineInPlace => ExclusivePulling   [Decline]
        _ => never [Get GetAtHome Put PutAtHome Claim ClaimAlone Refer EvictGone EvictSharer EvictLastButOne EvictOwner EvictOwnerLastButOne EvictLast
                    EvictLastDirty Clean ServeInPlace
                    DoneBeside DoneClean DoneDirty ReadForReader ReadForWriter ReadFailed ReadFailedBeside Written WriteFailed WriteFailedBeside]
    }
    Writing {
        Written        => Shared             [Again]
        WriteFailed    => Owned              [KeepOwner, Fail]
        WriteFailedBeside => Owned           [KeepOwner, Again]
        DeclineInPlace => Writing            [Decline]
        _ => never [Get GetAtHome Put PutAtHome Claim ClaimAlone Refer EvictGone EvictSharer EvictLastButOne EvictOwner EvictOwnerLastButOne EvictLast
                    EvictLastDirty Clean ServeInPlace
                    DoneBeside DoneClean DoneDirty PulledClean PulledDirty ReadForReader ReadForWriter ReadFailed ReadFailedBeside]
    }
}
