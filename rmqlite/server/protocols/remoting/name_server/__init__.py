"""The name server: routes over this broker and those that have registered here.

routes       routes, clusters and topics, and what tools keep here
registry     the other brokers: who is alive, and which topics it has
registering  their requests
"""
