"""The store and the broker in Spark: sources, sinks, and the jobs over them.

Plain functions plan and decode, and need no Spark; the classes that Spark calls only forward
to them.  Importing this package loads neither pyspark nor pyarrow nor gRPC, so that whoever
wants the decoder alone gets it alone.

    schema      the columns of the format "rmqlite"
    session     a SparkSession with Java found and the format registered
    reading     read_log() and snapshot();  options: what a reader may be asked for
    planning    which task reads what;  partitions, rows: what a task reads, and its rows
    decode      records as Arrow batches, by records and pairs;  export: as one file
    source      the format as Spark calls it: it forwards to batch, stream and sink
    streaming   read_stream(spark, ...): readStream that keeps where it began
    sink        df.write and df.writeStream: bulk scheduling;  bulk: bulk_schedule(df, ...)
"""
