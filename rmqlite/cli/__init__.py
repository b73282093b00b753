"""The command line: one file or folder per noun; job is in dlq/, retry in schedule/.

A command asks the broker through the client, prints a table for people or JSON for
programs, and decides nothing itself.  Only terminal.py decides how output looks; the commands
import client and server when they run, so that `--help` and tools that need neither stay quick.
"""
