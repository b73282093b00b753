"""The broker as a member of a RocketMQ cluster: it registers at name servers."""
