//! Ownership, layout and order of work: pure arithmetic, the same on every rank.
//!
//! SUMMA (van de Geijn and Watts; vGASNet §IV.D): the ranks form a grid, the matrices are cut into tiles, and the
//! tiles are dealt out over the grid in both directions. A block of C is computed by the rank that owns it, as a sum
//! over panels: a tile of A times a tile of B for every k. So the tile is at once the unit of ownership, of storage
//! (contiguous in the owner's segment) and of transfer.
//!
//! The sizes follow from two limits. *Private memory* holds the block of C and two panels of A and B, one being
//! multiplied and one on its way; the larger the block, the fewer bytes are fetched for a multiplication. The *cache*
//! of a node must hold the panels that its ranks have on their way at one time.

use super::error::{GemmError, Result};
use super::npy::{Dtype, Order, Rectangle, Shape2};
use std::ops::Range;

/// Width of a panel, in elements. On blocks of these sizes faer reaches 0.68 to 0.87 of its full-size rate
/// with panels of 64, 0.91 to 0.96 with 128, 0.90 to 1.03 with 256 and 1.00 to 1.07 with 512, whose buffers
/// would cost a tenth of the block (`examples/gemm_kernel.rs`, one thread, on a busy machine: hence the
/// spread).
const PANEL_WIDTH: u64 = 256;
/// Narrower than this, a panel costs more to fetch and pack than to multiply.
const PANEL_WIDTH_MIN: u64 = 16;
/// The smallest side of a block that is considered, in elements.
const BLOCK_SIDE_MIN: u64 = 32;
/// Sides are multiples of this, in elements: whole cache lines of either type.
const ALIGN: u64 = 16;
/// Neighbouring tiles along k with one owner, at most. They are loaded by one scan of the file and put in one piece.
const GROUP_MAX: u64 = 8;
/// A group's buffer when loading, as a part of the private memory.
const GROUP_SHARE: u64 = 3;
/// Panels announced beyond the one on its way, at most: enough to cover a few milliseconds of a disk's hesitation.
const AHEAD_MAX: u64 = 4;
/// Random vectors used by `--verify` (see [`super::verify`]), each a number of 8 bytes for a row of B.
pub(super) const ROUNDS: usize = 8;

/// The sizes and types of A, B and C.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Rows of A and C.
    pub m: u64,
    /// Columns of B and C.
    pub n: u64,
    /// Columns of A, rows of B.
    pub k: u64,
    /// Type of all three.
    pub dtype: Dtype,
    /// Order of A, B and C in their files; [`tile_orders`](Self::tile_orders) inside of tiles.
    pub orders: [Order; 3],
}

impl Problem {
    /// Shape of C.
    pub fn product_shape(&self) -> Shape2 {
        Shape2 { rows: self.m, columns: self.n }
    }

    /// Order of A, B and C inside of their tiles: as in the files, so that nothing is transposed, except where the
    /// kernel would lose more than half of its rate: for a row-major C it wants A's rows in one piece, for a
    /// column-major C the columns of B (measured by `examples/gemm_kernel.rs`).
    pub fn tile_orders(&self) -> [Order; 3] {
        let [a, b, c] = self.orders;
        match c {
            Order::C => [Order::C, b, c],
            Order::Fortran => [a, Order::Fortran, c],
        }
    }

    /// Multiplications and additions.
    pub fn flops(&self) -> f64 {
        2.0 * self.m as f64 * self.n as f64 * self.k as f64
    }

    /// Bytes of A, B and C together.
    pub fn bytes(&self) -> u64 {
        let elements = self.m.saturating_mul(self.k).saturating_add(self.k.saturating_mul(self.n));
        elements.saturating_add(self.m.saturating_mul(self.n)).saturating_mul(self.dtype.bytes())
    }

    /// Bytes of the vectors of `--verify`, in all segments together.
    pub(super) fn vector_bytes(&self) -> u64 {
        self.k.saturating_mul((ROUNDS * size_of::<f64>()) as u64)
    }
}

/// Resources of the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Ranks of the job.
    pub ranks: usize,
    /// The most ranks that share a node's cache.
    pub ranks_on_node: usize,
    /// Page size, in bytes.
    pub page_bytes: u64,
    /// Cache of the smallest node, in bytes.
    pub cache_bytes: u64,
    /// Private memory of a rank for tiles and the kernel's own buffers, in bytes.
    pub memory_bytes: u64,
}

/// One of the three matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// The left factor.
    A,
    /// The right factor.
    B,
    /// The product.
    C,
}

/// A tile: what it holds of its matrix, and where it is in global memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tile {
    /// The rank in whose segment it is.
    pub owner: usize,
    /// Offset in the segment, in bytes.
    pub offset: u64,
    /// Its length, in bytes.
    pub bytes: usize,
    /// Its part of the matrix, in the order of [`Problem::tile_orders`] and without gaps.
    pub rectangle: Rectangle,
}

/// Neighbouring tiles along k, contiguous in one segment: what is loaded in one go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its tiles, in order of k and of offset.
    pub tiles: Vec<Tile>,
    /// All they hold.
    pub rectangle: Rectangle,
}

/// The plan of a product.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The problem.
    pub problem: Problem,
    /// Rows and columns of the grid of ranks; rank `r` stands in row `r / columns`.
    pub grid: [u64; 2],
    /// Rows of A's tiles and of blocks, columns of B's tiles and of blocks, width of panels; in elements.
    pub tile: [u64; 3],
    /// Number of tiles along m, n and k.
    pub tiles: [u64; 3],
    /// Tiles along k that stay together.
    pub group: u64,
    /// Panels to announce beyond the one on its way.
    pub ahead: u64,
    /// From one tile to the next in a segment: for A, B and C, in bytes.
    slots: [u64; 3],
    /// Offsets of the tiles of A, B and C in every segment, then of the vectors of `--verify`, then the end;
    /// in bytes.
    starts: [u64; 5],
    ranks: u64,
}

impl Plan {
    /// Plans a product. The result depends on the arguments alone.
    ///
    /// # Errors
    /// [`GemmError::CacheTooSmall`], [`GemmError::MemoryTooSmall`].
    pub fn new(problem: &Problem, limits: &Limits) -> Result<Self> {
        let ranks = limits.ranks.max(1) as u64;
        let grid = grid(problem, ranks);
        let [mb, nb, kb] = tile_sizes(problem, limits, grid)?;
        let tiles = [problem.m.div_ceil(mb), problem.n.div_ceil(nb), problem.k.div_ceil(kb)];
        let element = problem.dtype.bytes();
        let (a, b, c) = (mb * kb * element, kb * nb * element, mb * nb * element);
        let group_bytes = limits.memory_bytes / GROUP_SHARE;
        let each = tiles[2].div_ceil(grid[0].max(grid[1])).max(1);
        let group = (group_bytes / a.max(b)).clamp(1, GROUP_MAX).min(each);
        let page = limits.page_bytes;
        let slots = [a, b, c].map(|bytes| slot_bytes(bytes, page));
        let local = |count: u64, over: u64| count.div_ceil(over);
        let along_k = |over: u64| local(local(tiles[2], group), over) * group;
        let counts = [
            local(tiles[0], grid[0]) * along_k(grid[1]),
            along_k(grid[0]) * local(tiles[1], grid[1]),
            local(tiles[0], grid[0]) * local(tiles[1], grid[1]),
        ];
        let vectors = problem.k.div_ceil(ranks) * (ROUNDS * size_of::<f64>()) as u64;
        let mut starts = [0; 5];
        let regions =
            [counts[0] * slots[0], counts[1] * slots[1], counts[2] * slots[2], vectors + SUSPECTS_BYTES];
        for (at, bytes) in regions.into_iter().enumerate() {
            starts[at + 1] = (starts[at] + bytes).next_multiple_of(page);
        }
        let mut plan = Self {
            problem: *problem,
            grid,
            tile: [mb, nb, kb],
            tiles,
            group,
            ahead: 0,
            slots,
            starts,
            ranks,
        };
        let pages = limits.cache_bytes / page;
        let panel = panel_pages(a, page) + panel_pages(b, page);
        let share = pages / 2 / limits.ranks_on_node.max(1) as u64;
        plan.ahead = (share.saturating_sub(panel) / panel).min(AHEAD_MAX);
        Ok(plan)
    }

    /// Bytes that every rank's segment must have.
    pub fn segment_bytes(&self) -> u64 {
        self.starts[4]
    }

    /// Offset of the vectors of `--verify` in every segment: the rank's share of rows of B·X, then its
    /// suspects.
    pub(super) fn vectors_start(&self) -> u64 {
        self.starts[3]
    }

    /// The rank's share of `count` things: contiguous, the same size for all but the last ones.
    pub(super) fn share(&self, rank: usize, count: u64) -> Range<u64> {
        let each = count.div_ceil(self.ranks);
        (each * rank as u64).min(count)..(each * (rank as u64 + 1)).min(count)
    }

    /// Offset of a rank's suspects in its segment, behind the vectors.
    pub(super) fn suspects_start(&self) -> u64 {
        self.starts[3] + self.problem.k.div_ceil(self.ranks) * (ROUNDS * size_of::<f64>()) as u64
    }

    /// The axes along the rows' and the columns' numbers of a matrix: 0 for m, 1 for n, 2 for k.
    fn axes(operand: Operand) -> [usize; 2] {
        match operand {
            Operand::A => [0, 2],
            Operand::B => [2, 1],
            Operand::C => [0, 1],
        }
    }

    /// The tile at a row and column of tiles.
    pub fn tile(&self, operand: Operand, row: u64, column: u64) -> Tile {
        let [p, q] = self.grid;
        let [down, right] = Self::axes(operand);
        let lengths = [self.problem.m, self.problem.n, self.problem.k];
        let range =
            |at: u64, axis: usize| at * self.tile[axis]..((at + 1) * self.tile[axis]).min(lengths[axis]);
        let rectangle = Rectangle { rows: range(row, down), columns: range(column, right) };
        // Along k, whole groups are dealt out; along m and n, single tiles.
        let deal = |at: u64, axis: usize, over: u64| match axis {
            2 => (at / self.group % over, at / self.group / over * self.group + at % self.group),
            _ => (at % over, at / over),
        };
        let (grid_row, local_row) = deal(row, down, p);
        let (grid_column, local_column) = deal(column, right, q);
        // Tiles that are neighbours along k are neighbours in the segment.
        let along_k = |over: u64| self.tiles[2].div_ceil(self.group).div_ceil(over) * self.group;
        let index = match operand {
            Operand::A => local_row * along_k(q) + local_column,
            Operand::B => local_column * along_k(p) + local_row,
            Operand::C => local_row * self.tiles[1].div_ceil(q) + local_column,
        };
        let matrix = operand as usize;
        Tile {
            owner: (grid_row * q + grid_column) as usize,
            offset: self.starts[matrix] + index * self.slots[matrix],
            bytes: (rectangle.len() * self.problem.dtype.bytes()) as usize,
            rectangle,
        }
    }

    /// The groups of A or B that a rank owns, in the order of the file.
    pub fn groups(&self, operand: Operand, rank: usize) -> Vec<Group> {
        let [p, q] = self.grid;
        let (row, column) = (rank as u64 / q, rank as u64 % q);
        let along_k =
            |first: u64, over: u64| (first * self.group..self.tiles[2]).step_by((over * self.group) as usize);
        let collect = |tiles: Vec<Tile>| {
            let (first, last) = (&tiles[0].rectangle, &tiles[tiles.len() - 1].rectangle);
            let rows = first.rows.start..last.rows.end;
            let rectangle = Rectangle { rows, columns: first.columns.start..last.columns.end };
            Group { tiles, rectangle }
        };
        let mut groups = Vec::new();
        let ks = |k: u64| k..(k + self.group).min(self.tiles[2]);
        match operand {
            Operand::A => {
                for i in (row..self.tiles[0]).step_by(p as usize) {
                    for k in along_k(column, q) {
                        groups.push(collect(ks(k).map(|k| self.tile(Operand::A, i, k)).collect()));
                    }
                }
            }
            Operand::B => {
                for k in along_k(row, p) {
                    for j in (column..self.tiles[1]).step_by(q as usize) {
                        groups.push(collect(ks(k).map(|k| self.tile(Operand::B, k, j)).collect()));
                    }
                }
            }
            Operand::C => {}
        }
        groups
    }

    /// The blocks of C that a rank computes, in order: like a snake, so that two blocks that follow one another share
    /// their row or column of panels. Ranks of one row (column) of the grid come to the same panels of A (B) at about
    /// the same time, which is when a cooperative cache serves them.
    pub fn blocks(&self, rank: usize) -> Vec<(u64, u64)> {
        let [p, q] = self.grid;
        let (row, column) = (rank as u64 / q, rank as u64 % q);
        let mut blocks = Vec::new();
        for (turn, i) in (row..self.tiles[0]).step_by(p as usize).enumerate() {
            let mut line: Vec<_> = (column..self.tiles[1]).step_by(q as usize).map(|j| (i, j)).collect();
            if turn % 2 == 1 {
                line.reverse();
            }
            blocks.extend(line);
        }
        blocks
    }

    /// The order of panels in the `turn`-th block of a rank: forth and back, so that a block begins with the panels
    /// that the one before it ended with.
    pub fn panel(&self, turn: u64, step: u64) -> u64 {
        if turn.is_multiple_of(2) { step } else { self.tiles[2] - 1 - step }
    }

    /// Bytes of the largest tile of a matrix.
    pub fn tile_bytes(&self, operand: Operand) -> usize {
        let [down, right] = Self::axes(operand);
        let lengths = [self.problem.m, self.problem.n, self.problem.k];
        let side = |axis: usize| self.tile[axis].min(lengths[axis]);
        (side(down) * side(right) * self.problem.dtype.bytes()) as usize
    }
}

/// Room for the rows that a rank finds most suspicious (see [`super::verify`]), in bytes.
const SUSPECTS_BYTES: u64 = 64;

/// The grid whose ranks fetch the least: of all factorings of `ranks`, the one with the smallest perimeter of a rank's part of C.
fn grid(problem: &Problem, ranks: u64) -> [u64; 2] {
    let perimeter = |p: u64| problem.m.div_ceil(p).saturating_add(problem.n.div_ceil(ranks / p));
    let rows = (1..=ranks).filter(|p| ranks.is_multiple_of(*p)).min_by_key(|&p| perimeter(p)).unwrap_or(1);
    [rows, ranks / rows]
}

/// Rows and columns of a block and width of a panel, in elements.
fn tile_sizes(problem: &Problem, limits: &Limits, grid: [u64; 2]) -> Result<[u64; 3]> {
    let element = problem.dtype.bytes();
    let smallest = |length: u64, least: u64| length.clamp(1, least);
    let memory = |m: u64, n: u64, k: u64| (m * n + 3 * k * (m + n)) * element;
    let least = memory(
        smallest(problem.m, BLOCK_SIDE_MIN),
        smallest(problem.n, BLOCK_SIDE_MIN),
        smallest(problem.k, PANEL_WIDTH_MIN),
    );
    if limits.memory_bytes < least {
        return Err(GemmError::MemoryTooSmall { memory_bytes: limits.memory_bytes, minimum_bytes: least });
    }
    let ranks_on_node = limits.ranks_on_node.max(1) as u64;
    // Must fit into the cache at one time: for each rank, a panel of A and of B, and two pages of C being
    // put.
    let pages = |m: u64, n: u64, k: u64| {
        let panel = |side: u64| panel_pages(side * k * element, limits.page_bytes);
        ranks_on_node * (panel(m) + panel(n) + 2)
    };
    let cache_pages = limits.cache_bytes / limits.page_bytes;
    let minimum = pages(
        smallest(problem.m, BLOCK_SIDE_MIN),
        smallest(problem.n, BLOCK_SIDE_MIN),
        smallest(problem.k, PANEL_WIDTH_MIN),
    );
    if cache_pages < minimum {
        return Err(GemmError::CacheTooSmall {
            cache_bytes: limits.cache_bytes,
            minimum_bytes: minimum * limits.page_bytes,
            page_bytes: limits.page_bytes,
            ranks_on_node: ranks_on_node as usize,
        });
    }
    let mut budget = limits.memory_bytes / element;
    loop {
        let [m, n, k] = fill(problem, grid, budget);
        let fits = pages(m, n, k) <= cache_pages && memory(m, n, k) <= limits.memory_bytes;
        let smallest = m <= BLOCK_SIDE_MIN && n <= BLOCK_SIDE_MIN && k <= PANEL_WIDTH_MIN;
        if fits || smallest {
            return Ok([m, n, k]);
        }
        budget = budget * 3 / 4;
    }
}

/// The blocks that fetch the least for `budget` elements of memory, with panels as wide as is useful to them.
fn fill(problem: &Problem, grid: [u64; 2], budget: u64) -> [u64; 3] {
    // A square block of side s with panels of width k: s² + 6·s·k elements (two panels of A and B, and the packed
    // copies that the kernel makes of one of each).
    let square = |k: u64| ((9 * k * k + budget) as f64).sqrt() as u64 - 3 * k;
    let k_limit = problem.k.max(1);
    let mut k = PANEL_WIDTH.min(k_limit);
    while k > PANEL_WIDTH_MIN && square(k) < 4 * k {
        k /= 2;
    }
    let k = even(problem.k, k, 1);
    // A block of m × n elements is fetched m + n elements for every panel's column. Try all numbers of columns of
    // blocks that give every rank as many as the next; for each, the tallest blocks that fit.
    let least = BLOCK_SIDE_MIN;
    let mut best = (f64::INFINITY, [even(problem.m, least, grid[0]), even(problem.n, least, grid[1]), k]);
    for count in (grid[1]..).step_by(grid[1] as usize) {
        let widest = problem.n.div_ceil(count).max(1);
        let n = even(problem.n, widest.next_multiple_of(ALIGN), grid[1]);
        let tallest = budget.saturating_sub(3 * k * n) / (n + 3 * k);
        if tallest > 0 {
            let m = even(problem.m, tallest, grid[0]);
            let cost = 1.0 / m as f64 + 1.0 / n as f64;
            if cost < best.0 {
                best = (cost, [m, n, k]);
            }
        }
        if widest <= least || widest * widest < budget / 64 {
            break; // narrower blocks only cost more
        }
    }
    best.1
}

/// The size of tiles of at most `limit` elements that cut `length` evenly, and so that all of `over` owners get the
/// same number of them.
fn even(length: u64, limit: u64, over: u64) -> u64 {
    let length = length.max(1);
    let count = length.div_ceil(limit).next_multiple_of(over);
    let size = length.div_ceil(count);
    let aligned = size.next_multiple_of(ALIGN);
    if aligned <= limit { aligned.min(length) } else { size }
}

/// Pages that a contiguous panel can touch.
fn panel_pages(bytes: u64, page: u64) -> u64 {
    match slot_bytes(bytes, page) % page {
        0 => bytes.div_ceil(page),
        _ => bytes.div_ceil(page) + 1,
    }
}

/// From one tile to the next: whole pages where that wastes little, whole cache lines otherwise.
fn slot_bytes(bytes: u64, page: u64) -> u64 {
    bytes.next_multiple_of(if bytes >= 8 * page { page } else { 64 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const MIB: u64 = 1 << 20;

    fn problem(m: u64, n: u64, k: u64) -> Problem {
        Problem { m, n, k, dtype: Dtype::Float64, orders: [Order::C; 3] }
    }

    fn limits(ranks: usize) -> Limits {
        Limits {
            ranks,
            ranks_on_node: ranks.min(2),
            page_bytes: 65536,
            cache_bytes: 256 * MIB,
            memory_bytes: 48 * MIB,
        }
    }

    /// Every element has exactly one place, no two tiles overlap, everything is inside of the segment, every tile is
    /// in exactly one group of its owner, and every block is computed once by its owner.
    #[test]
    fn every_element_has_one_place() {
        for (m, n, k) in
            [(1, 1, 1), (1, 700, 3), (257, 1, 513), (130, 67, 301), (64, 64, 0), (0, 5, 5), (1000, 900, 800)]
        {
            for ranks in 1..=7 {
                for memory_bytes in [60_000, 1 << 20] {
                    let plan =
                        Plan::new(&problem(m, n, k), &Limits { memory_bytes, ..limits(ranks) }).unwrap();
                    let [tm, tn, tk] = plan.tiles;
                    let mut places = HashSet::new();
                    let mut grouped = HashSet::new();
                    for (operand, rows, columns) in
                        [(Operand::A, tm, tk), (Operand::B, tk, tn), (Operand::C, tm, tn)]
                    {
                        let mut elements = 0;
                        for (row, column) in
                            (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)))
                        {
                            let tile = plan.tile(operand, row, column);
                            assert!(tile.owner < ranks && !tile.rectangle.is_empty());
                            assert!(tile.offset + tile.bytes as u64 <= plan.vectors_start());
                            assert!(places.insert((tile.owner, tile.offset)), "{operand:?} {row} {column}");
                            elements += tile.rectangle.len();
                        }
                        let expected = match operand {
                            Operand::A => m * k,
                            Operand::B => k * n,
                            Operand::C => m * n,
                        };
                        assert_eq!(elements, expected);
                        for rank in 0..ranks {
                            for group in plan.groups(operand, rank) {
                                let mut end = group.tiles[0].offset;
                                for tile in &group.tiles {
                                    assert_eq!((tile.owner, tile.offset), (rank, end));
                                    assert!(grouped.insert((tile.owner, tile.offset)));
                                    end += plan.slots[operand as usize];
                                }
                                let sum: u64 = group.tiles.iter().map(|tile| tile.rectangle.len()).sum();
                                assert_eq!(group.rectangle.len(), sum);
                            }
                        }
                    }
                    let inputs = tm * tk + tk * tn;
                    assert_eq!(grouped.len() as u64, inputs);
                    let blocks: Vec<_> = (0..ranks)
                        .flat_map(|rank| plan.blocks(rank).into_iter().map(move |b| (rank, b)))
                        .collect();
                    for (rank, (i, j)) in &blocks {
                        assert_eq!(plan.tile(Operand::C, *i, *j).owner, *rank);
                    }
                    assert_eq!(blocks.iter().collect::<HashSet<_>>().len() as u64, tm * tn);
                    assert!(plan.suspects_start() + SUSPECTS_BYTES <= plan.segment_bytes());
                }
            }
        }
    }

    #[test]
    fn large_blocks_use_the_memory_and_stay_within_it() {
        for dtype in [Dtype::Float32, Dtype::Float64] {
            for (m, n, k) in
                [(8192, 8192, 8192), (100_000, 3000, 500), (1500, 200_000, 90_000), (5003, 4999, 7001)]
            {
                for ranks in [1, 2, 4] {
                    let problem = Problem { dtype, ..problem(m, n, k) };
                    let plan = Plan::new(&problem, &limits(ranks)).unwrap();
                    let [mb, nb, kb] = plan.tile;
                    let used = (mb * nb + 3 * kb * (mb + nb)) * dtype.bytes();
                    assert!(used <= 48 * MIB, "{plan:?}");
                    assert!(
                        plan.tiles[0] * plan.tiles[1] <= ranks as u64 || used >= 24 * MIB,
                        "{used} {plan:?}"
                    );
                    assert!(kb >= 250, "{plan:?}");
                }
            }
        }
    }

    #[test]
    fn ranks_get_the_same_number_of_blocks_where_possible() {
        let plan = Plan::new(&problem(8192, 8192, 8192), &limits(4)).unwrap();
        assert_eq!(plan.grid, [2, 2]);
        let counts: Vec<_> = (0..4).map(|rank| plan.blocks(rank).len()).collect();
        assert!(counts.iter().all(|count| *count == counts[0]), "{counts:?}");
    }

    #[test]
    fn a_cache_or_memory_that_is_just_large_enough_is_taken_and_one_less_refused() {
        let two = limits(2);
        let problem = problem(4000, 4000, 4000);
        let Err(GemmError::CacheTooSmall { minimum_bytes, .. }) =
            Plan::new(&problem, &Limits { cache_bytes: 1, ..two })
        else {
            panic!("a cache of one byte was taken");
        };
        assert!(Plan::new(&problem, &Limits { cache_bytes: minimum_bytes, ..two }).is_ok());
        assert!(Plan::new(&problem, &Limits { cache_bytes: minimum_bytes - 1, ..two }).is_err());
        let Err(GemmError::MemoryTooSmall { minimum_bytes, .. }) =
            Plan::new(&problem, &Limits { memory_bytes: 1, ..two })
        else {
            panic!("a memory of one byte was taken");
        };
        assert!(Plan::new(&problem, &Limits { memory_bytes: minimum_bytes, ..two }).is_ok());
        assert!(Plan::new(&problem, &Limits { memory_bytes: minimum_bytes - 1, ..two }).is_err());
    }
}
