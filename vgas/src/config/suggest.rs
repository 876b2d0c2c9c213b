//! The nearest of some names to a misspelt one.

/// The candidate that `written` most likely meant, if any is near enough for a question.
pub(super) fn nearest<'a>(written: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let written = written.to_lowercase().replace('-', "_");
    let mut best = None;
    for candidate in candidates {
        let plain = candidate.to_lowercase();
        // A forgotten or wrong group costs one, so that `size` and `nvm.size` find `cache.size`.
        let distance = edits(&written, &plain).min(edits(last_part(&written), last_part(&plain)) + 1);
        if best.is_none_or(|(_, least)| distance < least) {
            best = Some((candidate, distance));
        }
    }
    let near_enough = 1 + written.chars().count() / 3;
    best.filter(|(_, distance)| *distance <= near_enough).map(|(candidate, _)| candidate)
}

/// Settings of earlier versions whose new names are not similar.
const SUCCESSORS: [(&str, &str); 3] = [
    ("local.system_calls", "local.mechanism"),
    ("stats.each", "stats.print"),
    ("cache.part_max", "ablation.parts"),
];

/// Returns the present name of an earlier version's setting.
pub(super) fn successor(written: &str) -> Option<&'static str> {
    SUCCESSORS.into_iter().find(|(past, _)| *past == written).map(|(_, now)| now)
}

fn last_part(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

/// Edit distance of two texts: insertions, deletions, replacements and swaps of neighbours (optimal string
/// alignment).
fn edits(from: &str, to: &str) -> usize {
    let (from, to): (Vec<char>, Vec<char>) = (from.chars().collect(), to.chars().collect());
    let mut before: Vec<usize> = vec![0; to.len() + 1];
    let mut above: Vec<usize> = (0..=to.len()).collect();
    for row in 1..=from.len() {
        let mut current = vec![row; to.len() + 1];
        for column in 1..=to.len() {
            let differs = usize::from(from[row - 1] != to[column - 1]);
            let mut least = (above[column] + 1).min(current[column - 1] + 1).min(above[column - 1] + differs);
            let swapped =
                row > 1 && column > 1 && from[row - 1] == to[column - 2] && from[row - 2] == to[column - 1];
            if swapped {
                least = least.min(before[column - 2] + 1);
            }
            current[column] = least;
        }
        before = std::mem::replace(&mut above, current);
    }
    above[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_counts_each_kind_once() {
        for (from, to, count) in [
            ("", "abc", 3),
            ("size", "size", 0),
            ("sise", "size", 1),
            ("szie", "size", 1),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!((edits(from, to), edits(to, from)), (count, count), "{from} {to}");
        }
    }

    #[test]
    fn finds_the_likely_name_and_nothing_far_away() {
        let names = ["cache.size", "cache.page", "nvm.directory", "conduit"];
        let find = |written| nearest(written, names.into_iter());
        assert_eq!(find("cache.sise"), Some("cache.size"));
        assert_eq!(find("size"), Some("cache.size"));
        assert_eq!(find("local.directory"), Some("nvm.directory"));
        assert_eq!(find("Cache.Page"), Some("cache.page"));
        assert_eq!(find("nvm.queue"), None);
        assert_eq!(find("conduits"), Some("conduit"));
        assert_eq!(find("frobnicate.everything"), None);
    }
}
