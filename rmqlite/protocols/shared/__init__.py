"""Bytes that several protocols share: limits of fields, codecs, errors, signatures."""
