//! Powers of two by which numbers are made smaller or larger, so that sums of their squares stay in the range of f64.

/// Numbers within 2^±COMFORTABLE need no scaling: neither their products nor sums of these leave the range.
const COMFORTABLE: i32 = 300;
/// The largest exponent of a scale: that of the normal numbers, on both sides.
const EXPONENT_MAX: i32 = 1022;
/// The least exponent of a product. Below it, what rounding near 0 may do would be scaled out of the range.
const PRODUCT_EXPONENT_MIN: i32 = -1000;

/// The exponent by which numbers of at most this size are to be scaled down.
pub fn exponent(largest: f64) -> i32 {
    // The sign is 0; numbers below the normal ones are taken for the least of these.
    let exponent = (largest.to_bits() >> 52) as i32 - 1023;
    match exponent {
        _ if largest == 0.0 => 0,
        _ if exponent.abs() <= COMFORTABLE => 0,
        _ => exponent.clamp(-EXPONENT_MAX, EXPONENT_MAX),
    }
}

/// The exponent of a row of the product, from those of the row of A and of B.
pub fn of_product(a: i32, b: i32) -> i32 {
    (a + b).max(PRODUCT_EXPONENT_MIN)
}

/// Multiplies by a power of two, in two steps because the power itself may be out of range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale([f64; 2]);

impl Scale {
    /// By 2^−`exponent`.
    ///
    /// # Panics
    /// If it is more than twice that of the normal numbers.
    pub fn down(exponent: i32) -> Self {
        let power = |exponent: i32| {
            assert!(exponent.abs() <= EXPONENT_MAX, "a power of two that is a normal number");
            f64::from_bits(((exponent + 1023) as u64) << 52)
        };
        let half = exponent / 2;
        Self([power(-half), power(half - exponent)])
    }

    /// The number, scaled. Exact, unless it leaves the range of normal numbers.
    pub fn of(self, number: f64) -> f64 {
        number * self.0[0] * self.0[1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scaled_numbers_are_near_one_and_their_products_in_range() {
        for number in [f64::MAX, 1e200, 1e-200, f64::MIN_POSITIVE, 5e-324] {
            let scaled = Scale::down(exponent(number)).of(number);
            assert!((1e-16..4.0).contains(&scaled), "{number:e} became {scaled:e}");
            assert_eq!(Scale::down(-exponent(number)).of(scaled), number);
        }
        for number in [0.0, 1.0, 1e-90, 1e90] {
            assert_eq!(exponent(number), 0);
            assert_eq!(Scale::down(0).of(number), number);
        }
        let extremes = [-EXPONENT_MAX, 0, EXPONENT_MAX];
        for (a, b) in extremes.iter().flat_map(|&a| extremes.map(|b| (a, b))) {
            let product = of_product(a, b);
            // Made, and undone for what is shown to people.
            let _ = (Scale::down(product), Scale::down(-product), Scale::down(product - b));
        }
    }
}
