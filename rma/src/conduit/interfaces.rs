//! The addresses of this machine's network interfaces.
//!
//! # Unsafe rules
//!
//! 1. *Pointers to the system* point to live local values for the time of the call; the list that the system returns is
//!    read before it is given back.

use std::ffi::CStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The first address of a network interface, IPv4 before IPv6.
pub fn interface_address(name: &str) -> Option<IpAddr> {
    let all = interface_addresses();
    let addresses = || all.iter().filter(|(interface, _)| interface == name).map(|(_, address)| *address);
    addresses().find(IpAddr::is_ipv4).or_else(|| addresses().next())
}

/// The addresses of this machine's network interfaces, with the interfaces' names, in the order of the system.
pub fn interface_addresses() -> Vec<(String, IpAddr)> {
    let mut list = std::ptr::null_mut();
    // SAFETY: rule 1: the pointer is to a local.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return Vec::new();
    }
    let mut all = Vec::new();
    let mut next = list;
    while !next.is_null() {
        // SAFETY: rule 1: entries of the list, which is given back below; names in it end with a zero.
        let (entry, name) = unsafe { (&*next, CStr::from_ptr((*next).ifa_name)) };
        next = entry.ifa_next;
        if entry.ifa_addr.is_null() {
            continue;
        }
        // SAFETY: rule 1: an address of the list begins with its family, which tells the type of the whole.
        if let Some(address) = unsafe { address_of(entry.ifa_addr) } {
            all.push((name.to_string_lossy().into_owned(), address));
        }
    }
    // SAFETY: rule 1: the list came from `getifaddrs` and is not used any more.
    unsafe { libc::freeifaddrs(list) };
    all
}

/// # Safety
/// `address` points to a socket address whose size is that of its family.
unsafe fn address_of(address: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: the caller's promise.
    unsafe {
        match libc::c_int::from((*address).sa_family) {
            libc::AF_INET => {
                let address = address.cast::<libc::sockaddr_in>().read_unaligned();
                Some(Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr)).into())
            }
            libc::AF_INET6 => {
                let address = address.cast::<libc::sockaddr_in6>().read_unaligned();
                Some(Ipv6Addr::from(address.sin6_addr.s6_addr).into())
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_has_the_loopback_address() {
        assert!(interface_address("lo").is_some_and(|address| address.is_loopback()));
        assert_eq!(interface_address("no such interface"), None);
    }
}
