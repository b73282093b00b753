"""What moves a message: it stores, delays, delivers, hands out, retries, gives up."""
