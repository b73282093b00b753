"""rmqlite top: one screen that says whether a broker is well, and the way down to a message.

What is known (picture), what is asked next (questions) and how it reads (the tables and
pages) are plain values that know no screen; the screens only draw them and pass keys on.
"""
