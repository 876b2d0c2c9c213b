//! The words of the home's [table](super::table): states, classified events, actions.

words! {
    /// State of a directory entry. The first four are stable, in the others a request is being served; the first
    /// part of their names says what the entry was.
    State {
        /// Nobody has a copy; NVMe holds the page.
        Nowhere,
        /// Copies exist, all equal to NVMe. The forward array chooses who answers.
        Shared,
        /// Copies exist and NVMe is out of date. The owner answers writers; readers get the page of any holder.
        Owned,
        /// One node has the only copy and may have changed it.
        Exclusive,
        /// Holders send the page to readers.
        SharedSupplying,
        /// A holder, the owner or another, sends the page to a reader.
        OwnedSupplying,
        /// The only holder sends the page to a reader; whether it has changed the page is not known yet.
        ExclusiveSupplying,
        /// A writer collects the page and the acknowledgements.
        Transferring,
        /// NVMe is being read; nobody has a copy.
        NowhereReading,
        /// NVMe is being read, although there are copies: cooperative caching is off.
        SharedReading,
        /// The owner has been asked for the page, to store it.
        OwnedPulling,
        /// The only holder has been asked for the page, to store it if it changed.
        ExclusivePulling,
        /// NVMe is being written; all copies equal what is written.
        Writing,
    }
}

words! {
    /// A classified event: what a request finds when its turn comes, or what the served one has been waiting for.
    Event {
        /// A node without a copy wants to read, and may get the page from a holder if there is one.
        Get,
        /// The same, but only the home may supply, and its node has no copy that answers (cooperation is off).
        GetAtHome,
        /// A node without a copy wants to write, and may get the page from a holder if there is one.
        Put,
        /// The same, but only the home may supply, and its node has no copy that answers (cooperation is off).
        PutAtHome,
        /// A writer that needs no content (it has a copy, or overwrites all); others have copies.
        Claim,
        /// A writer that needs no content; nobody else has a copy.
        ClaimAlone,
        /// A request for a page that is being served in place.
        Refer,
        /// An eviction by a node that has lost its copy meanwhile.
        EvictGone,
        /// An eviction by a node that is not the owner; other copies stay.
        EvictSharer,
        /// The same, and one other copy stays, whose node is to know that.
        EvictLastButOne,
        /// An eviction by the owner; other copies stay.
        EvictOwner,
        /// The same, and one other copy stays, whose node is to know that.
        EvictOwnerLastButOne,
        /// An eviction of the last copy, which equals NVMe.
        EvictLast,
        /// An eviction of the last copy, which differs from NVMe.
        EvictLastDirty,
        /// The own agent wants NVMe to be up to date.
        Clean,
        /// A small operation, and the page is served in place.
        ServeInPlace,
        /// A small operation, but the page is not served in place (any more).
        DeclineInPlace,
        /// One of the readers has the page, which equals NVMe; others are still being supplied.
        DoneBeside,
        /// The page has changed hands and equals NVMe.
        DoneClean,
        /// The page has changed hands and differs from NVMe.
        DoneDirty,
        /// The pulled copy equals NVMe.
        PulledClean,
        /// The pulled copy differs from NVMe; here it is.
        PulledDirty,
        /// NVMe has been read for a reader.
        ReadForReader,
        /// NVMe has been read for a writer.
        ReadForWriter,
        /// NVMe cannot be read.
        ReadFailed,
        /// NVMe cannot be read for a reader that has only thought it to be nearer than those that have the page.
        ReadFailedBeside,
        /// NVMe has been written.
        Written,
        /// NVMe cannot be written.
        WriteFailed,
        /// NVMe cannot be written for a reader that can as well have the page from its owner.
        WriteFailedBeside,
    }
}

words! {
    /// What a row does, in the words of the table. "The requester" is the node whose request is being served.
    Act {
        /// Start reading the page.
        ReadNvm,
        /// Start writing the page that was pulled.
        WriteNvm,
        /// Send ForwardShared to who answers.
        ForwardToReader,
        /// Send ForwardModified to who answers.
        ForwardToWriter,
        /// Send Invalidate to all holders but the requester and who answers a forward.
        InvalidateOthers,
        /// Send Grant to the requester.
        Grant,
        /// Send Data{S}, as read from NVMe, to the requester.
        GiveShared,
        /// Send Data{E}, as read from NVMe, to the requester.
        GiveExclusive,
        /// Send Data{M}, as read from NVMe, to the requester.
        GiveModified,
        /// Push the requester on top of the forward array.
        Admit,
        /// The requester is the only holder now.
        TakeAll,
        /// Remove the evicting node from the forward array.
        Leave,
        /// Send Own to the top of the forward array.
        PassOn,
        /// Send Last to the holder.
        TellLast,
        /// Send Own to the owner, which thought its copy had been stored.
        KeepOwner,
        /// Send EvictAck to the evicting node.
        LetGo,
        /// Send Pull to the owner.
        Pull,
        /// Tell the requester (Failed, EvictRefused) or the own agent that it could not be done.
        Fail,
        /// Send InPlace to the requester.
        ReferInPlace,
        /// Hand the small operation to the own node's line.
        Apply,
        /// Refuse the small operation.
        Decline,
        /// Tell the own agent that NVMe is up to date.
        Cleaned,
        /// Classify the same request once more.
        Again,
    }
}
