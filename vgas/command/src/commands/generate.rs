//! `vgas completions` and `vgas man`: written from the definition of the command line, so never out of date.

use crate::cli::Cli;
use crate::failure::Failure;
use crate::output;
use clap::CommandFactory;
use clap_complete::Shell;
use std::path::Path;

/// Prints the completions of a shell.
pub fn completions(shell: Shell) -> Result<u8, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "vgas", &mut text);
    output::print_bytes(&text)
}

/// Prints the page of the command itself, or writes the pages of all commands into a folder.
pub fn man(directory: Option<&Path>) -> Result<u8, Failure> {
    let Some(directory) = directory else {
        return output::print_bytes(&page()?);
    };
    let shown = directory.display();
    std::fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(Cli::command(), directory))
        .map_err(|error| Failure::new(format!("cannot write manual pages into {shown}: {error}")))?;
    Ok(0)
}

fn page() -> Result<Vec<u8>, Failure> {
    let mut text = Vec::new();
    clap_mangen::Man::new(Cli::command())
        .render(&mut text)
        .map_err(|error| Failure::new(format!("cannot write the manual page: {error}")))?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    #[test]
    fn every_shell_has_completions() {
        for shell in Shell::value_variants() {
            let mut text = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command(), "vgas", &mut text);
            let text = String::from_utf8(text).unwrap();
            assert!(text.contains("gemm") && text.contains("vgas"), "{shell}");
        }
    }

    #[test]
    fn every_command_that_users_see_has_a_page() {
        let folder = tempfile::tempdir().unwrap();
        man(Some(folder.path())).unwrap();
        assert!(String::from_utf8(page().unwrap()).unwrap().contains(".SH SYNOPSIS"));
        for command in Cli::command().get_subcommands().filter(|command| !command.is_hide_set()) {
            let path = folder.path().join(format!("vgas-{}.1", command.get_name()));
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            assert!(text.contains("Example"), "{}", path.display());
        }
    }
}
