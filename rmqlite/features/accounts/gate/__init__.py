"""What stands before the ports: who reaches them, who gets in, how often, and what is noted of it.

exposure    which addresses a broker may listen on
tls         the keys of all ports, and how a port accepts connections
watched     files that are read again when they change
limits      what one account and one connection may do, and how many connections there may be
audit       the log of changes and refusals
"""
