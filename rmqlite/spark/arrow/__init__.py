"""Records of the commit log as Arrow batches and Parquet files, without Spark.

`rmqlite store export` and the format "rmqlite" of Spark both read a store through this package.
It needs the extra `arrow` (numpy, pyarrow), and nothing here imports pyspark.
"""
