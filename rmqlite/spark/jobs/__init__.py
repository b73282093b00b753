"""Questions about all records at once: functions from DataFrame to DataFrame.

A job lists the columns that it reads (its COLUMNS) and documents those that it returns.  It does
not depend on where records come from or where the answer goes, so it runs on a store, on a
broker, on an archive, and on rows that a test made up.
"""

from rmqlite.extras import check_extra

# Check before the jobs import them: a user without Spark gets our error, not an ImportError.
check_extra("spark")
