"""Producer, its batches, and bulk scheduling."""
