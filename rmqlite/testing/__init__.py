"""Real brokers for tests: `with broker() as running:`, and the pytest fixture rmqlite_broker.

Each is a process of its own, on free ports, whose clock a test can move forward.
"""

from rmqlite.testing.broker_process import OF_ANY_DISK as OF_ANY_DISK
from rmqlite.testing.broker_process import BrokerProcess as BrokerProcess
from rmqlite.testing.broker_process import broker as broker
from rmqlite.testing.broker_process import free_port as free_port
