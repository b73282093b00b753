"""The broker process: joins broker and wire.  Only this package waits."""
