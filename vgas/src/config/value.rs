//! The kinds of values a setting can have, and how each is written and read. Nothing here knows any setting.

use std::ffi::OsString;
use std::fmt;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
pub use vgas_nvm::device::paced::Rates;
pub use vgas_rma::conduit::hook::Cable;
pub use vgas_rma::conduit::hook::Stack as Hooks;
use vgas_rma::conduit::hook::StackError;
pub use vgas_rma::conduit::ibv::Network;

/// 1024 bytes.
pub const KIB: u64 = 1 << 10;
/// 1024 KiB.
pub const MIB: u64 = 1 << 20;
/// 1024 MiB.
pub const GIB: u64 = 1 << 30;
/// 1024 GiB.
pub const TIB: u64 = 1 << 40;

/// A type that settings can have: it is written as one line of text, in files, variables and flags alike.
pub trait Value: Sized {
    /// Name of the type in one or two words, with the unit if there is one.
    const KIND: &'static str;

    /// The accepted forms, to complete the sentence "write …".
    fn forms() -> String;

    /// Reads the text. The error completes the sentence "… is refused: it …".
    fn parse(text: &str) -> Result<Self, String>;

    /// Writes it so that [`Value::parse`] reads the same value.
    fn text(&self) -> String;

    /// Returns the magnitude that limits apply to, for values with a size or a count.
    fn magnitude(&self) -> Option<u64> {
        None
    }

    /// Formats a limit of this type.
    fn limit_text(limit: u64) -> String {
        limit.to_string()
    }

    /// The words to choose from with their meaning, when these are all there are.
    fn choices() -> &'static [(&'static str, &'static str)] {
        &[]
    }
}

/// A number of bytes, written `64KiB`, `4MiB`, `2GiB`, `1TiB` or as plain bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(u64);

impl Size {
    /// From a number of bytes.
    pub const fn of_bytes(bytes: u64) -> Self {
        Self(bytes)
    }

    /// The number of bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Size {
    /// Uses the largest unit that needs no fraction, so that the output can be read back.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")];
        match units.into_iter().find(|(unit, _)| self.0 >= *unit && self.0.is_multiple_of(*unit)) {
            Some((unit, name)) => write!(f, "{}{name}", self.0 / unit),
            None => write!(f, "{}", self.0),
        }
    }
}

impl Value for Size {
    const KIND: &'static str = "size in bytes";

    fn forms() -> String {
        "a size such as `64KiB`, `4MiB`, `2GiB`, or plain bytes".into()
    }

    fn parse(text: &str) -> Result<Self, String> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let factor = match unit.trim_start() {
            "" | "B" => 1,
            "KiB" => KIB,
            "MiB" => MIB,
            "GiB" => GIB,
            "TiB" => TIB,
            // No machine has so much, but the error is about the size, and not the syntax.
            "PiB" => TIB << 10,
            "EiB" => TIB << 20,
            other if other.starts_with('.') => return Err("has a fraction; use the next smaller unit".into()),
            "KB" | "kB" | "MB" | "GB" | "TB" | "PB" | "K" | "k" | "M" | "G" | "T" | "P" => {
                return Err(format!(
                    "has the unit `{}`, which could mean powers of ten or of two",
                    unit.trim_start()
                ));
            }
            _ => return Err("is not a size".into()),
        };
        if number.is_empty() {
            return Err("is not a size".into());
        }
        let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
        bytes.map(Size).ok_or_else(|| "is larger than 2^64 bytes".into())
    }

    fn text(&self) -> String {
        self.to_string()
    }

    fn magnitude(&self) -> Option<u64> {
        Some(self.0)
    }

    fn limit_text(limit: u64) -> String {
        Size(limit).to_string()
    }
}

/// A [`Size`] that is a power of two: for sizes that are divided by shifting, as those of pages and rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PowerOfTwo(u64);

impl PowerOfTwo {
    /// The number of bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl fmt::Display for PowerOfTwo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Size(self.0).fmt(f)
    }
}

impl Value for PowerOfTwo {
    const KIND: &'static str = "size in bytes, power of two";

    fn forms() -> String {
        "a power of two such as `4KiB`, `64KiB`, `1MiB`, or plain bytes".into()
    }

    fn parse(text: &str) -> Result<Self, String> {
        let Size(bytes) = Size::parse(text)?;
        if bytes.is_power_of_two() { Ok(Self(bytes)) } else { Err("is not a power of two".into()) }
    }

    fn text(&self) -> String {
        self.to_string()
    }

    fn magnitude(&self) -> Option<u64> {
        Some(self.0)
    }

    fn limit_text(limit: u64) -> String {
        Size(limit).to_string()
    }
}

impl Value for u32 {
    const KIND: &'static str = "count";

    fn forms() -> String {
        "a whole number".into()
    }

    fn parse(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| "is not a whole number of at most 32 bits".into())
    }

    fn text(&self) -> String {
        self.to_string()
    }

    fn magnitude(&self) -> Option<u64> {
        Some(u64::from(*self))
    }
}

impl Value for bool {
    const KIND: &'static str = "switch";

    fn forms() -> String {
        "`on` or `off`".into()
    }

    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "on" | "true" | "yes" | "1" => Ok(true),
            "off" | "false" | "no" | "0" => Ok(false),
            _ => Err("is neither on nor off".into()),
        }
    }

    fn text(&self) -> String {
        if *self { "on".into() } else { "off".into() }
    }
}

impl Value for PathBuf {
    const KIND: &'static str = "folder";

    fn forms() -> String {
        "a path; one that does not begin with `/` counts from the current folder".into()
    }

    /// Makes the path absolute, since daemons and ranks may run in other folders.
    fn parse(text: &str) -> Result<Self, String> {
        std::path::absolute(Path::new(text)).map_err(|error| match text.is_empty() {
            true => "is not a path".into(),
            false => format!("counts from the current folder, which is gone ({error})"),
        })
    }

    fn text(&self) -> String {
        self.to_string_lossy().into_owned()
    }
}

/// A value or the word `auto`, which leaves the choice to vgas where and when it is needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Auto<T> {
    /// vgas decides.
    Auto,
    /// The user has decided.
    Is(T),
}

impl<T: Value> Value for Auto<T> {
    const KIND: &'static str = T::KIND;

    fn forms() -> String {
        format!("`auto`, or {}", T::forms())
    }

    fn parse(text: &str) -> Result<Self, String> {
        if text == "auto" { Ok(Self::Auto) } else { T::parse(text).map(Self::Is) }
    }

    fn text(&self) -> String {
        match self {
            Self::Auto => "auto".into(),
            Self::Is(value) => value.text(),
        }
    }

    fn magnitude(&self) -> Option<u64> {
        match self {
            Self::Auto => None,
            Self::Is(value) => value.magnitude(),
        }
    }

    fn limit_text(limit: u64) -> String {
        T::limit_text(limit)
    }
}

/// A value or the word `none`: there is no such thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OrNone<T> {
    /// Nothing.
    None,
    /// This.
    Some(T),
}

impl<T: Value> Value for OrNone<T> {
    const KIND: &'static str = T::KIND;

    fn forms() -> String {
        format!("`none`, or {}", T::forms())
    }

    fn parse(text: &str) -> Result<Self, String> {
        if text == "none" { Ok(Self::None) } else { T::parse(text).map(Self::Some) }
    }

    fn text(&self) -> String {
        match self {
            Self::None => "none".into(),
            Self::Some(value) => value.text(),
        }
    }

    fn magnitude(&self) -> Option<u64> {
        match self {
            Self::None => None,
            Self::Some(value) => value.magnitude(),
        }
    }

    fn limit_text(limit: u64) -> String {
        T::limit_text(limit)
    }
}

impl<T: Copy> OrNone<T> {
    /// The value, if there is one.
    pub fn value(&self) -> Option<T> {
        match self {
            Self::None => None,
            Self::Some(value) => Some(*value),
        }
    }
}

impl Value for Cable {
    const KIND: &'static str = "link";

    fn forms() -> String {
        "bits a second, as `100mbit` or `1gbit`, and perhaps a delay after a comma, such as `1gbit,50us`; or a delay \
         alone"
            .into()
    }

    fn parse(text: &str) -> Result<Self, String> {
        text.parse()
    }

    fn text(&self) -> String {
        self.to_string()
    }
}

impl Value for Rates {
    const KIND: &'static str = "drive";

    fn forms() -> String {
        "bytes a second, as `200MiB`, and perhaps operations a second after a comma, such as `200MiB,50k`"
            .into()
    }

    fn parse(text: &str) -> Result<Self, String> {
        text.parse()
    }

    fn text(&self) -> String {
        self.to_string()
    }
}

/// TCP ports to listen on, first to last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortRange(pub RangeInclusive<u16>);

impl Value for PortRange {
    const KIND: &'static str = "ports";

    fn forms() -> String {
        "a first and a last port such as `20000-20999`".into()
    }

    fn parse(text: &str) -> Result<Self, String> {
        let port = |text: &str| text.parse().ok().filter(|&port: &u16| port != 0);
        let ends = text.split_once('-').and_then(|(first, last)| Some((port(first)?, port(last)?)));
        match ends {
            Some((first, last)) if first <= last => Ok(Self(first..=last)),
            Some(_) => Err("ends before it begins".into()),
            None => Err("is not a range of ports from 1 to 65535".into()),
        }
    }

    fn text(&self) -> String {
        format!("{}-{}", self.0.start(), self.0.end())
    }
}

/// A network interface by name, or an address of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface(pub String);

impl Value for Interface {
    const KIND: &'static str = "interface";

    fn forms() -> String {
        "the name of a network interface or an address of this machine, such as `eth0` or `10.0.0.7`".into()
    }

    fn parse(text: &str) -> Result<Self, String> {
        let fits =
            !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.:@%".contains(c));
        if fits { Ok(Self(text.into())) } else { Err("is no interface name and no address".into()) }
    }

    fn text(&self) -> String {
        self.0.clone()
    }
}

/// The name of an RDMA device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceName(pub String);

impl Value for DeviceName {
    const KIND: &'static str = "device";

    fn forms() -> String {
        "the name of an RDMA device, such as `mlx5_0` or `rxe0`".into()
    }

    fn parse(text: &str) -> Result<Self, String> {
        let fits = !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c));
        if fits { Ok(Self(text.into())) } else { Err("is no name of a device".into()) }
    }

    fn text(&self) -> String {
        self.0.clone()
    }
}

/// Names of libfabric's providers, with commas between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderNames(pub String);

impl Value for ProviderNames {
    const KIND: &'static str = "providers";

    fn forms() -> String {
        "names of libfabric's providers with commas between them, such as `cxi` or `tcp;ofi_rxm,shm`".into()
    }

    fn parse(text: &str) -> Result<Self, String> {
        let is_name = |name: &str| {
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_;".contains(c))
        };
        if text.split(',').all(is_name) {
            Ok(Self(text.into()))
        } else {
            Err("has no name of a provider".into())
        }
    }

    fn text(&self) -> String {
        self.0.clone()
    }
}

impl Value for Network {
    const KIND: &'static str = "network";

    fn forms() -> String {
        "a network of addresses or a single address, such as `10.9.0.0/24` or `10.9.0.7`".into()
    }

    fn parse(text: &str) -> Result<Self, String> {
        text.parse()
    }

    fn text(&self) -> String {
        self.to_string()
    }
}

impl Value for Hooks {
    const KIND: &'static str = "hooks";

    fn forms() -> String {
        "`none`, or some of `delay=50us`, `rate=100MiB`, `jitter=300us`, `loss=0.1%`, `count` and `trace` with commas between them, such as \
         `delay=50us,loss=0.1%,count`"
            .into()
    }

    fn parse(text: &str) -> Result<Self, String> {
        text.parse().map_err(|error: StackError| error.to_string())
    }

    fn text(&self) -> String {
        self.to_string()
    }
}

/// A program and its first arguments, separated by spaces (no quoting).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandLine(pub Vec<String>);

impl From<&CommandLine> for Vec<OsString> {
    fn from(line: &CommandLine) -> Self {
        line.0.iter().map(OsString::from).collect()
    }
}

impl Value for CommandLine {
    const KIND: &'static str = "command line";

    fn forms() -> String {
        "a program and its arguments, separated by spaces".into()
    }

    fn parse(text: &str) -> Result<Self, String> {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        if words.is_empty() { Err("is empty".into()) } else { Ok(Self(words)) }
    }

    fn text(&self) -> String {
        self.0.join(" ")
    }
}

/// Defines an enum that is a [`Value`]: each variant with its word; its documentation is the users' help
/// text. `(default)` behind one is for `derive(Default)`.
macro_rules! choices {
    ($(#[$attribute:meta])* $vis:vis enum $name:ident {
        $( $(#[doc = $meaning:literal])+ $variant:ident = $word:literal $(($mark:ident))?, )+
    }) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $vis enum $name { $( $(#[doc = $meaning])+ $(#[$mark])? $variant, )+ }

        impl $crate::config::Value for $name {
            const KIND: &'static str = "choice";

            fn forms() -> String {
                let words: Vec<_> = Self::choices().iter().map(|(word, _)| format!("`{word}`")).collect();
                format!("one of {}", words.join(", "))
            }

            fn parse(text: &str) -> Result<Self, String> {
                match text {
                    $( $word => Ok(Self::$variant), )+
                    _ => Err("is none of the choices".into()),
                }
            }

            fn text(&self) -> String {
                match self { $( Self::$variant => $word.into(), )+ }
            }

            fn choices() -> &'static [(&'static str, &'static str)] {
                &[ $( ($word, concat!($($meaning),+)), )+ ]
            }
        }
    };
}
pub(crate) use choices;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_binary_units_only() {
        for (text, bytes) in
            [("0", 0), ("4096", 4096), ("64KiB", 64 * KIB), ("4 MiB", 4 * MIB), ("2GiB", 2 * GIB), ("7B", 7)]
        {
            assert_eq!(Size::parse(text), Ok(Size(bytes)), "{text}");
        }
        for text in ["", "KiB", "-1", "1.5GiB", "64K", "4MB", "64kib", "1 Mi B", "20000000TiB", "0x10", "١"]
        {
            assert!(Size::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_refused_size_says_why() {
        assert!(Size::parse("1.5GiB").unwrap_err().contains("next smaller unit"));
        assert!(Size::parse("4MB").unwrap_err().contains("powers of ten or of two"));
        assert!(Size::parse("99999999TiB").unwrap_err().contains("2^64"));
    }

    #[test]
    fn what_is_printed_is_read_back() {
        fn both_ways<T: Value + PartialEq + std::fmt::Debug>(text: &str, printed: &str) {
            let value = T::parse(text).unwrap();
            assert_eq!(value.text(), printed);
            assert_eq!(T::parse(printed), Ok(value));
        }
        both_ways::<Size>("1048576", "1MiB");
        both_ways::<Size>("1048577", "1048577");
        both_ways::<PowerOfTwo>("65536", "64KiB");
        both_ways::<u32>("007", "7");
        both_ways::<bool>("yes", "on");
        both_ways::<Auto<Size>>("auto", "auto");
        both_ways::<Auto<Size>>("1024KiB", "1MiB");
        both_ways::<OrNone<Cable>>("none", "none");
        both_ways::<OrNone<Cable>>("1000mbit,50us", "1gbit,50us");
        both_ways::<OrNone<Rates>>("200MiB,50k", "200MiB,50k");
        both_ways::<PortRange>("1-65535", "1-65535");
        both_ways::<CommandLine>("ssh   -p 22", "ssh -p 22");
        both_ways::<PathBuf>("/var/tmp", "/var/tmp");
    }

    #[test]
    fn boundaries_of_ports_and_powers() {
        assert!(PowerOfTwo::parse("64KiB").is_ok() && PowerOfTwo::parse("65KiB").is_err());
        assert!(PowerOfTwo::parse("0").is_err());
        assert!(PortRange::parse("20000-20000").is_ok() && PortRange::parse("20001-20000").is_err());
        assert!(PortRange::parse("0-5").is_err() && PortRange::parse("1-65536").is_err());
    }
}
