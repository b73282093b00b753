"""The store and the broker in Spark: sources, sinks, and the jobs over them.

Plain functions plan and decode, and need no Spark; the classes that Spark calls only forward
to them.  Importing this package loads neither pyspark nor pyarrow nor gRPC.

    session     a SparkSession with Java found and the format registered
    reading     read_log() and snapshot();  options: the options of a reader
    partitions  the partitions of a load, and the rows of each
    source      the format as Spark calls it: it forwards to partitions, stream and sink
    streaming   read_stream(spark, ...): a readStream that stores where it began
    sink        df.write and df.writeStream: bulk scheduling;  bulk: bulk_schedule(df, ...)
    data_source_api  the classes of Spark that its older versions lack
    jobs/       the reports of rmqlite pipeline, as functions over DataFrames
"""
