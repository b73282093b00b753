"""What stands before the ports: which may be reached, with which TLS keys, by which accounts.

exposure  which addresses a broker may listen on
tls       the keys of all ports, and how a port accepts connections
accounts  the accounts in force
watched   files that are read again when they change
"""
