//! Cycles that are still to be removed.

/// Crate, then the files of one group, relative to `src`. A group may lose files, and may fall into several. No file
/// may be added: break the cycle instead, then remove its entry.
pub(crate) const KNOWN: &[(&str, &[&str])] = &[
    ("gallerist-loss", &["rows/srt.rs", "srt.rs"]),
    (
        "gallerist-retrieval",
        &[
            "compact.rs",
            "error.rs",
            "file/atomic.rs",
            "file/mod.rs",
            "file/npy.rs",
            "file/sources.rs",
            "file/tensors.rs",
            "index/items.rs",
            "matrix.rs",
            "search/forecast.rs",
            "search/metric.rs",
            "search/mod.rs",
            "search/split.rs",
            "search/symmetric.rs",
        ],
    ),
    ("gallerist-retrieval", &["eval/mod.rs", "eval/task.rs", "eval/verdict.rs"]),
    (
        "gallerist-retrieval",
        &[
            "eval/average_precision.rs",
            "eval/cmc.rs",
            "eval/map_at_r.rs",
            "eval/measure.rs",
            "eval/ndcg.rs",
            "eval/precision.rs",
            "eval/precision_at_recall.rs",
            "eval/query_values.rs",
            "eval/r_precision.rs",
            "eval/rank_metric.rs",
            "eval/ranks.rs",
            "eval/recall.rs",
            "eval/reciprocal_rank.rs",
            "eval/report.rs",
            "eval/ties.rs",
        ],
    ),
    (
        "gallerist-retrieval",
        &["product/avx2.rs", "product/avx512.rs", "product/mod.rs", "product/portable.rs"],
    ),
    (
        "gallerist-retrieval",
        &[
            "product/dots/avx2.rs",
            "product/dots/avx512.rs",
            "product/dots/mod.rs",
            "product/dots/portable.rs",
        ],
    ),
    ("gallerist-train", &["trainer/state.rs", "trainer/warnings.rs"]),
    ("gallerist-weights", &["file.rs", "lib.rs", "preprocessing.rs", "pytorch.rs", "sources.rs"]),
];
