//! Figures of the prediction.

use super::growth::{HOME_AGENT, HOME_DRIVE, HOME_UP, LINK_OFF, OFF, ON};
use crate::figure::{Better, Claim, Figure, Form, Reference};

const BY_NODES: Form = Form::Lines { by: "nodes", label: "nodes, one rank each", panels: "" };
const BY_ACCESS: Form = Form::Lines { by: "nodes", label: "nodes, one rank each", panels: "access" };
const AGAINST: Form = Form::Lines { by: "nodes", label: "nodes, one rank each", panels: "figure" };

const SIMULATED: Figure = Figure { is_simulated: true, ..Figure::BASE };

pub const ALL: &[Figure] = &[
    Figure {
        name: "predict-scans",
        claims: &[Claim::new(ON, Reference::Case(OFF), 2.0).within(8.0, f64::INFINITY)],
        question: "What would all nodes together read of one rank's segment?",
        expect: "With cooperation every node that has a page gives it on, until the home's agent, which tells each reader from whom, has no more \
                 time. Without, all that there ever is is the home's link.",
        cases: &[ON, OFF],
        references: &[OFF],
        form: BY_ACCESS,
        ..SIMULATED
    },
    Figure {
        name: "predict-limits",
        question: "What becomes the limit when more nodes read?",
        expect: "Without cooperation the home's link is always taken. With it the link is ever less so, and the home's agent ever more: what it \
                 does for a miss is the limit of many nodes.",
        metric: "busy",
        unit: "%",
        cases: &[HOME_UP, HOME_AGENT, HOME_DRIVE, LINK_OFF],
        references: &[LINK_OFF],
        form: BY_ACCESS,
        better: Better::Lower,
        ..SIMULATED
    },
    Figure {
        name: "predict-messages",
        claims: &[Claim::new(ON, Reference::Value(8.0), 1.0)],
        question: "How many messages between nodes does a miss cost when more nodes read?",
        expect: "Two from the home, up to four by way of another node, and two to give up the copy that makes room; they do not grow with the nodes.",
        metric: "messages of a miss",
        unit: "",
        cases: &[ON, OFF],
        references: &[OFF],
        form: BY_ACCESS,
        better: Better::Lower,
        ..SIMULATED
    },
    Figure {
        name: "predict-directory",
        question: "How large is a directory's entry when more nodes have copies?",
        expect: "Four bytes for each holder, and what waits; little beside a page of 64 KiB.",
        metric: "directory entry",
        unit: "bytes",
        cases: &[ON, OFF],
        references: &[OFF],
        form: BY_ACCESS,
        better: Better::Lower,
        ..SIMULATED
    },
    Figure {
        name: "predict-sharing",
        claims: &[
            Claim::new("all that vgas does", Reference::Case("without both"), 2.0).within(4.0, f64::INFINITY)
        ],
        question: "What would a put of one byte cost when all nodes put into the same page?",
        expect: "Served in place, a put takes its turn at the home's agent. Where the page travels, it takes the turns of all nodes over the links.",
        metric: "time of a put",
        unit: "us",
        cases: &["all that vgas does", "without service in place", "without both"],
        form: BY_NODES,
        better: Better::Lower,
        ..SIMULATED
    },
    Figure {
        name: "predict-barrier",
        question: "What would a barrier cost?",
        expect: "A message of each rank in each of its steps, which are the logarithm of the nodes.",
        metric: "time of a barrier",
        unit: "us",
        form: BY_NODES,
        better: Better::Lower,
        ..SIMULATED
    },
    Figure {
        name: "predict-gemm",
        question: "How fast would products be, each node, when the matrices grow with the nodes?",
        expect: "A level line is ideal. Links carry two tiles for each panel, and all nodes of a row of the grid want the same owner's at the same \
                 time: such slow links are the limit of all but the node by itself.",
        metric: "rate of a node",
        unit: "GFLOP/s",
        cases: &[
            "in memory",
            "in memory, without cooperation",
            "out of core",
            "out of core, without cooperation",
            "a node by itself, in memory",
        ],
        references: &["a node by itself, in memory"],
        form: BY_NODES,
        ..SIMULATED
    },
    Figure {
        name: "predict-error",
        question: "How far is the prediction from what this machine measures?",
        expect: "Little. Here all nodes share few processors, and wake each other, which a cluster's do not: what is mostly that is further off.",
        metric: "error",
        unit: "%",
        better: Better::Lower,
        form: AGAINST,
        ..SIMULATED
    },
];
