"""How the members of a group get the messages of a topic: queues of their own, or by POP."""
