"""RocketMQ 4.x's remoting protocol: the broker and its name server, for unmodified 4.x clients.

server       the ports: bind, open, drain, close
connection   one client's connection: frames in, frames out, limits, and what the broker asks
calls        who sent a request, its handler, the code of an error; long JSON bodies
registry     the other brokers that have registered at this name server
requests/    the handlers, by noun
"""
