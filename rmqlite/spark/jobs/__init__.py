"""Questions about all records at once: functions from DataFrame to DataFrame.

A job says which columns it reads (its COLUMNS) and documents those that it answers.  It knows
neither where the records come from nor where the answer goes, so it runs on a store, on a
broker, on an archive, and on rows that a test made up.
"""

from rmqlite.arrow.packages import check_packages
from rmqlite.spark.session import PACKAGES

# Before the jobs import them: else who has the broker alone is told of a module's name.
check_packages(PACKAGES)
