"""Makes the tables of this folder: python make.py, with pyarrow, pandas and polars."""

from datetime import date, datetime, timezone
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq

here = Path(__file__).parent
rows = [[0.5 * (4 * i + j) - 3.0 for j in range(4)] for i in range(3)]

fixed = pa.table(
    {
        "id": pa.array([1, 2, 2**60], pa.int64()),
        "vec16": pa.array(rows, pa.list_(pa.float16(), 4)),
        "label": pa.array(["heron", "grey|wren", "ü"]).dictionary_encode(),
        "path": pa.array(["a/1.jpg", "a/2.jpg", "b/1.jpg"], pa.large_string()),
        "price": pa.array([12.5, None, -3.0], pa.float32()),
        "count": pa.array([3, None, 5], pa.uint8()),
        "zip": pa.array(["00123", "4", None]),
        "day": pa.array([date(2024, 2, 29), None, date(1969, 12, 31)]),
        "at": pa.array([datetime(2024, 5, 1, 10, 30, 15, 250000, timezone.utc), None, datetime(2024, 5, 1, tzinfo=timezone.utc)], pa.timestamp("us", "UTC")),
        "tags": pa.array([["red", "blue"], [], None], pa.list_(pa.string())),
        "sold": pa.array([True, False, None]),
        "nested": pa.array([{"a": 1}, None, {"a": 2}]),
    }
)
for name, compression in [("pyarrow-snappy", "snappy"), ("pyarrow-gzip", "gzip"), ("pyarrow-zstd", "zstd"), ("pyarrow-none", "none")]:
    pq.write_table(fixed, here / f"{name}.parquet", compression=compression)
# A compression that is not read.
pq.write_table(fixed.select(["label", "vec16"]), here / "pyarrow-brotli.parquet", compression="brotli")
# A stream, as Hugging Face datasets are.
with pa.ipc.new_stream(here / "pyarrow-stream.arrow", fixed.schema) as stream:
    stream.write_table(fixed)
for name, compression in [("pyarrow-lz4", "lz4"), ("pyarrow-zstd", "zstd"), ("pyarrow-none", "uncompressed")]:
    feather.write_feather(fixed, here / f"{name}.feather", compression=compression)

frame = pd.DataFrame({"embedding": [np.array(row) for row in rows], "labels": [7, 7, 9], "shop": pd.Categorical(["x", None, "y"]), "price": [1.0, np.nan, 3.0], "when": [pd.Timestamp("2024-05-01"), pd.NaT, pd.Timestamp("2024-05-02 10:30")]}, index=[10, 20, 30])
frame.to_parquet(here / "pandas.parquet")

polars = pl.DataFrame({"embeddings": rows, "camera": [1, 2, 1], "shop": ["x", None, "y|z"]}, schema={"embeddings": pl.Array(pl.Float32, 4), "camera": pl.Int64, "shop": pl.String})
polars.write_parquet(here / "polars.parquet")
polars.with_columns(pl.col("embeddings").cast(pl.List(pl.Float64))).write_ipc(here / "polars.arrow", compression="zstd")
