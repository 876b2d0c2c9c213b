//! `vgas completions` and `vgas man`: written from the definition of the command line, so never out of date.

use crate::cli::Cli;
use crate::failure::Failure;
use crate::output;
use clap::builder::PossibleValuesParser;
use clap::{Arg, Command, CommandFactory, ValueHint};
use clap_complete::Shell;
use std::path::Path;

/// Prints the completions of a shell.
pub fn completions(shell: Shell) -> Result<u8, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut completed(&Cli::command()), "vgas", &mut text);
    output::print_bytes(&text)
}

/// A command as shells complete it: without what is not for users, with the values that its flags take.
fn completed(command: &Command) -> Command {
    let arguments = command.get_arguments().filter(|one| !one.is_hide_set()).cloned().map(with_values);
    let commands = command.get_subcommands().filter(|one| !one.is_hide_set()).map(completed);
    let mut visible = Command::new(kept(command.get_name())).args(arguments).subcommands(commands);
    if let Some(about) = command.get_about() {
        visible = visible.about(about.clone());
    }
    visible.visible_aliases(command.get_visible_aliases().map(kept).collect::<Vec<_>>())
}

/// A name for as long as the process runs, which prints the completions and ends.
fn kept(name: &str) -> &'static str {
    name.to_owned().leak()
}

/// A flag with the kind of its value: one of some words, a path, or something that no shell knows.
fn with_values(flag: Arg) -> Arg {
    if !flag.get_action().takes_values() {
        return flag;
    }
    let words = |flag: Arg, words: Vec<&'static str>| flag.value_parser(PossibleValuesParser::new(words));
    let value = flag.get_value_names().and_then(|names| names.first()).map(ToString::to_string);
    match (flag.get_id().as_str(), value.as_deref()) {
        ("conduit", _) => words(flag, vec!["auto", "smp", "tcp", "ibv", "ofi"]),
        ("name", _) if flag.get_help().is_some_and(|help| help.to_string().contains("`compare`")) => {
            let names = vgas_bench::registry::registry().iter().map(|one| one.name);
            words(flag, names.chain(["all", "compare"]).collect())
        }
        (_, Some("FOLDER")) => flag.value_hint(ValueHint::DirPath),
        (
            "a" | "b" | "output" | "files" | "hosts" | "config" | "json" | "plot" | "rows" | "to" | "what",
            Some(_),
        ) => flag.value_hint(ValueHint::AnyPath),
        ("program", _) => flag.value_hint(ValueHint::CommandWithArguments),
        _ => flag.value_hint(ValueHint::Other),
    }
}

/// Prints the page of the command itself, or writes the pages of all commands into a folder.
pub fn man(directory: Option<&Path>) -> Result<u8, Failure> {
    let Some(directory) = directory else {
        return output::print_bytes(&page()?);
    };
    let shown = directory.display();
    std::fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(Cli::command(), directory))
        .and_then(|()| keep_lines_of_pages(directory))
        .map_err(|error| Failure::new(format!("cannot write manual pages into {shown}: {error}")))?;
    Ok(0)
}

fn page() -> Result<Vec<u8>, Failure> {
    let mut text = Vec::new();
    clap_mangen::Man::new(Cli::command())
        .render(&mut text)
        .map_err(|error| Failure::new(format!("cannot write the manual page: {error}")))?;
    Ok(keep_lines(&String::from_utf8_lossy(&text)).into_bytes())
}

/// Has the pages in a folder show their examples line by line.
fn keep_lines_of_pages(directory: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        let is_ours = path
            .file_name()
            .and_then(|name| name.to_str())
            .is_some_and(|name| name.starts_with("vgas") && name.ends_with(".1"));
        if is_ours {
            let text = keep_lines(&std::fs::read_to_string(&path)?);
            std::fs::write(&path, text)?;
        }
    }
    Ok(())
}

/// Encloses the examples of a page, whose lines troff would fill, in requests that prevent that.
fn keep_lines(page: &str) -> String {
    const SECTION: &str = ".SH EXTRA\n";
    let Some((before, extra)) = page.split_once(SECTION) else { return page.to_owned() };
    let (extra, after) = extra.split_at(extra.find("\n.SH").map_or(extra.len(), |at| at + 1));
    let extra = extra.trim_end();
    format!("{before}.SH EXAMPLES\n.nf\n{extra}\n.fi\n{after}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    #[test]
    fn every_shell_has_completions() {
        for shell in Shell::value_variants() {
            let mut text = Vec::new();
            clap_complete::generate(*shell, &mut completed(&Cli::command()), "vgas", &mut text);
            let text = String::from_utf8(text).unwrap();
            assert!(text.contains("gemm") && text.contains("vgas"), "{shell}");
            // Values, where they are known, and nothing that is not for users.
            let knows_values = matches!(shell, Shell::Bash | Shell::Zsh);
            assert!(!knows_values || text.contains("cold-random") && text.contains("ibv"), "{shell}");
            for hidden in ["neighbour", "--discard", "--join"] {
                assert!(!text.contains(hidden), "{shell}: {hidden}");
            }
        }
    }

    /// Goal: troff does not fill the lines of examples.
    #[test]
    fn examples_stay_lines() {
        let whole = "a\n.SH EXTRA\nExamples:\n  vgas x\n  vgas y\n.SH VERSION\nv1\n";
        let kept = "a\n.SH EXAMPLES\n.nf\nExamples:\n  vgas x\n  vgas y\n.fi\n.SH VERSION\nv1\n";
        assert_eq!(keep_lines(whole), kept);
        assert_eq!(keep_lines("a\n.SH EXTRA\nExample\n"), "a\n.SH EXAMPLES\n.nf\nExample\n.fi\n");
        assert_eq!(keep_lines("a\n"), "a\n");
        assert!(String::from_utf8(page().unwrap()).unwrap().contains(".nf\nExamples:"));
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
