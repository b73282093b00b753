"""RocketMQ 4.x's remoting protocol: the broker and its name server, for unmodified 4.x clients.

server       the ports: bind, open, drain, close
connection   one client's connection: frames in, frames out, limits, and what the broker asks
guard        who sent a request
calls        a request finds its handler, and an error its code
registry     the other brokers that have registered at this name server
large_bodies JSON bodies that are too long to be read or written at once
requests/    the handlers, by noun
"""
