//! Variables that a rank must not inherit: those by which a process manager tells a process its rank.
//!
//! The starter of `vgas run` may be one itself (`srun`, `mpirun`, a batch system), and the daemons of other
//! nodes may be its tasks. An MPI in a rank would believe that it is that one process, all of them the same.
//! Variables that say where a job runs, or how an MPI is to behave, stay.

#![forbid(unsafe_code)]

use std::ffi::OsStr;

/// Variables of one process.
const NAMES: &[&str] = &[
    "MPI_LOCALNRANKS",
    "MPI_LOCALRANKID",
    "OMPI_APP_CTX_NUM_PROCS",
    "OMPI_ARGV",
    "OMPI_COMMAND",
    "OMPI_FILE_LOCATION",
    "OMPI_FIRST_RANKS",
    "OMPI_MCA_ess",
    "OMPI_MCA_initial_wdir",
    "OMPI_MCA_pmix",
    "OMPI_NUM_APP_CTX",
    "OMPI_UNIVERSE_SIZE",
    "SLURM_DISTRIBUTION",
    "SLURM_GTIDS",
    "SLURM_LAUNCH_NODE_IPADDR",
    "SLURM_LOCALID",
    "SLURM_MPI_TYPE",
    "SLURM_NNODES",
    "SLURM_NODEID",
    "SLURM_NPROCS",
    "SLURM_NTASKS",
    "SLURM_PROCID",
    "SLURM_STEPID",
    "SLURM_TASKS_PER_NODE",
    "SLURM_TASK_PID",
    crate::pmi::LINE_VARIABLE,
];

/// Beginnings of variables of one process. Those of MPICH's Hydra are `PMI_` and `HYDI_`.
const BEGINNINGS: &[&str] = &[
    "FLUX_TASK_",
    "HYDI_",
    "OMPI_COMM_WORLD_",
    "OMPI_MCA_ess_",
    "OMPI_MCA_orte_",
    "PALS_",
    "PMI_",
    "PMI2_",
    "PMIX_",
    "SLURM_NTASKS_PER_",
    "SLURM_PMI",
    "SLURM_SRUN_",
    "SLURM_STEP_",
];

/// Beginnings that have the others' and are parameters that users set.
const KEPT: &[&str] = &["PMIX_MCA_"];

/// Returns true if a variable tells a process its rank under a process manager.
pub(crate) fn tells_of_a_rank(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    let begins = |beginnings: &[&str]| beginnings.iter().any(|beginning| name.starts_with(beginning));
    NAMES.contains(&name) || (begins(BEGINNINGS) && !begins(KEPT))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: variables that make a process a rank go, those that a user or a site has set stay.
    #[test]
    fn parameters_stay() {
        let gone = [
            "PMI_FD",
            "PMI_RANK",
            "PMIX_NAMESPACE",
            "PMIX_SERVER_URI41",
            "OMPI_COMM_WORLD_SIZE",
            "OMPI_MCA_orte_hnp_uri",
            "OMPI_MCA_ess_base_vpid",
            "SLURM_PROCID",
            "SLURM_STEP_ID",
            "SLURM_NTASKS",
            "MPI_LOCALRANKID",
            "HYDI_CONTROL_FD",
        ];
        let kept = [
            "OMPI_MCA_btl",
            "OMPI_ALLOW_RUN_AS_ROOT",
            "PMIX_MCA_gds",
            "SLURM_JOB_ID",
            "SLURM_JOB_NODELIST",
            "SLURM_CONF",
            "HYDRA_LAUNCHER",
            "FI_PROVIDER",
            "PATH",
            "FLUX_URI",
        ];
        assert!(gone.into_iter().all(|name| tells_of_a_rank(name.as_ref())));
        assert!(!kept.into_iter().any(|name| tells_of_a_rank(name.as_ref())));
    }
}
