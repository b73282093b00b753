"""The wait queues of one broker: pending messages in due order.  The schedule delivers them."""
