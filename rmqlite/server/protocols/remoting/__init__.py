"""RocketMQ 4.x's remoting protocol: the broker and its name server, for unmodified 4.x clients.

server       the ports: bind, open, drain, close
connection   one client's connection: frames in, frames out, limits
calls        a request finds its handler, and an error its code
sending      everything that arrives together is stored by one append
consuming    pulls, offsets, failed messages, locks
transactions the ends of transactions, and questions to producers
replies      replies to clients that wait for them
clients      who is connected: heartbeats, members, producers
finding      messages by key, id and offset
name_server  routes, clusters, values of tools, the switch that keeps producers away
administration  everything else that mqadmin asks
"""
