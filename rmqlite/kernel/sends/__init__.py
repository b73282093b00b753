"""The one way in: what may be sent, where it goes, how it is packed and appended."""
