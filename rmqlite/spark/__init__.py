"""The store and the broker in Spark: sources, sinks, and the jobs over them.

Plain functions plan and decode, and need no Spark; the classes that Spark calls only forward
to them.  Importing this package loads neither pyspark nor pyarrow nor gRPC, so that whoever
wants the decoder alone gets it alone.

    schema      the columns of the format "rmqlite"
    session     a SparkSession with Java found and the format registered
    streaming   read_stream(spark, ...): readStream that keeps where it began
    sink        df.write and df.writeStream: bulk scheduling;  bulk: bulk_schedule(df, ...)
"""
