//! Events of a device itself (ibv_get_async_event(3)), beside the completions of requests: judged here, acted
//! upon by the conduit. Pure.
//!
//! A port that goes down is no loss: the network may be back before requests give up. It is remembered, so that a loss
//! that follows names it.

#![forbid(unsafe_code)]

use super::verbs::types::number::*;
use std::ffi::c_int;

/// An event, with its subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// A queue pair, by its number.
    Pair(u32, c_int),
    /// A port.
    Port(u8, c_int),
    /// Everything that was made on the device.
    Device(c_int),
}

/// Consequence of an event for the conduit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing that the completions do not say.
    Nothing,
    /// Worth a line in the log.
    Note(String),
    /// The own port is usable again, or not any more.
    PortIs(bool),
    /// The connection with this queue pair is gone.
    PairLost(u32, String),
    /// No connection will work any more.
    AllLost(String),
}

/// Judges an event of `device`, whose port `port` is in use.
pub(super) fn judge(event: Event, device: &str, port: u8) -> Verdict {
    match event {
        Event::Pair(number, kind) => {
            let what = match kind {
                IBV_EVENT_QP_FATAL => "has failed",
                IBV_EVENT_QP_REQ_ERR => "got a request that it does not understand",
                IBV_EVENT_QP_ACCESS_ERR => "refused access to memory",
                // Among them the first packet, and the last receive of a queue pair that was stopped.
                _ => return Verdict::Nothing,
            };
            Verdict::PairLost(number, format!("its queue pair on the RDMA device {device} {what}"))
        }
        Event::Port(other, _) if other != port => Verdict::Nothing,
        Event::Port(_, IBV_EVENT_PORT_ERR) => Verdict::PortIs(false),
        Event::Port(_, IBV_EVENT_PORT_ACTIVE) => Verdict::PortIs(true),
        Event::Port(_, kind) => {
            let what = match kind {
                IBV_EVENT_LID_CHANGE => "has another LID",
                IBV_EVENT_GID_CHANGE => "has other addresses",
                IBV_EVENT_PKEY_CHANGE => "has other partition keys",
                _ => return Verdict::Nothing,
            };
            Verdict::Note(format!("port {port} of {device} {what}; connections that exist may end"))
        }
        Event::Device(kind) => {
            let what = match kind {
                IBV_EVENT_DEVICE_FATAL => "has failed",
                IBV_EVENT_CQ_ERR => "has lost completions",
                IBV_EVENT_SRQ_ERR => "has lost its receives",
                _ => return Verdict::Nothing,
            };
            Verdict::AllLost(format!("the RDMA device {device} {what} (port {port})"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_fatal_names_the_device() {
        let judge = |event| judge(event, "mlx5_0", 1);
        for kind in [IBV_EVENT_DEVICE_FATAL, IBV_EVENT_CQ_ERR, IBV_EVENT_SRQ_ERR] {
            let Verdict::AllLost(reason) = judge(Event::Device(kind)) else { panic!("{kind} is fatal") };
            assert!(reason.contains("mlx5_0") && reason.contains("port 1"), "{reason}");
        }
        for kind in [IBV_EVENT_QP_FATAL, IBV_EVENT_QP_REQ_ERR, IBV_EVENT_QP_ACCESS_ERR] {
            let Verdict::PairLost(7, reason) = judge(Event::Pair(7, kind)) else {
                panic!("{kind} ends a connection")
            };
            assert!(reason.contains("mlx5_0"), "{reason}");
        }
    }

    #[test]
    fn a_port_comes_and_goes() {
        let judge = |event| judge(event, "mlx5_0", 1);
        assert_eq!(judge(Event::Port(1, IBV_EVENT_PORT_ERR)), Verdict::PortIs(false));
        assert_eq!(judge(Event::Port(1, IBV_EVENT_PORT_ACTIVE)), Verdict::PortIs(true));
        assert_eq!(judge(Event::Port(2, IBV_EVENT_PORT_ERR)), Verdict::Nothing, "nobody uses that one");
        assert!(matches!(judge(Event::Port(1, IBV_EVENT_LID_CHANGE)), Verdict::Note(_)));
    }

    #[test]
    fn what_is_no_news_is_ignored() {
        for kind in [IBV_EVENT_COMM_EST, IBV_EVENT_QP_LAST_WQE_REACHED] {
            assert_eq!(judge(Event::Pair(7, kind), "mlx5_0", 1), Verdict::Nothing);
        }
        // Numbers that a later library may have.
        for kind in 20..40 {
            for event in [Event::Pair(7, kind), Event::Port(1, kind), Event::Device(kind)] {
                assert_eq!(judge(event, "mlx5_0", 1), Verdict::Nothing);
            }
        }
    }
}
