"""What stands before the ports: who reaches them, who gets in, how often, and what is noted of it.

exposure    which addresses a broker may listen on
open_files  how many connections the limit of open files allows
tls         the keys of all ports, and how a port accepts connections
accounts    the accounts in force
watched     files that are read again when they change
limits      what one account and one connection may do in a second
audit       the log of changes and refusals
"""
