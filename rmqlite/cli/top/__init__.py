"""rmqlite top: one screen that shows whether a broker is well, and leads down to a message.

The answers so far (picture), the next calls (questions) and the tables and pages are plain values
without a screen; the screens only draw them and pass keys on.
"""
