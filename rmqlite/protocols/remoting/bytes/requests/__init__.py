"""The requests by noun, each with its code, its header and its bodies; table.py has all by code.

row = topics.GET_MAX_OFFSET
asked = row.fields.read(command.ext)            # a QueueOfTopic, or a FieldError
ext = row.answer.write(OffsetAnswer(offset=17))

A field of a JSON body that has a default may be absent, or null, in what is read; a value of None
is not written.
"""
