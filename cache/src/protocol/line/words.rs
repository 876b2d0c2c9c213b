//! The words of the line's [table](super::table): states, classified events, actions.

words! {
    /// State of a node's copy. The names of waiting states are read "was, going to, waits for": `SmG` was S, is
    /// going to M, and waits for the Grant. D is Data, G Grant, A acknowledgements, E EvictAck; w is an m whose
    /// page will be overwritten whole.
    State {
        /// No copy.
        I,
        /// A readable copy; others may have one too. It equals NVMe, unless another node is O.
        S,
        /// A readable copy that differs from NVMe; others may have one too; this one answers.
        O,
        /// The only copy; it equals NVMe. A write makes it M without a message.
        E,
        /// The only copy; it differs from NVMe.
        M,
        /// No copy; a reader waits for the page.
        IsD,
        /// No copy; a writer waits for the page, acknowledgements may come before it.
        ImD,
        /// No copy and none wanted; a writer of the whole page waits for the right.
        ImG,
        /// Has the content, will be M; waits for the acknowledgements of the others' invalidations.
        ImA,
        /// Has the content, which equals NVMe, will be E; waits for the acknowledgements of the others' invalidations.
        IeA,
        /// S whose writer waits for the right to write. Still readable and still answers.
        SmG,
        /// O whose writer waits for the right to write. Still readable and still answers.
        OmG,
        /// S whose writer of the whole page waits for the right. Still readable and still answers.
        SwG,
        /// O whose writer of the whole page waits for the right. Still readable and still answers.
        OwG,
        /// Was S, is being evicted. Not used by ranks, but still answers.
        SiE,
        /// Was O, is being evicted. Not used by ranks, but still answers.
        OiE,
        /// Was E, is being evicted. Not used by ranks, but still answers.
        EiE,
        /// Was M, is being evicted. Not used by ranks, but still answers.
        MiE,
        /// Lost its copy to somebody else while being evicted; the answer to the Evict is still to come.
        IiE,
    }
}

words! {
    /// A classified event: what happened, with every count and comparison already done.
    Event {
        /// A local rank wants to read.
        Read,
        /// A local rank wants to write.
        Write,
        /// A local rank wants to overwrite the whole page.
        WriteWhole,
        /// Replacement wants the frame.
        Replace,
        /// The home serves a small get in place (own node of the home only).
        ApplyGet,
        /// The home serves a small put in place (own node of the home only).
        ApplyPut,
        /// The home wants the page sent to a reader.
        ForwardShared,
        /// The home wants the page sent to a writer, and forgotten here.
        ForwardModified,
        /// The home wants the copy forgotten.
        Invalidate,
        /// The home wants to store the page.
        Pull,
        /// The home makes this copy the owner.
        Own,
        /// The home says that nobody else has a copy.
        Last,
        /// The page, for reading.
        DataShared,
        /// The page, and nobody else has it.
        DataExclusive,
        /// The page for writing; nothing is left to wait for.
        DataModified,
        /// The page for writing; acknowledgements are still to come.
        DataModifiedAcks,
        /// The right to write; nothing is left to wait for.
        Grant,
        /// The right to write; acknowledgements are still to come.
        GrantAcks,
        /// The right to write a copy that equals NVMe; nothing is left to wait for.
        GrantClean,
        /// The right to write a copy that equals NVMe; acknowledgements are still to come.
        GrantCleanAcks,
        /// An acknowledgement, not the last one (or it came before its number is known).
        Ack,
        /// The last acknowledgement.
        LastAck,
        /// The home serves the page in place.
        InPlace,
        /// The home could not serve the request.
        Failed,
        /// The home has let the copy go.
        EvictAck,
        /// The home could not store the last copy.
        EvictRefused,
    }
}

words! {
    /// What a row does, in the words of the table. [`step`](super::step) turns each into an [`Action`](super::Action).
    Act {
        /// Send GetShared to the home.
        AskShared,
        /// Send GetModified to the home.
        AskModified,
        /// Send GetModified{whole} to the home.
        AskWhole,
        /// Send GetModified{has_copy} to the home.
        AskUpgrade,
        /// Send GetModified{whole, has_copy} to the home.
        AskWholeUpgrade,
        /// Send Evict{clean} to the home.
        EvictClean,
        /// Send Evict{dirty} to the home.
        EvictDirty,
        /// Send Data{S} to the requester; tell the home (Done) if it asked the supplier to.
        SupplyShared,
        /// The same, saying that it differs from NVMe.
        SupplySharedDirty,
        /// Send Data{M} to the requester; tell the home (Done) if it asked the supplier to.
        SupplyModified,
        /// Send InvalidateAck to the requester.
        Acknowledge,
        /// Answer a Pull without content: the copy equals NVMe.
        PulledClean,
        /// Answer a Pull with the page.
        PulledDirty,
        /// Tell the home that the page has arrived (Done), if the answer asks for it.
        Confirm,
        /// Tell the home that the page has arrived (Done).
        Finish,
        /// Ranks may read.
        Readable,
        /// Ranks may write.
        Writable,
        /// The request ends: use small operations on the home.
        ServedInPlace,
        /// The request ends: it could not be served.
        Failed,
        /// The eviction ends: the copy stays.
        Refused,
        /// Do the small operation on the copy.
        Apply,
        /// The copy is gone: its frame may be reused.
        Drop,
    }
}
