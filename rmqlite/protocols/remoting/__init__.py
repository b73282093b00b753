"""RocketMQ 4.x's remoting protocol: the broker and its name server, for unmodified 4.x clients.

server       the ports: bind, open, drain, close
connection   one client's connection: frames in, frames out, limits, and what the broker asks
guard        who sent a request
calls        a request finds its handler, and an error its code; long JSON bodies
registry     the other brokers that have registered at this name server
requests/    the handlers, by noun
"""
