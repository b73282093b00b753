"""The page's log-in, for a broker with accounts: who sits before a browser, and for how long."""
