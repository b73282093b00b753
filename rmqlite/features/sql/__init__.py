"""Which messages a consumer gets: by their tags, and by an SQL92 expression over properties.

sql.py is the way in for expressions: sql_parser.py makes a tree (sql_tree.py) of a text,
sql_evaluation.py makes a function of the tree, which reads numbers as Java does.
"""
