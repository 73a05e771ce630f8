//! Groups of numbers that are linked by pairs.

/// The connected components of `0..count` under pairs: for each number the smallest one that a chain of pairs links to it.
///
/// ```
/// use gallerist_util::disjoint::components;
/// assert_eq!(components(5, [(4, 1), (3, 4)]), [0, 1, 2, 1, 1]);
/// ```
///
/// # Panics
/// When a pair has a number that is not below `count`.
pub fn components(count: usize, pairs: impl IntoIterator<Item = (usize, usize)>) -> Vec<usize> {
    let mut parents: Vec<usize> = (0..count).collect();
    for (a, b) in pairs {
        let (a, b) = (root(&mut parents, a), root(&mut parents, b));
        // The root is the smallest number, whatever the order of the pairs.
        parents[a.max(b)] = a.min(b);
    }
    (0..count).map(|number| root(&mut parents, number)).collect()
}

/// The root of a number; shortens the way to it.
fn root(parents: &mut [usize], mut number: usize) -> usize {
    while parents[number] != number {
        parents[number] = parents[parents[number]];
        number = parents[number];
    }
    number
}
