// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random numbers from a seed: the same on every machine, and for ever.
//!
//! Used by `program` to make programs, by `world` to choose the next step. Grade: test. Threads: plain data. Tests:
//! below.

/// A source of random numbers.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Makes the source of a seed. `stream`: sources of one seed and different streams are independent.
    pub const fn new(seed: u64, stream: u64) -> Self {
        Random(mixed(seed) ^ mixed(stream.wrapping_add(0x5851_f42d_4c95_7f2d)))
    }

    /// Returns the next 64 bits.
    #[allow(clippy::should_implement_trait, reason = "it has no end")]
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed(self.0)
    }

    /// Returns a number below `bound`; 0 if that is 0.
    pub const fn below(&mut self, bound: usize) -> usize {
        ((self.next() as u128 * bound as u128) >> 64) as usize
    }

    /// Returns true in one of `count` cases.
    pub const fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    /// Returns one of these.
    pub const fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// Returns an index, with a probability in proportion to its weight.
    pub fn by_weight(&mut self, weights: &[usize]) -> usize {
        let mut left = self.below(weights.iter().sum());
        for (index, weight) in weights.iter().enumerate() {
            if left < *weight {
                return index;
            }
            left -= weight;
        }
        0
    }
}

const fn mixed(bits: u64) -> u64 {
    let bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_a_seed_never_change() {
        let mut random = Random::new(7, 1);
        assert_eq!([random.next(), random.next()], [9_721_434_401_330_685_174, 3_699_173_755_346_202_883]);
    }

    #[test]
    fn an_index_comes_as_often_as_its_weight_says() {
        let mut random = Random::new(1, 0);
        let mut counts = [0_usize; 3];
        (0..40_000).for_each(|_| counts[random.by_weight(&[1, 0, 3])] += 1);
        assert!(counts[0].abs_diff(10_000) < 500 && counts[1] == 0, "{counts:?}");
        assert_eq!((random.below(0), random.below(1)), (0, 0));
    }
}
