"""The table of requests, by noun; table.py has all of them by code.

row = codes.consuming.PULL_MESSAGE
asked = row.fields.read(command.ext)           # a PullMessage, or a FieldError
ext = row.answer.write(PullAnswer(next_begin_offset=17, min_offset=0, max_offset=20))
"""
