//! The machines of a job, from a list or a file.

use crate::failure::Failure;
use std::path::Path;

/// Hosts from `--host a,b`.
pub fn from_list(names: &[String]) -> Result<Vec<String>, Failure> {
    names.iter().map(|name| checked(name.trim(), "--host")).collect()
}

/// Hosts from a file: one a line; `#` begins a comment.
pub fn from_file(path: &Path) -> Result<Vec<String>, Failure> {
    let shown = path.display();
    let text = vgas::config::read_text(path)
        .map_err(|error| Failure::usage(format!("cannot read the hosts in {shown}: {error}")))?;
    from_text(&text, &shown.to_string())
}

fn from_text(text: &str, shown: &str) -> Result<Vec<String>, Failure> {
    // Some editors begin a file with a mark of its byte order.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    let numbered = (1..).zip(lines).filter(|(_, line)| !line.is_empty());
    let hosts: Vec<_> = numbered
        .map(|(number, line)| checked(line, &format!("{shown}:{number}")))
        .collect::<Result<_, _>>()?;
    if hosts.is_empty() {
        return Err(Failure::usage(format!("{shown} names no host")).hint("write one host a line"));
    }
    Ok(hosts)
}

/// A name that ssh takes for a host, not for an option or a command.
fn checked(name: &str, place: &str) -> Result<String, Failure> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.:@[]%".contains(c);
    if name.is_empty() || name.starts_with('-') || !name.chars().all(allowed) {
        let failure = Failure::usage(format!("`{name}` ({place}) is not a host"));
        return Err(
            failure.hint("write a name or an address as ssh takes it, such as `node1` or `user@10.0.0.7`")
        );
    }
    Ok(name.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_host_a_line_with_comments() {
        let hosts = from_text("# cluster\nnode1\n  user@node2 # the slow one\n\n", "f").unwrap();
        assert_eq!(hosts, ["node1", "user@node2"]);
        assert_eq!(from_text("\u{feff}node1\r\nnode2\r\n", "f").unwrap(), ["node1", "node2"]);
    }

    #[test]
    fn what_ssh_would_take_for_something_else_is_refused() {
        for text in ["-oProxyCommand=x", "a b", "a;b", "$(x)"] {
            let error = from_text(text, "f").expect_err(text).text();
            assert!(error.starts_with(&format!("`{text}` (f:1) is not a host")), "{error}");
        }
        assert!(from_text("# nothing\n", "f").expect_err("empty").text().starts_with("f names no host"));
        assert!(from_list(&["a".into(), String::new()]).is_err());
    }
}
